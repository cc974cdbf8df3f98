"""Which token_count events tell of a response: most repeat what was told before."""

from __future__ import annotations

from typing import NamedTuple

from agentkv_trace.ingest.codex.records import Record, Usage, Vector, table, usage_of, vector_of


class News(NamedTuple):
    """What a token_count told: whether only what was known, and the usage if it counts."""

    repeats: bool
    usage: Usage | None = None
    restarted: bool = False


class Totals:
    """Follows the running totals of one file."""

    def __init__(self, paginated: bool) -> None:
        self.vector: Vector = ()
        self.has_records = False
        self._paginated = paginated

    def see(self, payload: Record, waiting: bool) -> News:
        """Take a token_count; `waiting` tells whether items are there whose usage is missing."""
        info = table(payload.get("info"))
        vector = vector_of(info)
        usage = usage_of(info.get("last_token_usage"))
        if usage is None or vector == self.vector:
            return News(repeats=True)
        before, self.vector = self.vector, vector
        # Usage records tell it all; and before the first of them, a paginated log gives usage
        # after the items only, all else repeats what a fork's parent used.
        if self.has_records or (self._paginated and not waiting):
            return News(repeats=False)
        return News(False, usage, restarted=bool(before) and vector[-1] < before[-1])
