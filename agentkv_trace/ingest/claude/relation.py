"""The provider's own record of reuse: what a call reads is what the call before had cached."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.ingest.claude.records import Usage

AGREES = "as predicted"
COMPACTED = "lower after a compaction"
NEW_HEAD = "lower with a new head"
WIDE = "lower after a wide turn"
EXPIRED = "lower after a pause"
HIGHER = "higher, by a request that is in no log"
LOWER = "lower without a known cause"

LOOK_BACK = 20
"""Blocks before a marker that a provider searches for an earlier one."""
LIFE_US = (5 * 60 * 1_000_000, 60 * 60 * 1_000_000)
"""How long a cached prefix lives: five minutes, or an hour where that was asked for."""


def relation(
    before: Usage,
    after: Usage,
    *,
    compacted: bool = False,
    new_head: bool = False,
    blocks: int = 0,
    pause_us: int = 0,
) -> str:
    """Say how a call's cache read fits `read + written` of the call before it.

    The rebuilt prefix says that they are equal: a prompt resends all of the one before. `blocks`
    is how many blocks the later prompt adds, `pause_us` how long after the other it was sent.
    """
    expected = before.read + before.written
    if after.read == expected:
        return AGREES
    if after.read > expected:
        return HIGHER
    if compacted:
        return COMPACTED
    if new_head:
        return NEW_HEAD
    if blocks > LOOK_BACK:
        return WIDE
    return EXPIRED if pause_us > LIFE_US[before.hourly] else LOWER
