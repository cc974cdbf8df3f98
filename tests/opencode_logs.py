"""Made OpenCode logs: one session written as a database, as a JSON tree or as an export."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.opencode import calls
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

Json = dict[str, Any]

START_MS = 1_791_200_000_000
"""A Monday in October 2026, far from midnight in most zones."""
MODEL = {"providerID": "pier", "modelID": "tide-1"}


def ident(kind: str, ms: int, number: int = 1) -> str:
    """Return an id with its time inside, as OpenCode makes them."""
    bits = (ms << 12 | number) & ((1 << 48) - 1)
    if kind == "ses":
        bits = ~bits & ((1 << 48) - 1)
    return f"{kind}_{bits:012x}Buoy{number:03d}"


def tokens(prompt: int, output: int = 5, *, cached: int = 0, reasoning: int = 0) -> Json:
    """Return usage as 1.14 and later log it: input without cached, output without reasoning."""
    plain = output - reasoning
    return {
        "total": prompt + output,
        "input": prompt - cached,
        "output": plain,
        "reasoning": reasoning,
        "cache": {"read": cached, "write": 0},
    }


def said(words: str, **fields: Any) -> Json:
    return {"type": "text", "text": words, **fields}


def thought(words: str, **fields: Any) -> Json:
    return {"type": "reasoning", "text": words, **fields}


def tool(
    call: str, output: str | None = "done\n", *, status: str = "completed", **state: Any
) -> Json:
    made: Json = {"status": status, "input": {"command": f"look {call}"}}
    if output is not None:
        made["output"] = output
    return {"type": "tool", "tool": "bash", "callID": call, "state": made | state}


def begin() -> Json:
    return {"type": "step-start", "snapshot": "0" * 40}


def end(used: Json) -> Json:
    return {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": used}


class Log:
    """One session; each message is a second later than the one before it."""

    def __init__(self, start_ms: int = START_MS, *, version: str = "1.18.33", **info: Any) -> None:
        self.now = start_ms
        self.info: Json = {
            "id": ident("ses", start_ms),
            "slug": "quiet-buoy",
            "projectID": "global",
            "directory": "/repo/tides",
            "title": "Look at the tables",
            "version": version,
            "time": {"created": start_ms, "updated": start_ms},
            **info,
        }
        self.messages: list[tuple[Json, list[Json]]] = []
        self.events: list[tuple[str, Json]] = []

    @property
    def id(self) -> str:
        return str(self.info["id"])

    def add(self, data: Json, parts: Sequence[Json], *, at_ms: int | None = None) -> str:
        self.now = self.now + 1000 if at_ms is None else at_ms
        message = ident("msg", self.now)
        own = {"id": message, "sessionID": self.id}
        made = [
            {
                "id": ident("prt", self.now + n, n + 1),
                "messageID": message,
                "sessionID": self.id,
                **part,
            }
            for n, part in enumerate(parts)
        ]
        self.messages.append((own | data, made))
        self.info["time"]["updated"] = self.now
        return message

    def user(self, *parts: str | Json, at_ms: int | None = None, **data: Any) -> str:
        pieces = [said(part) if isinstance(part, str) else part for part in parts]
        at_ms = self.now + 1000 if at_ms is None else at_ms
        record = {"role": "user", "time": {"created": at_ms}, "agent": "build", "model": MODEL}
        return self.add(record | data, pieces, at_ms=at_ms)

    def assistant(
        self,
        *parts: str | Json,
        used: Json | None = None,
        steps: bool = True,
        at_ms: int | None = None,
        took_ms: int | None = 600,
        **data: Any,
    ) -> str:
        """Add an answer to the last message of the user; parts stand in one step."""
        at_ms = self.now + 1000 if at_ms is None else at_ms
        used = tokens(7000) if used is None else used
        pieces = [
            said(part, time={"start": at_ms + 200, "end": at_ms + 400})
            if isinstance(part, str)
            else part
            for part in parts
        ]
        if steps:
            pieces = [begin(), *pieces, end(used)]
        asked = next(m["id"] for m, _ in reversed(self.messages) if m["role"] == "user")
        time = {"created": at_ms} | ({"completed": at_ms + took_ms} if took_ms is not None else {})
        record = {
            "role": "assistant",
            "parentID": asked,
            "mode": "build",
            "agent": "build",
            "path": {"cwd": "/repo/tides", "root": "/repo/tides"},
            "cost": 0,
            "tokens": used,
            "time": time,
            "finish": "stop",
            **MODEL,
        }
        made = {key: value for key, value in (record | data).items() if value is not None}
        return self.add(made, pieces, at_ms=at_ms)

    def fork(self, start_ms: int) -> Log:
        """Return a session that copied this one's messages under new ids."""
        other = Log(start_ms, version=self.info["version"], title="Look at the tables (fork #1)")
        names: dict[str, str] = {}
        for number, (message, parts) in enumerate(self.messages):
            names[message["id"]] = name = ident("msg", start_ms + 5, number + 1)
            own = {"id": name, "sessionID": other.id}
            if "parentID" in message:
                own["parentID"] = names[message["parentID"]]
            pieces = [
                part | own | {"id": ident("prt", start_ms + 6, 100 * number + n), "messageID": name}
                for n, part in enumerate(parts)
            ]
            other.messages.append((message | own, pieces))
        other.now = start_ms + 10
        return other

    def remove(self, *names: str, at_ms: int) -> None:
        """Delete messages, as a prompt after a revert does; the event table keeps them."""
        for message, parts in self.messages:
            if message["id"] in names:
                self.events.append(("message.updated.1", {"info": message}))
                self.events += [("message.part.updated.1", {"part": part}) for part in parts]
        self.messages = [pair for pair in self.messages if pair[0]["id"] not in names]
        for name in names:
            event = {"sessionID": self.id, "messageID": name, "at_ms": at_ms}
            self.events.append(("message.removed.1", event))

    # Stores

    def export(self, path: Path) -> Path:
        messages = [{"info": message, "parts": parts} for message, parts in self.messages]
        path.write_text(json.dumps({"info": self.info, "messages": messages}, indent=2))
        return path

    def tree(self, storage: Path) -> Path:
        """Write the session as OpenCode did up to 1.1 and return its file."""
        path = storage / "session" / "global" / f"{self.id}.json"
        write(path, self.info)
        for message, parts in self.messages:
            write(storage / "message" / self.id / f"{message['id']}.json", message)
            for part in parts:
                write(storage / "part" / message["id"] / f"{part['id']}.json", part)
        return path


def write(path: Path, record: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2))


TABLES = """
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, slug text,
  directory text, title text, version text, permission text, agent text, model text, revert text,
  time_created integer, time_updated integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,
  time_updated integer, data text);
CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer,
  time_updated integer, data text);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text, seq integer, type text, data text);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a new database in WAL mode whose log is not checkpointed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executescript(TABLES)
    return connection


def insert(connection: sqlite3.Connection, log: Log) -> None:
    """Write a session's rows."""
    info = log.info
    time = info["time"]
    permission = info.get("permission")
    row = (
        info["id"], info["projectID"], info.get("parentID"), info["slug"], info["directory"],
        info["title"], info["version"], json.dumps(permission) if permission else None, None, None,
        None, time["created"], time["updated"],
    )  # fmt: skip
    connection.execute(f"INSERT INTO session VALUES ({', '.join('?' * 13)})", row)
    for message, parts in log.messages:
        data = {key: value for key, value in message.items() if key not in ("id", "sessionID")}
        at = message["time"]["created"]
        values = (message["id"], log.id, at, at, json.dumps(data))
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", values)
        for part in parts:
            hidden = ("id", "sessionID", "messageID")
            data = {key: value for key, value in part.items() if key not in hidden}
            values = (part["id"], message["id"], log.id, at, at, json.dumps(data))
            connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", values)
    for seq, (kind, data) in enumerate(log.events):
        name = ident("evt", data.get("at_ms", log.info["time"]["created"]), seq + 1)
        values = (name, log.id, seq, kind, json.dumps(data))
        connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", values)


def database(path: Path, *logs: Log) -> Path:
    """Write sessions as a database in one file."""
    connection = connect(path)
    for log in logs:
        insert(connection, log)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


# What comes of them


def read(*files: Path, notes: Notes | None = None) -> list[LoggedCall]:
    return list(calls.read(files, Notes() if notes is None else notes))


def spelled(node: Node) -> list[Json | tuple[bytes, int]]:
    """Return the pieces of a prompt behind its head: messages as objects, the rest as it is."""
    found: list[Json | tuple[bytes, int]] = []
    at: Node | None = node
    while at is not None and at.parent is not None:
        found.append(json.loads(at.content) if at.tokens is None else (at.content, at.tokens))
        at = at.parent
    return [piece for piece in found[::-1] if not _is_environment(piece)]


def _is_environment(piece: object) -> bool:
    return isinstance(piece, tuple) and piece[0].startswith(b"environment\0")


def words(node: Node) -> list[str]:
    """Return a prompt in short: `u hello`, `a hi [c1]`, `t done`, `s ...`."""
    short = []
    for piece in spelled(node):
        if isinstance(piece, tuple):
            short.append(f"{piece[1]} tokens")
            continue
        content = piece["content"]
        shown = (
            content if isinstance(content, str) else "|".join(p.get("text", "*") for p in content)
        )
        asked = [call["id"] for call in piece.get("tool_calls", [])]
        short.append(
            " ".join([piece["role"][0], shown.strip(), *(f"[{one}]" for one in asked)]).strip()
        )
    return short
