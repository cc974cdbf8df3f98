"""What a trace says about who waits for whom: families of sessions, tool times, order.

A family is a session with all its sub-agents, and theirs. Inside it
* a call waits for the call of its session that had ended last when it began, in the log; calls of
  a session that overlap thus stay side by side;
* the first call of a sub-agent waits for the parent's call that had ended before it;
* the parent's next call also waits for a sub-agent that had ended before it.
The gap from the end of what it waits for to its start is kept as tool time.
"""

# ruff: noqa: TID253
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.trace.store import Trace

GAP_MEDIAN_S = 4.0
GAP_SIGMA = 1.0
"""Tool times of sessions whose log has no times are drawn from this lognormal: mean 6.6 s."""

MAX_GAP_S = 600.0
"""Longer pauses are no tool's: a person was away, or a clock jumped."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The calls of a trace as families.

    session, family: int32[calls], codes; families count by their first call. gap: float64[calls],
    seconds. edge_from, edge_to: int32[edges], calls and the calls that wait for them.
    drawn: calls whose gap was drawn; cut: gaps cut to the longest that is kept.
    """

    session: NDArray[np.int32]
    family: NDArray[np.int32]
    gap: NDArray[np.float64]
    edge_from: NDArray[np.int32]
    edge_to: NDArray[np.int32]
    drawn: int
    cut: int

    @property
    def families(self) -> int:
        """Return the number of families."""
        return int(self.family.max()) + 1 if self.family.size else 0


def sessions_of(
    trace: Trace,
    *,
    seed: int = 0,
    max_gap_s: float = MAX_GAP_S,
    gap_median_s: float = GAP_MEDIAN_S,
) -> Sessions:
    """Read who waits for whom, and for how long, from a trace. O(calls log calls)."""
    session = np.require(trace.codes("session")[0], np.int32, ["C", "W"])
    parent = _parents(trace)
    start = np.require(trace.array("t_start_us"), np.int64, ["C", "W"])
    end = np.require(trace.array("t_end_us"), np.int64, ["C", "W"])
    order = np.lexsort((start, session)).astype(np.int64)
    first = np.searchsorted(session[order], np.arange(parent.size + 1)).astype(np.int64)
    by_end = np.lexsort((start, end, session)).astype(np.int64)
    before = _before(order, by_end, first, start, end)
    froms, tos = [before[before >= 0]], [np.flatnonzero(before >= 0)]
    for child in np.flatnonzero(parent >= 0):
        mine = order[first[child] : first[child + 1]]
        theirs = order[first[parent[child]] : first[parent[child] + 1]]
        if not mine.size or not theirs.size:
            continue
        ended = theirs[end[theirs] <= start[mine[0]]]
        above = ended[-1] if ended.size else theirs[0]
        roots = mine[before[mine] < 0]
        froms.append(np.full(roots.size, above))
        tos.append(roots)
        last = mine[np.argmax(end[mine])]
        later = theirs[int(np.flatnonzero(theirs == above)[0]) + 1 :]
        later = later[start[later] >= end[last]]
        if later.size:
            froms.append(np.array([last]))
            tos.append(later[:1])
    edge_from = np.concatenate(froms).astype(np.int32)
    edge_to = np.concatenate(tos).astype(np.int32)
    ready = np.full(start.size, np.iinfo(np.int64).min)
    np.maximum.at(ready, edge_to, end[edge_from])
    family = _families(session, parent)
    # A call that waits for none begins as long after its family as it did.
    opening = np.full(family.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(opening, family, start)
    alone = np.ones(start.size, np.bool_)
    alone[edge_to] = False
    ready = np.where(alone, opening[family], ready)
    gap = np.maximum(start - ready, 0) / 1e6
    time_source, names = trace.codes("time_source")
    untimed = np.isin(time_source, [i for i, name in enumerate(names) if name == "order_only"])
    untimed &= ~alone
    draw = np.random.default_rng([seed, 1]).lognormal(np.log(gap_median_s), GAP_SIGMA, start.size)
    gap = np.where(untimed, draw, gap)
    cut = gap > max_gap_s
    gap = np.minimum(gap, max_gap_s)
    return Sessions(session, family, gap, edge_from, edge_to, int(untimed.sum()), int(cut.sum()))


def _parents(trace: Trace) -> NDArray[np.int64]:
    """Return the parent of each session, -1 for none or one that is not in the trace."""
    codes, names = trace.codes("session")
    above, parent_names = trace.codes("parent_session")
    number = {name: code for code, name in enumerate(names)}
    parent = np.full(len(names), -1, np.int64)
    known = np.array([number.get(name, -1) for name in parent_names] + [-1], np.int64)
    parent[codes] = known[above]
    parent[parent == np.arange(parent.size)] = -1
    for code in range(parent.size):
        # Sessions that name each other as parent are nobody's.
        seen = {code}
        at = parent[code]
        while at >= 0 and at not in seen:
            seen.add(int(at))
            at = parent[at]
        if at >= 0:
            parent[code] = -1
    return parent


@kernel
def _before(order, by_end, first, start, end):  # type: ignore[no-untyped-def]
    """Return the call of its session that had ended last when each one began (-1: none)."""
    before = np.full(start.size, -1, np.int64)
    place = np.empty(start.size, np.int64)
    for at in range(order.size):
        place[order[at]] = at
    for session in range(first.size - 1):
        ended = first[session]
        for at in range(first[session], first[session + 1]):
            call = order[at]
            # Of calls without length at one time, each waits for the one before it.
            while end[by_end[ended]] <= start[call] and place[by_end[ended]] < at:
                ended += 1
            if ended > first[session]:
                before[call] = by_end[ended - 1]
    return before


def _families(
    session: NDArray[np.int32],
    parent: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return the family of each call: its session's outermost parent, numbered as they begin."""
    root = np.arange(parent.size)
    for code in range(parent.size):
        at = code
        while parent[at] >= 0:
            at = parent[at]
        root[code] = at
    of_call = root[session]
    _, first, inverse = np.unique(of_call, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[inverse].astype(np.int32)
