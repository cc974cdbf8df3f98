"""vLLM's simple CPU offloading: a second block pool in host memory. One call at a time.

Written from the rules of vLLM's scheduler-side manager; not compared with recorded hits of it.

Eager: all full chunks of a call that the host lacks are stored, GPU hits included; what it has is
not refreshed by that. A chunk that is loaded becomes recent. Both are put down head first, so a
prompt's head leaves before its tail.

Lazy: a chunk is stored as it leaves the GPU (the engine does it a little earlier, up to twice
`max_num_batched_tokens` tokens ahead), so the host holds mostly what the GPU does not. A loaded
chunk stays in host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.tiers.stream import check_capacities, each_capacity
from agentkv_trace.tiers.vllm import pool_hits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.stream import CallStream


def eager_use(stream: CallStream, gpu_capacity: int, capacities: ArrayLike) -> NDArray[np.int32]:
    """Replay the eager mode; return int32[k, 4, calls].

    Rows: GPU hits, restored, written, evicted before reuse, in chunks. gpu_capacity: usable
    blocks, at least what the largest call occupies; capacities: chunks of host, 1 or more.
    Raises InputError for numbers outside.
    """
    sizes = check_capacities(capacities)
    gpu = pool_hits(stream, [gpu_capacity])[0]
    most = np.maximum(stream.prompt_tokens - 1, 0) // stream.chunk_tokens

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        _eager(stream.ids, stream.offsets, most, gpu, stream.unique, capacity, out)

    return each_capacity(simulate, sizes, 4, stream.calls)


def lazy_use(stream: CallStream, gpu_capacity: int, capacities: ArrayLike) -> NDArray[np.int32]:
    """Replay the lazy mode; arguments and result as for `eager_use`."""
    sizes = check_capacities(capacities)
    (pool,) = check_capacities([gpu_capacity], stream.largest_call)
    most = np.maximum(stream.prompt_tokens - 1, 0) // stream.chunk_tokens
    slots = -(-stream.prompt_tokens // stream.chunk_tokens)

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        _lazy(stream.ids, stream.offsets, most, slots, stream.unique, int(pool), capacity, out)

    return each_capacity(simulate, sizes, 4, stream.calls)


# after, before: a ring of chunk ids, oldest first, whose gap is `unique`; before[chunk] is -1 where
# the chunk is not resident. reused[chunk]: a lookup met it in host memory since it was written.


@kernel
def _eager(ids, offsets, most, gpu, unique, capacity, out):  # type: ignore[no-untyped-def]
    after = np.full(unique + 1, -1, np.int32)
    before = np.full(unique + 1, -1, np.int32)
    after[unique] = before[unique] = unique
    reused = np.zeros(unique, np.bool_)
    resident = 0
    for call in range(len(offsets) - 1):
        start, end = offsets[call], offsets[call + 1]
        hit = np.int64(gpu[call])
        while hit < most[call] and before[ids[start + hit]] >= 0:
            _unlink(after, before, ids[start + hit])
            _append(after, before, ids[start + hit])
            hit += 1
        out[0, call] = gpu[call]
        out[1, call] = hit - gpu[call]
        for i in range(start, start + hit):
            reused[ids[i]] = True
        new = 0
        for i in range(start, end):
            if before[ids[i]] < 0:
                new += 1
        new = min(new, capacity)
        stored = 0
        # What to store is settled before room is made, which may take chunks of this call.
        mark = np.empty(new, np.int32)
        for i in range(start, end):
            if stored < new and before[ids[i]] < 0:
                mark[stored] = ids[i]
                stored += 1
        while resident + new > capacity:
            if not reused[_drop_oldest(after, before)]:
                out[3, call] += 1
            resident -= 1
        for i in range(new):
            reused[mark[i]] = False
            _append(after, before, mark[i])
        resident += new
        out[2, call] = new


@kernel
def _lazy(ids, offsets, most, slots, unique, pool, capacity, out):  # type: ignore[no-untyped-def]
    on_after = np.full(unique + 1, -1, np.int32)
    on_before = np.full(unique + 1, -1, np.int32)
    on_after[unique] = on_before[unique] = unique
    after = np.full(unique + 1, -1, np.int32)
    before = np.full(unique + 1, -1, np.int32)
    after[unique] = before[unique] = unique
    reused = np.zeros(unique, np.bool_)
    used = 0
    resident = 0
    for call in range(len(offsets) - 1):
        start, end = offsets[call], offsets[call + 1]
        gpu = np.int64(0)
        while gpu < most[call] and on_before[ids[start + gpu]] >= 0:
            gpu += 1
        hit = gpu
        while hit < most[call] and before[ids[start + hit]] >= 0:
            _unlink(after, before, ids[start + hit])
            _append(after, before, ids[start + hit])
            hit += 1
        out[0, call] = gpu
        out[1, call] = hit - gpu
        for i in range(start, start + hit):
            reused[ids[i]] = True
        # The call's own blocks are in use: they are not evicted for it.
        for i in range(start, end):
            if on_before[ids[i]] >= 0:
                _unlink(on_after, on_before, ids[i])
                on_before[ids[i]] = -1
                used -= 1
        while used + slots[call] > pool:
            chunk = _drop_oldest(on_after, on_before)
            used -= 1
            if before[chunk] < 0:
                if resident == capacity:
                    if not reused[_drop_oldest(after, before)]:
                        out[3, call] += 1
                    resident -= 1
                reused[chunk] = False
                _append(after, before, chunk)
                resident += 1
                out[2, call] += 1
        for i in range(end - 1, start - 1, -1):
            _append(on_after, on_before, ids[i])
        used += end - start


@kernel
def _unlink(after, before, chunk):  # type: ignore[no-untyped-def]
    after[before[chunk]] = after[chunk]
    before[after[chunk]] = before[chunk]


@kernel
def _append(after, before, chunk):  # type: ignore[no-untyped-def]
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
