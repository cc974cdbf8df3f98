"""When a call began and ended, from the stamps inside messages and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.opencode.records import id_ms, stamp, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.opencode.chat import Block
    from agentkv_trace.ingest.opencode.records import Message, Part, Version

_RESTAMPED = ((1, 14), (1, 15))
"""From the first to before the second version, a tool's start is stamped anew while it runs."""
_STRAYED_MS = 7 * 24 * 3600 * 1000
"""An id's time further off than this belongs to a copy or was set by hand."""


def span(
    message: Message, block: Block, before: Block | None, version: Version
) -> tuple[int, int, bool]:
    """Return start and end of a step in UTC microseconds, and whether both are logged.

    It starts with its message, or when the step before it in the message and its tools ended. It
    ends with its text, or when the last of its tools starts: what comes later is the tools' time.
    """
    start = message.created_ms
    exact = before is None
    if before is not None:
        start = max(
            [
                start,
                *_ends(message, before, version),
                *_tool_ends(before),
                *_stamps(message, before),
            ]
        )
    ends = list(_ends(message, block, version))
    if not ends:
        exact = False
        ends = list(_stamps(message, block))
    if not ends and message.completed_ms is not None:
        ends = [message.completed_ms]
    end = max([start, *ends])
    return start * 1000, end * 1000, exact


def _ends(message: Message, block: Block, version: Version) -> Iterator[int]:
    """Yield when texts ended and tools started: the last of it is the end of the stream."""
    restamped = _RESTAMPED[0] <= version < _RESTAMPED[1]
    for part in block.parts:
        if part.type != "tool":
            at_ms = stamp(table(part.data.get("time")).get("end"))
        elif restamped:
            at_ms = id_ms(part.id, message.created_ms)
        else:
            at_ms = stamp(table(part.state.get("time")).get("start"))
        if at_ms is not None:
            yield at_ms


def _tool_ends(block: Block) -> Iterator[int]:
    for part in block.parts:
        if (at_ms := stamp(table(part.state.get("time")).get("end"))) is not None:
            yield at_ms


def _stamps(message: Message, block: Block) -> Iterator[int]:
    """Yield when parts were begun, by their ids."""
    parts: list[Part] = [block.start] if block.start is not None else []
    for part in [*parts, *block.parts]:
        at_ms = id_ms(part.id, message.created_ms)
        if at_ms is not None and 0 <= at_ms - message.created_ms < _STRAYED_MS:
            yield at_ms
