"""LMCache's two host tiers that are no LRU stack, replayed per capacity.

Its server with exact evictions is the plain stack: `lru.stack_hits`. Hits are of the lookup: the
whole prompt from its head, resident on the GPU or not, without a cap for the last token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.stream import check_capacities, each_capacity
from agentkv_trace.tiers.use import HostUse

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.stream import CallStream

WATERMARK = 0.8
EVICTED_SHARE = 0.2


def in_process_hits(stream: CallStream, capacities: ArrayLike) -> NDArray[np.int32]:
    """Replay the in-process backend; return hits in chunks, int32[k, calls].

    Hits move to the recent end tail first, but new chunks are added head first, so a prompt loses
    its head before its tail, which then takes space and cannot be reached. A store makes room for
    every chunk that did not hit, even where it turns out to be resident behind a missing one.
    capacities: chunks, at least the longest path; InputError otherwise.
    """
    longest = int(np.diff(stream.offsets).max(initial=1))
    sizes = check_capacities(capacities, longest)
    return in_process_use(stream, sizes).hits


def in_process_use(stream: CallStream, capacities: ArrayLike) -> HostUse:
    """Replay the in-process backend as `in_process_hits`, with its writes and evictions.

    Smaller tiers are allowed: of a prompt that does not fit, the first chunks are stored.
    """
    sizes = check_capacities(capacities)

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        _in_process(stream.ids, stream.offsets, stream.unique, capacity, out)

    return HostUse.of(each_capacity(simulate, sizes, 3, stream.calls))


def server_hits(
    stream: CallStream,
    capacities: ArrayLike,
    watermark: float = WATERMARK,
    evicted_share: float = EVICTED_SHARE,
) -> NDArray[np.int32]:
    """Replay the server with its watermark; return hits in chunks, int32[k, calls].

    After each call, a tier filled to `watermark` of its capacity drops `evicted_share` of its
    chunks, least recent first; the shipped server looks once a second instead. New chunks that
    do not all fit are not stored at all. capacities: chunks, 1 or more. Raises InputError.
    """
    return server_use(stream, capacities, watermark, evicted_share).hits


def server_use(
    stream: CallStream,
    capacities: ArrayLike,
    watermark: float = WATERMARK,
    evicted_share: float = EVICTED_SHARE,
) -> HostUse:
    """Replay the server as `server_hits`, with its writes and evictions."""
    if not 0 < watermark <= 1 or not 0 < evicted_share <= 1:
        raise InputError(
            f"a watermark of {watermark} that evicts a share of {evicted_share}: both are shares "
            "above 0 and at most 1"
        )
    sizes = check_capacities(capacities)

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        trigger = float(watermark) * capacity
        share = float(evicted_share)
        _server(stream.ids, stream.offsets, stream.unique, capacity, trigger, share, out)

    return HostUse.of(each_capacity(simulate, sizes, 3, stream.calls))


# Both kernels keep the LRU order as a ring of chunk ids, oldest first, whose gap is `unique`;
# before[chunk] is -1 where the chunk is not resident. reused[chunk] tells whether a lookup hit it
# since it was written. Rows of `out`: hits, written, evicted before reuse.


@kernel
def _in_process(ids, offsets, unique, capacity, out):  # type: ignore[no-untyped-def]
    reused = np.zeros(unique, np.bool_)
    after = np.full(unique + 1, -1, np.int32)
    before = np.full(unique + 1, -1, np.int32)
    after[unique] = before[unique] = unique
    resident = 0
    for call in range(len(offsets) - 1):
        start, end = offsets[call], offsets[call + 1]
        missing = start
        while missing < end and before[ids[missing]] >= 0:
            missing += 1
        for i in range(missing - 1, start - 1, -1):
            chunk = ids[i]
            reused[chunk] = True
            after[before[chunk]] = after[chunk]
            before[after[chunk]] = before[chunk]
            _append(after, before, chunk)
        stored = min(end - missing, capacity - (missing - start))
        while resident + stored > capacity:
            if not reused[_drop_oldest(after, before)]:
                out[2, call] += 1
            resident -= 1
        for i in range(missing, missing + stored):
            if before[ids[i]] < 0:
                reused[ids[i]] = False
                _append(after, before, ids[i])
                resident += 1
                out[1, call] += 1
        out[0, call] = missing - start


@kernel
def _server(ids, offsets, unique, capacity, trigger, share, out):  # type: ignore[no-untyped-def]
    reused = np.zeros(unique, np.bool_)
    after = np.full(unique + 1, -1, np.int32)
    before = np.full(unique + 1, -1, np.int32)
    after[unique] = before[unique] = unique
    resident = 0
    for call in range(len(offsets) - 1):
        start, end = offsets[call], offsets[call + 1]
        missing = start
        while missing < end and before[ids[missing]] >= 0:
            reused[ids[missing]] = True
            missing += 1
        out[0, call] = missing - start
        new = 0
        for i in range(missing, end):
            if before[ids[i]] < 0:
                new += 1
        stored = resident + new <= capacity
        if stored:
            resident += new
            out[1, call] = new
        for i in range(end - 1, start - 1, -1):
            chunk = ids[i]
            if before[chunk] >= 0:
                after[before[chunk]] = after[chunk]
                before[after[chunk]] = before[chunk]
                _append(after, before, chunk)
            elif stored:
                reused[chunk] = False
                _append(after, before, chunk)
        if resident >= trigger:
            for _ in range(int(share * resident)):
                if not reused[_drop_oldest(after, before)]:
                    out[2, call] += 1
                resident -= 1


@kernel
def _append(after, before, chunk):  # type: ignore[no-untyped-def]
    """Put a chunk at the recent end of the ring."""
    gap = len(after) - 1
    last = before[gap]
    before[chunk] = last
    after[chunk] = gap
    after[last] = chunk
    before[gap] = chunk


@kernel
def _drop_oldest(after, before):  # type: ignore[no-untyped-def]
    gap = len(after) - 1
    oldest = after[gap]
    after[gap] = after[oldest]
    before[after[oldest]] = gap
    before[oldest] = -1
    return oldest
