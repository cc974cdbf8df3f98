"""Names of files and folders: what readers go by stays, all else is replaced."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.openhands.completions import NAME as COMPLETION

if TYPE_CHECKING:
    from agentkv_trace.ingest.scrub.cipher import Words

_WHOLE = re.compile(
    r"\d+(\.json|\.zst)?|sessions|archived_sessions|payloads|manifest\.json|trace\.jsonl"
    r"|storage|session|info|message|part|project"
    r"|events|subagents|completions|conversations|base_state\.json"
)
_PARTS = re.compile(
    r"(^rollout-(?:\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-)?|^trace-|^opencode(?=[.-])"
    r"|\.meta(?=\.json)|\.(?:jsonl|ndjson|json|traj|zst|gz|db)\b)"
)
_EVENT = re.compile(r"(event-\d{5,}-)([0-9a-fA-F-]{8,})(\.json)")


def replaced(name: str, words: Words) -> str:
    """Return the name that a file or folder has in a scrubbed log."""
    if _WHOLE.fullmatch(name) or COMPLETION.match(name):
        return name
    if event := _EVENT.fullmatch(name):
        return event[1] + words.ident(event[2].encode()).decode() + event[3]
    parts = _PARTS.split(name)
    parts[::2] = [_text(part, words) for part in parts[::2]]
    return "".join(parts)


def _text(part: str, words: Words) -> str:
    return words.text(part.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
