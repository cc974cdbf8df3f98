"""What a step used, whatever the version's way to count it."""

from __future__ import annotations

from typing import NamedTuple

from agentkv_trace.ingest.opencode.records import Version, table, whole

_EXCLUSIVE = (1, 3)
"""From this version on, output tokens leave reasoning out; counts with a total tell themselves."""
_MOST = 1 << 28
"""No prompt has as many tokens."""


class Usage(NamedTuple):
    """Tokens of one call; `prompt` includes cached ones, `output` includes reasoning."""

    prompt: int
    cached: int
    output: int
    reasoning: int


def usage_of(tokens: object, version: Version) -> Usage | None:
    """Return the usage in a `tokens` object; None where nothing was counted."""
    data = table(tokens)
    cache = table(data.get("cache"))
    read, written = _count(cache.get("read")), _count(cache.get("write"))
    prompt = _count(data.get("input")) + read + written
    output, reasoning = _count(data.get("output")), _count(data.get("reasoning"))
    if not prompt and not output and not reasoning:
        return None
    total = whole(data.get("total"))
    if total == prompt + output + reasoning:
        inclusive = False
    elif total is not None and total in (prompt + output, prompt - written + output):
        inclusive = True
    else:
        inclusive = version < _EXCLUSIVE
    if not inclusive:
        output += reasoning
    return Usage(prompt, read, output, min(reasoning, output))


def _count(value: object) -> int:
    count = whole(value) or 0
    return count if 0 <= count < _MOST else 0
