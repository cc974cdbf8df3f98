"""An explanation for the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from agentkv_trace.report.breaks import words
from agentkv_trace.report.units import format_seconds, format_tokens

if TYPE_CHECKING:
    from agentkv_trace.report.breaks.model import BreakRow, Explanation

MIN_WIDTH = 40
"""Narrower terminals get lines of this width."""


def render(found: Explanation, *, width: int = 80, show_breaks: int = 20) -> str:
    """Return the explanation as text of `width` columns, with at most so many single breaks."""
    width = max(width, MIN_WIDTH)
    lines: list[str] = []
    for sentence in words.summary(found):
        lines += _wrapped(sentence, width)
    if not found.layout:
        lines += ["", *_wrapped(words.NO_LAYOUT, width)]
    if found.causes:
        lines += ["", "Causes, most tokens lost first"]
    for number, cause in enumerate(found.causes, start=1):
        lines += _wrapped(f"{number}. {cause.words}", width)
        lines += _wrapped(words.cause_facts(found, cause), width, "   ")
        if cause.fix:
            lines += _wrapped(f"do: {cause.fix}", width, "   ")
        lines += _wrapped(f"see: {words.examples(cause)}", width, "   ")
    if found.breaks:
        lines += ["", *_wrapped(_title(found, show_breaks), width)]
    for one in _largest(found, show_breaks):
        lines += _wrapped(_break(found, one), width)
    if found.breaks:
        lines.append("")
        for sentence in words.MEANING:
            lines += _wrapped(f"- {sentence}", width)
    return "\n".join(lines) + "\n"


def _largest(found: Explanation, limit: int) -> list[BreakRow]:
    chosen = sorted(found.breaks, key=lambda one: -one.lost_tokens)[:limit]
    return sorted(chosen, key=lambda one: (one.session, one.index))


def _title(found: Explanation, limit: int) -> str:
    shown = min(limit, len(found.breaks))
    if shown == found.broken_calls:
        return "Calls"
    return f"The {shown} of {words.counted(found.broken_calls, 'call')} that lost most"


def _break(found: Explanation, one: BreakRow) -> str:
    where = f" in {one.place}" if one.place else ""
    costs = "".join(
        f", {format_seconds(seconds)} on {gpu.name}"
        for gpu, seconds in zip(found.gpus, one.cost_s, strict=True)
    )
    waited = f", {format_seconds(one.waited_s)} after the call before" if one.waited_s >= 60 else ""
    return (
        f"{one.session} call {one.index}: {one.words}; parts at token {one.token:,} (chunk "
        f"{one.chunk:,}){where}; {format_tokens(one.lost_tokens)} tokens lost, "
        f"{format_tokens(one.reused_tokens)} reused{costs}{waited}"
    )


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
    )
