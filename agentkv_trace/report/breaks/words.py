"""The sentences and cells that the terminal and Markdown forms share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report.units import format_ratio, format_seconds, format_tokens

if TYPE_CHECKING:
    from agentkv_trace.report.breaks.model import CauseRow, Explanation

NO_LAYOUT = (
    "This trace has no layout, so breaks are told apart by model and kind of call alone: "
    "`agentkv-trace ingest --with-layout` tells parts and causes."
)
MEANING = (
    "Lost: what the session's last path could have given this prompt, less what it shares with "
    "any earlier call; whole chunks, in a cache without limit.",
    "A resumed session whose prefix had expired lost what its log says was no longer cached.",
)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 call` or `2 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def summary(found: Explanation) -> list[str]:
    """Return the first sentences."""
    share = found.reused_tokens / found.prompt_tokens if found.prompt_tokens else 0.0
    lines = [
        f"{counted(found.calls, 'call')} of {counted(found.sessions, 'session')}, "
        f"{format_tokens(found.prompt_tokens)} prompt tokens, {format_ratio(share)} of them sent "
        "before",
    ]
    if found.broken_calls:
        lines.append(
            f"{counted(found.broken_calls, 'call')} lost {format_tokens(found.lost_tokens)} tokens "
            f"({format_ratio(found.lost_share)} of all) that the call before them allows"
        )
    else:
        lines.append("No call lost anything that the call before it allows")
    if found.intact:
        lines.append(
            f"{counted(len(found.intact), 'call')} resumed a session, with the prefix intact"
        )
    return lines


def cause_facts(found: Explanation, cause: CauseRow) -> str:
    """Return how much a cause lost, and what that costs."""
    text = (
        f"{format_tokens(cause.lost_tokens)} tokens ({format_ratio(cause.lost_share)} of all), "
        f"{counted(cause.breaks, 'call')} of {counted(cause.sessions, 'session')}"
    )
    costs = [
        f"{format_seconds(seconds)} on {gpu.name if gpu.tp == 1 else f'{gpu.tp} x {gpu.name}'}"
        for gpu, seconds in zip(found.gpus, cause.cost_s, strict=True)
    ]
    return f"{text}; prefill of {', '.join(costs)}" if costs else text


def examples(cause: CauseRow) -> str:
    """Return the calls to look at."""
    return ", ".join(f"{ref.session} call {ref.index}" for ref in cause.examples)


def cells(found: Explanation) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the table of breaks."""
    titles = ["session", "call", "lost", "reused", "parts at", "what", "where"]
    titles[4:4] = [gpu.name for gpu in found.gpus]
    rows = []
    for one in found.breaks:
        row = [
            one.session,
            str(one.index),
            format_tokens(one.lost_tokens),
            format_tokens(one.reused_tokens),
            f"{one.token:,}",
            one.words,
            one.place,
        ]
        row[4:4] = [format_seconds(seconds) for seconds in one.cost_s]
        rows.append(row)
    return titles, rows
