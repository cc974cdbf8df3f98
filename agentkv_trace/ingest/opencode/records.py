"""What all stores hold: sessions of messages of parts, and the times inside their ids."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

if TYPE_CHECKING:
    from agentkv_trace.ingest.opencode.chat import Sent

Record = dict[str, Any]
Version = tuple[int, ...]

NEWEST: Version = (1, 18, 33)
"""Taken where a log does not tell its version."""

_ID_BITS = 36
"""An id holds the low 36 bits of its time: it comes round every two years."""
_LAST_MS = 1 << 43
"""No log is from after the year 2248."""
_NUMBERS = re.compile(r"\d+")


def table(value: object) -> Record:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: object) -> str | None:
    """Return the value if it is a string."""
    return value if isinstance(value, str) else None


def whole(value: object) -> int | None:
    """Return a number as an int; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Neither infinite nor not-a-number, and small enough for 64 bits.
    return int(value) if abs(value) < 1 << 62 else None


def stamp(value: object) -> int | None:
    """Return a time in epoch milliseconds; None for what cannot be one."""
    ms = whole(value)
    return ms if ms is not None and 0 <= ms < _LAST_MS else None


def decoded(data: str | bytes) -> Any:
    """Return the value of JSON; half of a surrogate pair, where a text was cut, becomes U+FFFD.

    Raises msgspec.DecodeError.
    """
    escape = "\\ud" if isinstance(data, str) else b"\\ud"
    try:
        if escape not in data:  # type: ignore[operator]
            return msgspec.json.decode(data)
        words = data if isinstance(data, str) else data.decode(errors="replace")
        return mended(json.loads(words))
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def mended(value: Any) -> Any:
    """Return a decoded value with U+FFFD for each half of a surrogate pair."""
    halves = json.dumps(value, ensure_ascii=False)
    return msgspec.json.decode(
        halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def digest(data: bytes) -> bytes:
    """Return what tells one content from another."""
    return xxhash.xxh3_128_digest(data)


def version_of(name: str | None) -> Version:
    """Return a version as numbers; NEWEST where there are none (a build from source)."""
    found = _NUMBERS.findall((name or "").split("-")[0])
    return tuple(map(int, found[:3])) if found and any(map(int, found)) else NEWEST


def id_ms(ident: str, near_ms: int) -> int | None:
    """Return the epoch milliseconds inside an id; `near_ms` tells which two years it is from.

    Ids of messages and parts hold the time, those of sessions its complement.
    """
    kind, _, rest = ident.partition("_")
    try:
        bits = int(rest[:12], 16)
    except ValueError:
        return None
    if kind == "ses":
        bits = ~bits & ((1 << 48) - 1)
    cycle = 1 << _ID_BITS
    low = bits >> 12
    base = near_ms - near_ms % cycle + low
    return min((base - cycle, base, base + cycle), key=lambda ms: abs(ms - near_ms))


@dataclass(slots=True)
class Part:
    """A piece of a message."""

    id: str
    data: Record

    @property
    def type(self) -> str:
        """What kind of piece it is: text, reasoning, tool, file, step-start, ..."""
        return text(self.data.get("type")) or ""

    @property
    def state(self) -> Record:
        """The state of a tool call."""
        return table(self.data.get("state"))

    @property
    def cleared_ms(self) -> int | None:
        """When pruning replaced a tool's output in prompts, if it did."""
        return stamp(table(self.state.get("time")).get("compacted"))


@dataclass(slots=True)
class Message:
    """A message with its parts, in order; `removed_ms` is when a revert deleted it."""

    id: str
    data: Record
    parts: list[Part]
    removed_ms: int | None = None
    checkpoint: bool = False
    memo: dict[object, Sent] = field(default_factory=dict, repr=False)

    @property
    def role(self) -> str:
        """Who speaks: user, assistant, or system."""
        return text(self.data.get("role")) or ""

    @property
    def created_ms(self) -> int:
        """When it was begun, in epoch milliseconds."""
        return stamp(table(self.data.get("time")).get("created")) or 0

    @property
    def completed_ms(self) -> int | None:
        """When it was finished, its tools included."""
        return stamp(table(self.data.get("time")).get("completed"))

    @property
    def parent(self) -> str | None:
        """The id of the user message that it answers."""
        return text(self.data.get("parentID"))

    @property
    def is_summary(self) -> bool:
        """Whether it is what a compaction wrote."""
        return self.data.get("summary") is True

    @property
    def error(self) -> str | None:
        """The name of the error that ended it."""
        error = self.data.get("error")
        return (text(table(error).get("name")) or "error") if error else None

    @property
    def model(self) -> tuple[str, str]:
        """Provider and model."""
        data = self.data
        if self.role == "user":
            data = table(data.get("model"))
        return text(data.get("providerID")) or "", text(data.get("modelID")) or ""

    def part(self, kind: str) -> Part | None:
        """Return the first part of a kind."""
        return next((part for part in self.parts if part.type == kind), None)


@dataclass(slots=True)
class Session:
    """One conversation: what all its prompts depend on, and its messages in order."""

    id: str
    info: Record
    messages: list[Message] = field(default_factory=list)
    second_schema: bool = False

    @property
    def parent(self) -> str | None:
        """The session that started this one as a sub-agent."""
        return text(self.info.get("parentID"))

    @property
    def version(self) -> str:
        """The version that began the session."""
        return text(self.info.get("version")) or ""

    @property
    def directory(self) -> str:
        """Where the agent works."""
        return text(self.info.get("directory")) or ""

    @property
    def created_ms(self) -> int:
        """When it was begun, in epoch milliseconds."""
        return stamp(table(self.info.get("time")).get("created")) or 0

    @property
    def updated_ms(self) -> int:
        """When it was last changed, in epoch milliseconds."""
        return stamp(table(self.info.get("time")).get("updated")) or self.created_ms

    @property
    def permission(self) -> bytes:
        """What decides which tools it has, as far as the log tells; equal bytes for equal rules."""
        rules = [
            sorted((key, str(value)) for key, value in table(rule).items())
            for rule in items(self.info.get("permission"))
        ]
        return msgspec.json.encode(sorted(rules))


def in_order(messages: list[Message]) -> list[Message]:
    """Return messages sorted as OpenCode reads them: by time, then by id; parts by id."""
    for message in messages:
        message.parts.sort(key=lambda part: part.id)
    return sorted(messages, key=lambda message: (message.created_ms, message.id))
