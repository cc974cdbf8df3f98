"""Which records of a file are copies of its parent's: told by lineage, never by time.

A fork or sub-agent of the older kind begins with its parent's records, stamped anew. Their
items are part of its prompts; their calls are the parent's and are not counted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import Meta, Vector, uuid_ms

if TYPE_CHECKING:
    from collections.abc import Callable


class Copies:
    """Follows one file from its copied part, if it has one, into its own."""

    def __init__(self, meta: Meta, vectors_of: Callable[[str, str], list[Vector]] | None) -> None:
        self.active = meta.own_from_ordinal > 0 or (
            meta.forked_from is not None and meta.base_thread is None
        )
        self.parent: str | None = None
        self._meta = meta
        self._vectors_of = vectors_of
        self._expected: list[Vector] | None = None
        self._matched = 0
        self._by_turn = False
        self._left = False
        made_ms = None if meta.stamp_us is None else meta.stamp_us // 1000
        self._made_ms = uuid_ms(meta.thread) or made_ms

    def see_meta(self, thread: str | None, calls: int) -> None:
        """Take a further session_meta: another thread's shows that the file begins with copies."""
        if thread is None or thread == self._meta.thread or calls or self._left:
            return
        self.parent = self.parent or thread
        self.active = True

    def see_ordinal(self, ordinal: int | None) -> bool:
        """Take a record's ordinal; return whether the own part begins here."""
        own_from = self._meta.own_from_ordinal
        return own_from > 0 and ordinal is not None and ordinal >= own_from and self._leave()

    def see_turn(self, turn_id: str | None) -> bool:
        """Take a turn's id, which keeps the time of its making; return whether it is an own one."""
        made = uuid_ms(turn_id)
        if made is None or self._made_ms is None or self._meta.own_from_ordinal:
            return False
        if made < self._made_ms:
            self._by_turn |= self.active
            return False
        return self._leave()

    def see_record(self, own: bool) -> bool:
        """Take the thread of a usage record; return whether the call is a copy."""
        if own and not self._meta.own_from_ordinal:
            self._leave()
        return self.active or not own

    def matches(self, vector: Vector) -> bool:
        """Take a token_count's breakdown; return whether the call is a copy."""
        if not self.active:
            return False
        if self._by_turn or self._meta.own_from_ordinal:
            return True
        if self._expected is None:
            parent = self.parent or self._meta.forked_from or self._meta.parent
            self._expected = (
                []
                if self._vectors_of is None
                else self._vectors_of(parent or "", self._meta.thread)
            )
        if self._expected[self._matched : self._matched + 1] == [vector]:
            self._matched += 1
            return True
        self._leave()
        return False

    def _leave(self) -> bool:
        left = self.active
        self.active = False
        self._left |= left
        return left
