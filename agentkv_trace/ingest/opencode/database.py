"""Sessions in OpenCode's SQLite database, read without touching it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentkv_trace.ingest.opencode import second
from agentkv_trace.ingest.opencode.records import (
    Message,
    Part,
    Record,
    Session,
    decoded,
    id_ms,
    in_order,
    table,
    text,
)
from agentkv_trace.ingest.reading import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.notes import Notes

MAGIC = b"SQLite format 3\0"
_TRIES = 3
_SESSIONS = ("session_v2", "session")
_JSON_COLUMNS = ("permission", "revert", "model")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database together with its write-ahead log, and never write beside it.

    Recent rows stand in the `-wal` file only. SQLite would create or remove files in the user's
    folder to read it, even read-only, and wait for locks; so where there is such a file, both are
    copied and SQLite opens the copy. Its index (`-shm`) is made anew. A database without one is
    opened where it is, as a file that nobody changes. Raises OSError or sqlite3.DatabaseError.
    """
    wal = path.with_name(path.name + "-wal")
    if not (wal.exists() and wal.stat().st_size):
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            yield _prepared(connection)
        return
    with tempfile.TemporaryDirectory(prefix="agentkv-trace-") as folder:
        copy = Path(folder) / "opencode.db"
        _copy(path, wal, copy)
        with closing(sqlite3.connect(copy)) as connection:
            yield _prepared(connection)


def _copy(path: Path, wal: Path, copy: Path) -> None:
    """Copy a database and its log; again if a checkpoint moved rows between them meanwhile."""
    for _ in range(_TRIES):
        before = _stamp(path)
        shutil.copyfile(path, copy)
        log = copy.with_name(copy.name + "-wal")
        log.unlink(missing_ok=True)
        if wal.exists():
            shutil.copyfile(wal, log)
        if _stamp(path) == before:
            return


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA query_only = 1")
    return connection


class Database:
    """The sessions of one open database; damage loses as little as possible."""

    def __init__(self, connection: sqlite3.Connection, path: Path, notes: Notes) -> None:
        self._connection = connection
        self._path = str(path)
        self._notes = notes
        rows = self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {row["name"] for row in rows}

    @property
    def is_opencode(self) -> bool:
        """Whether it has the tables of a known version."""
        tables = self._tables
        first = {"session", "message", "part"} <= tables
        return first or ("session_message" in tables and bool(tables & set(_SESSIONS)))

    def sessions(self) -> dict[str, Session]:
        """Return all sessions by id, without their messages."""
        found: dict[str, Session] = {}
        for name in _SESSIONS:
            if name not in self._tables:
                continue
            for row in self._rows(f'SELECT * FROM "{name}"'):  # noqa: S608
                info = _info(row)
                if (ident := text(info.get("id"))) and ident not in found:
                    found[ident] = Session(ident, info, second_schema=name == "session_v2")
        # Where a damaged page took a session's row, its messages may still be there.
        for name in ("message", "session_message"):
            if name in self._tables and self._notes.skipped["damaged database"]:
                for row in self._rows(f"SELECT DISTINCT session_id FROM {name}"):  # noqa: S608
                    found.setdefault(row[0], Session(row[0], {"id": row[0]}))
        return found

    def fill(self, session: Session) -> None:
        """Read a session's messages, those that a revert deleted among them."""
        readers = [self._first, self._second]
        for read in reversed(readers) if session.second_schema else readers:
            session.messages = read(session)
            if session.messages:
                session.second_schema = read == self._second
                return

    def _second(self, session: Session) -> list[Message]:
        if "session_message" not in self._tables:
            return []
        known = {row["name"] for row in self._rows("PRAGMA table_info(session_message)")}
        seq = "seq" if "seq" in known else "NULL AS seq"
        query = _select("session_message", f"id, type, time_created, {seq}")
        records = []
        for row in self._rows(query, (MAX_LINE, session.id)):
            fields = {key: row[key] for key in ("id", "type", "time_created", "seq")}
            records.append(fields | {"data": self._data(row)})
        records.sort(key=lambda row: (row["seq"] or 0, row["time_created"], row["id"]))
        return second.messages(records)

    def _first(self, session: Session) -> list[Message]:
        if not {"message", "part"} <= self._tables:
            return []
        parts: dict[str, list[Part]] = {}
        for row in self._rows(_select("part", "id, message_id"), (MAX_LINE, session.id)):
            if (data := self._data(row)) is not None:
                parts.setdefault(row["message_id"], []).append(Part(row["id"], data))
        messages = {}
        for row in self._rows(_select("message", "id"), (MAX_LINE, session.id)):
            if (data := self._data(row)) is not None:
                messages[row["id"]] = Message(row["id"], data, parts.pop(row["id"], []))
        self._notes.count("parts without a message", sum(map(len, parts.values())))
        for message in self._removed(session):
            messages.setdefault(message.id, message)
        return in_order(list(messages.values()))

    def _removed(self, session: Session) -> list[Message]:
        """Return the messages that a revert deleted, as the event table still holds them."""
        if "event" not in self._tables:
            return []
        query = _select("event", "id, type", "aggregate_id") + " AND type LIKE ? ORDER BY seq"
        removed: dict[str, Message] = {}
        for row in self._rows(query, (MAX_LINE, session.id, "message.removed%")):
            ident = text(table(self._data(row)).get("messageID"))
            at_ms = id_ms(row["id"], session.updated_ms)
            if ident and at_ms is not None:
                removed[ident] = Message(ident, {}, [], removed_ms=at_ms)
        parts: dict[str, tuple[Message, Part]] = {}
        if not removed:
            return []
        for row in self._rows(query, (MAX_LINE, session.id, "message.%")):
            data = table(self._data(row))
            info, part = table(data.get("info")), table(data.get("part"))
            if (message := removed.get(text(info.get("id")) or "")) is not None:
                message.data = info
            elif (message := removed.get(text(part.get("messageID")) or "")) is not None:
                ident = text(part.get("id")) or ""
                parts[ident] = (message, Part(ident, part))
            elif row["type"].startswith("message.part.removed"):
                parts.pop(text(data.get("partID")) or "", None)
        for message, piece in parts.values():
            message.parts.append(piece)
        return [message for message in removed.values() if message.data]

    def _data(self, row: sqlite3.Row) -> Record | None:
        raw = row["content"]
        if raw is None:
            self._notes.skip("record too large", self._where(row))
            return None
        try:
            value = decoded(raw)
        except msgspec.DecodeError:
            self._notes.skip("damaged record", self._where(row))
            return None
        self._notes.count("records")
        return table(value)

    def _where(self, row: sqlite3.Row) -> str:
        return f"{self._path}:{row['id']}"

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[sqlite3.Row]:
        """Yield the rows up to where the database is damaged, which is one counted skip."""
        try:
            yield from self._connection.execute(query, values)
        except (sqlite3.DatabaseError, OverflowError):
            self._notes.skip("damaged database", self._path)


def _select(name: str, columns: str, session: str = "session_id") -> str:
    """Return the query for a session's rows; `content` is NULL where it is too large to hold."""
    content = "CASE WHEN length(data) > ? THEN NULL ELSE data END AS content"
    return f'SELECT {columns}, {content} FROM "{name}" WHERE {session} = ?'  # noqa: S608


def _info(row: sqlite3.Row) -> Record:
    """Return a session's row in the shape that files have."""
    info: Record = {key: row[key] for key in row.keys() if row[key] is not None}  # noqa: SIM118
    for key in _JSON_COLUMNS:
        if isinstance(info.get(key), str):
            try:
                info[key] = msgspec.json.decode(info[key])
            except msgspec.DecodeError:
                del info[key]
    info["parentID"] = info.get("parent_id")
    info["time"] = {"created": info.get("time_created"), "updated": info.get("time_updated")}
    return info
