"""What stands before the first message: tools, system prompt and context, which no log holds.

A head is the same for others only as far as the provider itself says so: a first call that reads
from the cache shares that many tokens with an earlier head of the same version, model and agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.trace.call import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BEFORE_SNAPSHOT = 1400
"""Tokens of the system prompt from the marker before its last part to what changes in that part.

A new process in the same folder writes its snapshot of the repository anew, at the end of the
system prompt; the provider can only tell that the whole part was not read.
"""
CONTEXT_TOKENS = 120
"""Tokens of the context (date, memory files) behind the system prompt, at the least."""

LEAST_CACHED = 1024
"""The shortest prefix that providers cache: nothing read means that less than it was shared."""
_AT_ONCE, _SOON_US = 64, 10_000_000
"""Sessions that begin at the same time: how many, and within which time."""


@dataclass(slots=True, eq=False)
class Epoch:
    """Calls with one head, from `first`, the id of its first response, on.

    `read` is what that response read from the cache, `size` how long the head is, in tokens.
    """

    first: str
    group: tuple[str, ...]
    """Version, model and agent: heads of other groups share nothing."""
    folder: str
    start_us: int
    read: int
    size: int
    before: Epoch | None = None
    """The epoch that this one follows in its session."""
    donor: Epoch | None = None
    depth: int = 0
    _cuts: set[int] = field(default_factory=set)
    _ends: dict[int, Node] = field(default_factory=dict)

    def node(self) -> Node:
        """Return the node that ends the head."""
        return self._end(self.size)

    def _end(self, depth: int) -> Node:
        """Return the node that ends the first `depth` tokens, one of the cuts."""
        if self.donor is not None and depth <= self.depth:
            return self.donor._end(depth)
        if depth in self._ends:
            return self._ends[depth]
        start = self.depth if self.donor is not None else 0
        for cut in (*sorted(cut for cut in self._cuts if start < cut < depth), depth):
            if cut not in self._ends:
                self._ends[cut] = self._piece(start, cut)
            start = cut
        return self._ends[depth]

    def _piece(self, start: int, end: int) -> Node:
        """Return the node that ends the tokens from one cut to the next."""
        if start == 0:
            return Node.head("claude", *self.group, self.first, typical_tokens=end)
        identity = b"head\0%s\0%d" % (self.first.encode(), start)
        before = self._ends.get(start)
        return (before or self._end(start)).opaque(identity, end - start)

    def attach(self, donor: Epoch, depth: int) -> None:
        """Share the first `depth` tokens with another head."""
        depth = min(depth, donor.size, self.size)
        while donor.donor is not None and depth <= donor.depth:
            donor = donor.donor
        if depth > 0:
            self.donor, self.depth = donor, depth
            donor._cuts.add(depth)


def link(epochs: Iterable[Epoch]) -> None:
    """Find out from whom each head's first call read, in order of time."""
    groups: dict[tuple[str, ...], list[Epoch]] = {}
    ordered = sorted(epochs, key=lambda one: (one.start_us, one.first))
    for epoch in ordered:
        groups.setdefault(epoch.group, []).append(epoch)
    for group in groups.values():
        latest: dict[str, Epoch] = {}
        for at, epoch in enumerate(group):
            donor, depth = _donor(epoch, group, at, latest)
            if donor is not None:
                epoch.attach(donor, depth)
            latest[epoch.folder] = epoch


def _donor(
    epoch: Epoch, group: Sequence[Epoch], at: int, latest: Mapping[str, Epoch]
) -> tuple[Epoch | None, int]:
    """Return from whom an epoch read and how much; `latest` are those before it, by folder."""
    before = epoch.before
    if not epoch.read:
        same_kind = before is not None and before.group == epoch.group
        return (before, LEAST_CACHED // 2) if same_kind else (None, 0)
    if before is not None and before.group == epoch.group:
        least = before.size - CONTEXT_TOKENS
        return before, max(epoch.read, min(epoch.read + BEFORE_SNAPSHOT, least))
    if epoch.folder in latest:
        return latest[epoch.folder], epoch.read
    # Of sessions that began at once, the first answered is not always the first sent.
    soon = epoch.start_us + _SOON_US
    later = group[at + 1 : at + 1 + _AT_ONCE]
    beside = [one for one in later if not one.read and one.start_us <= soon]
    same = [one for one in beside if one.folder == epoch.folder]
    nearest = [*same, *group[max(at - 1, 0) : at], *beside]
    return (nearest[0] if nearest else None), epoch.read
