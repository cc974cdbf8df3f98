"""OpenCode logs to calls: each session once, from the best store that holds it."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.opencode import files as stores
from agentkv_trace.ingest.opencode.database import MAGIC, Database, opened
from agentkv_trace.ingest.opencode.records import Message, Session, digest, id_ms, table, text
from agentkv_trace.ingest.opencode.session import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.call import LoggedCall

_ABOUT_MS = 1_767_225_600_000
"""The start of 2026, to tell which two years a session's id is from where nothing else does."""
_DATABASE, _TREE, _EXPORT = range(3)
"""Stores, the most trusted first: a database replaces the files it was made from."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A session in a store; `load` reads its messages."""

    store: int
    path: Path
    id: str
    created_ms: int
    updated_ms: int
    load: Callable[[], Session | None]

    @property
    def rank(self) -> tuple[int, int, str]:
        return self.store, -self.updated_ms, str(self.path)


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of databases, session files of the JSON tree and exports, by session.

    Sessions come in the order in which they were begun, whatever the order of the files. What
    cannot be read is skipped and counted, and never loses the rest. `on_bytes` is told how much
    was read, in bytes on disk. Raises InputError in strict mode.
    """
    with ExitStack() as stack:
        best: dict[str, _Found] = {}
        for path in sorted(files):
            for found in _sessions(path, notes, stack):
                other = best.get(found.id)
                if other is not None:
                    notes.count("deduplicated sessions")
                if other is None or found.rank < other.rank:
                    best[found.id] = found
        chosen = sorted(best.values(), key=lambda found: (found.created_ms, found.id))
        progress = _Progress(chosen, on_bytes)
        seen: dict[bytes, str] = {}
        for found in chosen:
            session = found.load()
            progress.done(found)
            if session is not None:
                yield from _calls(session, seen, notes)
        progress.rest(files)


def _calls(session: Session, seen: dict[bytes, str], notes: Notes) -> Iterator[LoggedCall]:
    """Yield a session's own calls: what a fork copied is its history, not its calls."""
    by_id = {message.id: message for message in session.messages}
    copied: set[str] = set()
    origin: str | None = None
    for message in session.messages:
        if message.role != "assistant":
            continue
        key = _key(message, by_id)
        owner = seen.setdefault(key, session.id)
        if owner != session.id or message.created_ms < session.created_ms:
            copied.add(message.id)
            origin = owner if owner != session.id else origin
            notes.count("deduplicated calls")
    forked = text(session.info.get("fork_session_id")) or origin
    any_call = False
    for call in Calls(session, frozenset(copied), forked, notes).all():
        any_call = True
        notes.count("calls")
        yield call
    if any_call:
        notes.count("sessions")


def _key(message: Message, by_id: dict[str, Message]) -> bytes:
    """Return what a call and its copy in a fork have in common; ids are new in a copy."""
    data = message.data
    asked = by_id.get(message.parent or "")
    words = [part.data.get("text") for part in asked.parts] if asked else []
    time = table(data.get("time"))
    return digest(
        msgspec.json.encode(
            [time.get("created"), time.get("completed"), message.model, data.get("tokens"), words],
            order="sorted",
        )
    )


# Stores


def _sessions(path: Path, notes: Notes, stack: ExitStack) -> Iterator[_Found]:
    notes.count("files")
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
        if not head:
            notes.skip("empty file", str(path))
        elif head == MAGIC:
            yield from _in_database(path, notes, stack)
        elif path.name.startswith("ses_") and "session" in path.parts:
            yield from _in_tree(path, notes)
        else:
            yield from _in_export(path, notes)
    except OSError:
        notes.skip("unreadable file", str(path))
    except sqlite3.DatabaseError:
        notes.skip("damaged database", str(path))


def _in_database(path: Path, notes: Notes, stack: ExitStack) -> Iterator[_Found]:
    notes.count("bytes", path.stat().st_size)
    database = Database(stack.enter_context(opened(path)), path, notes)
    if not database.is_opencode:
        notes.skip("database of another program", str(path))
        return
    for session in database.sessions().values():

        def load(session: Session = session) -> Session:
            fresh = replace(session)
            database.fill(fresh)
            return fresh

        yield _found(_DATABASE, path, session, load)


def _in_tree(path: Path, notes: Notes) -> Iterator[_Found]:
    info = stores.session_info(path, notes)
    if info is None or not text(info.get("id")):
        return

    def load() -> Session:
        return stores.from_tree(path, info, notes)

    yield _found(_TREE, path, Session(str(info["id"]), info), load)


def _in_export(path: Path, notes: Notes) -> Iterator[_Found]:
    for number, session in enumerate(stores.exported(path, notes)):
        if not session.id:
            notes.skip("export without a session", str(path))
            continue

        def load(number: int = number) -> Session | None:
            # Read again, so that no more than one session is held.
            again = list(stores.exported(path, type(notes)()))
            return again[number] if number < len(again) else None

        yield _found(_EXPORT, path, Session(session.id, session.info), load)


def _found(store: int, path: Path, session: Session, load: Callable[[], Session | None]) -> _Found:
    created = session.created_ms or id_ms(session.id, session.updated_ms or _ABOUT_MS) or 0
    return _Found(store, path, session.id, created, session.updated_ms, load)


class _Progress:
    """Tells how many bytes of the files were read, a file's by its sessions."""

    def __init__(self, chosen: list[_Found], on_bytes: Callable[[int], None] | None) -> None:
        self._on_bytes = on_bytes
        self._sessions: dict[Path, int] = {}
        self._told: dict[Path, int] = {}
        self._sizes: dict[Path, int] = {}
        for found in chosen:
            self._sessions[found.path] = self._sessions.get(found.path, 0) + 1

    def done(self, found: _Found) -> None:
        """Count one session of a file."""
        if self._on_bytes is not None:
            size = self._size(found.path) // self._sessions[found.path]
            self._told[found.path] = self._told.get(found.path, 0) + size
            self._on_bytes(size)

    def rest(self, files: Sequence[Path]) -> None:
        """Count what no session accounted for."""
        for path in files if self._on_bytes is not None else ():
            if (left := self._size(path) - self._told.get(path, 0)) and self._on_bytes:
                self._on_bytes(left)

    def _size(self, path: Path) -> int:
        if path not in self._sizes:
            try:
                self._sizes[path] = path.stat().st_size
            except OSError:
                self._sizes[path] = 0
        return self._sizes[path]
