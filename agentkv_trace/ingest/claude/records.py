"""The lines of a transcript: who wrote what after which other line, and what it used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.records import MAX_TOKENS, Record, stamp, table, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.notes import Notes

NONE = Raw(b"")
TURNS = frozenset({"user", "assistant", "system", "attachment", "progress"})
"""Lines that stand in the tree of messages; all others keep books."""
SYNTHETIC = "<synthetic>"
"""The model of messages that the client wrote itself."""
_MAX_RESTARTS = 1000
"""Places of one damaged line where a record is looked for."""


class Line(msgspec.Struct):
    """A line; its message stays undecoded."""

    type: Any = None
    uuid: Any = None
    parentUuid: Any = None  # noqa: N815
    logicalParentUuid: Any = None  # noqa: N815
    sessionId: Any = None  # noqa: N815
    agentId: Any = None  # noqa: N815
    attributionAgent: Any = None  # noqa: N815
    isSidechain: Any = None  # noqa: N815
    timestamp: Any = None
    version: Any = None
    cwd: Any = None
    subtype: Any = None
    operation: Any = None
    entrypoint: Any = None
    isMeta: Any = None  # noqa: N815
    isCompactSummary: Any = None  # noqa: N815
    isApiErrorMessage: Any = None  # noqa: N815
    sourceToolAssistantUUID: Any = None  # noqa: N815
    forkedFrom: Any = None  # noqa: N815
    compactMetadata: Any = None  # noqa: N815
    message: Raw = NONE
    attachment: Raw = NONE
    toolUseResult: Raw = NONE  # noqa: N815
    data: Raw = NONE

    @property
    def is_turn(self) -> bool:
        """Whether this stands in the tree of messages."""
        return text(self.type) in TURNS and text(self.uuid) is not None


class Head(msgspec.Struct):
    """A message without its content."""

    id: Any = None
    role: Any = None
    model: Any = None
    usage: Any = None
    stop_reason: Any = None


class Message(Head):
    """A message."""

    content: Any = None


_LINES = msgspec.json.Decoder(Line)
_HEADS = msgspec.json.Decoder(Head)
_MESSAGES = msgspec.json.Decoder(Message)
_ANYTHING = msgspec.json.Decoder(Any)
Decoded = TypeVar("Decoded")


def parsed(data: bytes) -> list[Line]:
    """Return the line in some bytes; none where they are no such JSON object."""
    try:
        return [_LINES.decode(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def lines(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, Line]]:
    """Yield `(line number, line)` of a file, several where a torn write put them on one line.

    Counts `bytes` and `lines`. What cannot be read is skipped and counted. Raises OSError where
    the file cannot be read.
    """
    count = reading.counter(notes, on_bytes)
    for number, data in reading.lines(path, notes, count):
        notes.count("lines")
        found = parsed(data)
        if not found:
            found = _resynchronised(data, path, number, notes)
        for line in found:
            yield number, line


def _resynchronised(data: bytes, path: Path, number: int, notes: Notes) -> list[Line]:
    """Return the whole records on a damaged line: after a torn one, or one behind another."""
    if not data.strip(b"\0 \t\r"):
        notes.skip("line of NUL bytes", str(path), number)
        return []
    words = data.decode(errors="replace")
    read = json.JSONDecoder().raw_decode
    found: list[Line] = []
    at = words.find("{")
    lost = at > 0 and bool(words[:at].strip("\0 \t\r"))
    for _ in range(_MAX_RESTARTS):
        if at < 0:
            break
        try:
            value, end = read(words, at)
        except (ValueError, RecursionError):
            lost = True
            at = words.find('{"', at + 1)
            continue
        if _is_record(value):
            # Half a character, which clients leave where they cut text, is no reason to lose it.
            found += parsed(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
            rest = words[end:].lstrip("\0 \t\r")
            lost |= bool(rest) and not rest.startswith("{")
        at = words.find("{", end)
    if lost or not found:
        notes.skip("damaged line" if lost else "line is no record", str(path), number)
    return found


def _is_record(value: object) -> bool:
    """Tell a record from a part of one."""
    fields = table(value)
    return text(fields.get("type")) is not None and "sessionId" in fields


def head_of(raw: Raw) -> Head:
    """Return a message without its content; an empty one where it cannot be read."""
    return _lenient(_HEADS, raw) or Head()


def message_of(raw: Raw) -> Message:
    """Return a message; an empty one where it cannot be read."""
    return _lenient(_MESSAGES, raw) or Message()


def record_of(raw: Raw) -> Record:
    """Return a part of a line as an object, empty where it is none."""
    return table(_lenient(_ANYTHING, raw))


def _lenient(decoder: msgspec.json.Decoder[Decoded], raw: Raw) -> Decoded | None:
    """Decode with damaged characters replaced; None where nothing of it can be read."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(bytes(raw).decode(errors="replace"))
        return decoder.decode(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None


class Usage(NamedTuple):
    """Tokens of one call, the three parts of its prompt apart; `hourly` caches live an hour."""

    fresh: int
    written: int
    read: int
    output: int
    hourly: bool = False

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.fresh + self.written + self.read


def usage_of(value: object) -> Usage | None:
    """Return the usage of a message; None where it holds no tokens."""
    fields = table(value)
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    fresh, written, read = (whole(fields.get(name)) or 0 for name in names)
    output = whole(fields.get("output_tokens")) or 0
    split = table(fields.get("cache_creation"))
    hourly = bool(whole(split.get("ephemeral_1h_input_tokens")))
    usage = Usage(fresh, written, read, output, hourly)
    known = usage.prompt > 0 and max(usage.prompt, output) <= MAX_TOKENS
    return usage if known else None


def call_id(line: Line, head: Head) -> str | None:
    """Return the id of the response that a line is part of; None where it is no response."""
    if line.type != "assistant" or line.isApiErrorMessage is True or head.model == SYNTHETIC:
        return None
    return text(head.id)


def stamp_of(line: Line) -> int | None:
    """Return when a line was written, in UTC microseconds."""
    return stamp(line.timestamp)


def chain_of(line: Line) -> str:
    """Return the sub-agent that a line belongs to; empty for the session itself."""
    return text(line.agentId) or ""


def is_input(line: Line) -> bool:
    """Tell whether a user's line answers a tool."""
    return text(line.sourceToolAssistantUUID) is not None or bool(bytes(line.toolUseResult))
