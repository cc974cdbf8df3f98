"""The plain LRU stack: hits of every call at every capacity from one pass.

Exact for LMCache's server as long as it evicts just what it needs (`lmcache.py` has its
watermark). `vllm.py` turns the same runs into vLLM's block pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.tiers.stream import check_capacities

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.stream import CallStream


class RunTable(Protocol):
    """What the functions here read of a table of runs: of `Runs`, or of the path engine's."""

    @property
    def call(self) -> NDArray[np.integer[Any]]:
        """Return the calls that look up, ascending."""

    @property
    def owner(self) -> NDArray[np.integer[Any]]:
        """Return the calls that touched the runs last."""

    @property
    def first_distance(self) -> NDArray[np.integer[Any]]:
        """Return the stack distances of the runs' first chunks."""

    @property
    def length(self) -> NDArray[np.integer[Any]]:
        """Return the numbers of chunks."""


@dataclass(frozen=True)
class Runs:
    """Runs of chunks with consecutive stack distances; one row each, five equal columns.

    In call `call` the `length` chunks from depth `depth` on (0 is the head) were last touched by
    call `owner` and have the distances `first_distance`, `first_distance` + 1, ... Chunks in no
    run are cold. int64[runs] each, calls ascending.
    """

    call: NDArray[np.int64]
    owner: NDArray[np.int64]
    depth: NDArray[np.int64]
    first_distance: NDArray[np.int64]
    length: NDArray[np.int64]


def stack_runs(stream: CallStream) -> Runs:
    """Return the stack distances of all chunk references as runs.

    A call touches its chunks tail first, head last. O(references + runs log calls), and there are
    at most two runs per call.
    """
    table = np.empty((5, 2 * stream.calls), dtype=np.int64)
    count = _runs(stream.ids, stream.offsets, stream.unique, table)
    return Runs(*(table[column, :count].copy() for column in range(5)))


def hits_at(
    runs: RunTable, needed: ArrayLike, calls: int, capacities: ArrayLike
) -> NDArray[np.int32]:
    """Return each call's hit in chunks at each capacity, int32[k, calls].

    needed: integers[runs], the capacity in chunks that the first chunk of each run needs to hit
        (`runs.first_distance` for the plain stack); each further chunk needs one more.
    capacities: k integers in chunks, 1 or more. Raises InputError otherwise.
    """
    sizes = check_capacities(capacities)
    out = np.zeros((len(sizes), calls), dtype=np.int32)
    first = np.require(needed, np.int64, ["C", "W"])
    call = np.require(runs.call, np.int64, ["C", "W"])
    length = np.require(runs.length, np.int64, ["C", "W"])
    _hits_at(call, first, length, sizes, out)
    return out


def stack_hits(stream: CallStream, capacities: ArrayLike) -> NDArray[np.int32]:
    """Return each call's hit in chunks in a plain LRU tier, int32[k, calls].

    This is LMCache's server where every eviction frees just the shortfall. capacities as in
    `hits_at`: a curve may go below the largest call, though no engine would run it.
    """
    runs = stack_runs(stream)
    return hits_at(runs, runs.first_distance, stream.calls, capacities)


@kernel
def _runs(ids, offsets, unique, table):  # type: ignore[no-untyped-def]
    """Fill the rows call, owner, depth, first distance, length; return the number of runs.

    What no later call has touched of a call's path is one suffix of it, so chunks of one owner
    are neighbours, and the stack is the list of these suffixes, latest call first.
    """
    calls = len(offsets) - 1
    owner = np.full(unique, -1, np.int64)
    left = np.zeros(calls + 1, np.int64)  # Fenwick tree: chunks each call still owns
    total = 0
    count = 0
    for call in range(calls):
        start, end = offsets[call], offsets[call + 1]
        before = count
        i = start
        while i < end and owner[ids[i]] >= 0:
            last = owner[ids[i]]
            begin = i
            while i < end and owner[ids[i]] == last:
                owner[ids[i]] = call
                i += 1
            older = 0
            k = last + 1
            while k > 0:
                older += left[k]
                k -= k & -k
            table[0, count] = call
            table[1, count] = last
            table[2, count] = begin - start
            table[3, count] = total - older + 1
            table[4, count] = i - begin
            count += 1
        while i < end:
            owner[ids[i]] = call
            i += 1
        for run in range(before, count):
            total -= table[4, run]
            k = table[1, run] + 1
            while k <= calls:
                left[k] -= table[4, run]
                k += k & -k
        total += end - start
        k = call + 1
        while k <= calls:
            left[k] += end - start
            k += k & -k
    return count


@kernel
def _hits_at(call, needed, length, capacities, out):  # type: ignore[no-untyped-def]
    for row in range(len(capacities)):
        for run in range(len(call)):
            hit = capacities[row] - needed[run] + 1
            if hit > 0:
                out[row, call[run]] += min(hit, length[run])
