"""The ideal tiers: one LRU stack for each, from the runs of the path engine.

Both tiers see every call and keep the most recent chunks, so the larger one holds all that the
smaller one holds (inclusive). Real engines come out at or below it. It costs O(runs + calls) per
size, whatever the number of chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.stream import check_capacities, each_capacity
from agentkv_trace.tiers.use import HostUse

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.engine.path_stack import Runs


def ideal_use(runs: Runs, capacities: ArrayLike) -> HostUse:
    """Return what an LRU tier hits, writes and evicts at each size, in chunks.

    runs: the path engine's, with sequential timing. capacities: chunks, 1 or more each.
    `HostUse.hits` are all hits of the tier, those that a smaller tier above has as well.
    Raises InputError for other timings and for capacities below 1.
    """
    rest = runs.refreshes
    if rest.last_touch is not None:
        raise InputError("the ideal tiers follow calls one after another: sequential timing only")
    at = rest.after + np.arange(len(rest.after))
    looked = np.ones(len(runs.call) + len(at), np.bool_)
    looked[at] = False

    def merged(lookups: NDArray[Any], refreshes: NDArray[Any]) -> NDArray[np.int64]:
        column = np.empty(len(looked), np.int64)
        column[looked], column[at] = lookups, refreshes
        return column

    names = ("call", "owner", "depth", "first_distance", "length")
    columns = [merged(getattr(runs, name), getattr(rest, name)) for name in names]
    path = np.require(rest.path_chunks, np.int64, ["C", "W"])

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        _tier(*columns, looked, path, capacity, out)

    return HostUse.of(each_capacity(simulate, check_capacities(capacities), 3, len(path)))


@kernel
def _tier(call, owner, depth, first, length, looked, path, capacity, out):  # type: ignore[no-untyped-def]
    """Fill the rows hits, written, evicted before reuse.

    What is resident of a call's path is [start, end): later calls take it from the head, evictions
    from the tail, the oldest call first. Its first `used` chunks were hit since they were written.
    """
    calls = len(path)
    start = np.zeros(calls, np.int64)
    end = np.zeros(calls, np.int64)
    used = np.zeros(calls, np.int64)
    row = 0
    oldest = 0
    resident = 0
    for this in range(calls):
        found = 0
        deepest = np.int64(0)
        while row < len(call) and call[row] == this:
            here = min(max(capacity - first[row] + 1, 0), length[row])
            top = depth[row] + here
            found += here
            if looked[row]:
                out[0, this] += here
            else:
                # A touch without a lookup: used only as far as the last owner's was.
                top = min(top, used[owner[row]])
            if top > depth[row]:
                deepest = max(deepest, top)
            start[owner[row]] = depth[row] + length[row]
            row += 1
        used[this] = deepest
        end[this] = path[this]
        out[1, this] = path[this] - found
        resident += path[this] - found
        while resident > capacity:
            left = end[oldest] - start[oldest]
            if left <= 0:
                oldest += 1
                continue
            gone = min(left, resident - capacity)
            end[oldest] -= gone
            resident -= gone
            out[2, this] += min(gone, max(end[oldest] + gone - max(used[oldest], end[oldest]), 0))
