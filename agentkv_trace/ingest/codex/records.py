"""Typed views on the records of a rollout: who wrote it, when, and what it used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

STARTS = (b'{"timestamp":',)
"""Whole records of every era but the first begin so, and nothing inside one does."""

Record = dict[str, Any]

_VERSION = re.compile(r"^v?(\d+)\.(\d+)")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


MAX_WHOLE = 2**50
"""No count or time in milliseconds is larger."""
MAX_TOKENS = 2**31 - 1


def table(value: object) -> Record:
    """Return a JSON object, or an empty one where the value is something else."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str | None:
    """Return a string that is not empty, or None."""
    return value if isinstance(value, str) and value else None


def whole(value: object) -> int | None:
    """Return an integer from 0 to MAX_WHOLE, or None."""
    return value if type(value) is int and 0 <= value <= MAX_WHOLE else None


def stamp(value: object) -> int | None:
    """Return an ISO 8601 time as UTC microseconds, or None; a time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    span = time - _EPOCH
    micros = (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
    return micros if micros >= 0 else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid_ms(value: object) -> int | None:
    """Return the milliseconds since 1970 inside a version 7 UUID, or None."""
    if not isinstance(value, str) or not _UUID.fullmatch(value) or value[14] != "7":
        return None
    return int(value[:8] + value[9:13], 16)


def version_of(value: object) -> tuple[int, int] | None:
    """Return (major, minor) of a version, or None for builds that carry none (0.0.0)."""
    found = _VERSION.match(value) if isinstance(value, str) else None
    pair = (int(found[1]), int(found[2])) if found else (0, 0)
    return pair if pair > (0, 0) else None


class Usage(NamedTuple):
    """Tokens of one response; `prompt` includes cached ones, `output` includes reasoning."""

    prompt: int
    cached: int
    output: int
    reasoning: int | None


def usage_of(value: object) -> Usage | None:
    """Return a usage object of the log; None where it holds no tokens (never a call)."""
    fields = table(value)
    usage = Usage(
        whole(fields.get("input_tokens")) or 0,
        whole(fields.get("cached_input_tokens")) or 0,
        whole(fields.get("output_tokens")) or 0,
        whole(fields.get("reasoning_output_tokens")),
    )
    known = usage.prompt + usage.output > 0 and max(usage.prompt, usage.output) <= MAX_TOKENS
    return usage if known else None


Vector = tuple[int, ...]


def vector_of(info: Record) -> Vector:
    """Return the whole breakdown of a token_count: what makes it the same event when copied."""
    total = table(info.get("total_token_usage"))
    names = (
        "input_tokens",
        "cached_input_tokens",
        "cache_write_input_tokens",
        "output_tokens",
        "reasoning_output_tokens",
        "total_tokens",
    )
    return tuple(whole(total.get(name)) or 0 for name in names)


@dataclass(frozen=True, slots=True)
class Meta:
    """What the first session_meta of a file says of its thread."""

    thread: str
    version: tuple[int, int] | None = None
    cli_version: str | None = None
    agent: str = "codex"
    parent: str | None = None
    forked_from: str | None = None
    base_text: str | None = None
    paginated: bool = False
    base_thread: str | None = None
    base_ordinal: int = 0
    own_from_ordinal: int = 0
    dynamic_tools: bytes = b""
    child: bool = False
    stamp_us: int | None = None


def meta_of(payload: Record, path: Path, record_time: object = None) -> Meta:
    """Return the Meta of a session_meta payload, or of the first line of a file of bare items."""
    thread = text(payload.get("id")) or thread_of_name(path)
    source = table(payload.get("source"))
    spawn = table(table(source.get("subagent")).get("thread_spawn"))
    session = text(payload.get("session_id"))
    agent = _agent(payload, spawn)
    parent = text(payload.get("parent_thread_id")) or text(spawn.get("parent_thread_id"))
    if parent is None and agent != "codex" and session != thread:
        parent = session
    base = table(payload.get("history_base"))
    dynamic = payload.get("dynamic_tools")
    return Meta(
        thread=thread,
        version=version_of(payload.get("cli_version")),
        cli_version=text(payload.get("cli_version")),
        agent=agent,
        parent=parent,
        forked_from=text(payload.get("forked_from_id")) or text(base.get("thread_id")),
        base_text=text(table(payload.get("base_instructions")).get("text")),
        paginated=payload.get("history_mode") == "paginated",
        base_thread=text(base.get("thread_id")),
        base_ordinal=whole(base.get("end_ordinal_exclusive")) or 0,
        own_from_ordinal=whole(payload.get("subagent_history_start_ordinal")) or 0,
        dynamic_tools=msgspec.json.encode(dynamic) if dynamic else b"",
        child=parent is not None or "subagent" in (payload.get("thread_source"), *source),
        stamp_us=stamp(payload.get("timestamp")) or stamp(record_time),
    )


def _agent(payload: Record, spawn: Record) -> str:
    source = table(payload.get("source")).get("subagent")
    if source is None:
        kind = text(payload.get("thread_source"))
        return "codex" if kind in (None, "user") else f"codex:{_role(payload, spawn) or kind}"
    kind = text(source) or text(table(source).get("other"))
    return f"codex:{_role(payload, spawn) or kind or 'subagent'}"


def _role(payload: Record, spawn: Record) -> str | None:
    return text(payload.get("agent_role")) or text(spawn.get("agent_role"))


def thread_of_name(path: Path) -> str:
    """Return the thread id in a rollout's file name, or the name without its endings."""
    found = _UUID.findall(path.name)
    return found[-1].lower() if found else path.name.split(".")[0]
