"""SGLang's hierarchical cache: the radix tree of `sglang.py` with copies in host memory.

Written from the engine's code; the tree on the GPU was compared with recorded hits, the host tier
was not. One call at a time, transfers complete at once.

Rules, beside those of the tree:
* A match goes on through nodes that only host memory holds; all of them are loaded or none.
* Write-through copies a node once it was inserted or met `threshold` times, from the root down:
  1 for `write_through`, 2 for `write_through_selective`. A node without a copy is lost when the
  GPU evicts it. Host memory frees only nodes that are not on the GPU: a tier not larger than
  the pool is filled by copies of what the GPU holds.
* `write_back` copies a node when the GPU evicts it. A loaded node keeps its copy until host
  memory needs the room; such copies go first.
* Host memory evicts whole nodes, least recent first, until what is needed has been freed on top
  of what was free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.stream import check_capacities, each_capacity

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.stream import CallStream

POLICIES = {"write_back": 0, "write_through": 1, "write_through_selective": 2}
"""How often a node must be met before it is copied; 0 copies on eviction."""


def hicache_use(
    stream: CallStream, gpu_capacity: int, capacities: ArrayLike, policy: str = "write_through"
) -> NDArray[np.int32]:
    """Replay the two tiers at each host size; return int32[k, 4, calls].

    Rows: GPU hits, restored, written, evicted before reuse, in chunks. gpu_capacity: pages, at
    least what the largest call occupies; capacities: pages of host, 1 or more; policy: a key of
    POLICIES. Raises InputError for what is outside.
    """
    if policy not in POLICIES:
        raise InputError(f"write policy {policy!r}: use one of {', '.join(POLICIES)}")
    sizes = check_capacities(capacities)
    (pool,) = check_capacities([gpu_capacity], stream.largest_call)
    most = np.maximum(stream.prompt_tokens - 1, 0) // stream.chunk_tokens
    slots = -(-stream.prompt_tokens // stream.chunk_tokens)
    threshold = POLICIES[policy]

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        ids, offsets = stream.ids, stream.offsets
        _replay(ids, offsets, most, slots, stream.unique, int(pool), capacity, threshold, out)

    return each_capacity(simulate, sizes, 4, stream.calls)


# Nodes are named by their first chunk, as in `sglang.py`; size[node] is 0 where there is none, and
# its chunks are ids[at[node] : at[node] + size]. Three rings of nodes, oldest first, whose gap is
# `unique`: on the GPU; in host memory only; on both (kept for write_back alone). A node's
# descendants are always older than it in a ring, so the oldest node is a leaf there. A node the GPU
# evicts goes into the ring of host memory by the time it was met, since the rest of a node that was
# split there may have been met later.
#
# state[node]: bit 0 on the GPU, bit 1 in host memory, bit 2 met by a lookup since it was written.

_GPU, _HOST, _MET = 1, 2, 4


@kernel
def _replay(ids, offsets, most, slots, unique, pool, capacity, threshold, out):  # type: ignore[no-untyped-def]
    size = np.zeros(unique, np.int32)
    at = np.zeros(unique, np.int64)
    state = np.zeros(unique, np.uint8)
    met = np.zeros(unique, np.int32)
    after = np.full((3, unique + 1), -1, np.int32)
    before = np.full((3, unique + 1), -1, np.int32)
    after[:, unique] = unique
    before[:, unique] = unique
    path = np.empty(max(slots.max(), 1) if len(slots) else 1, np.int32)
    room = np.array([pool, capacity], np.int64)
    time = np.zeros(unique + 1, np.int64)  # of the last match; the last entry is now
    for call in range(len(offsets) - 1):
        start, end = offsets[call], offsets[call + 1]
        stop = start + most[call]
        nodes = _match(ids, start, stop, size, at, state, met, after, before, path, time)
        gpu = 0
        restored = 0
        for i in range(nodes):
            node = path[i]
            if state[node] & _HOST:
                state[node] |= _MET
            if state[node] & _GPU:
                gpu += size[node]
            else:
                restored += size[node]
                _unlink(after[1], before[1], node)  # out of reach of evictions while it loads
        _make_room(restored, size, state, after, before, room, threshold, out, call, time)
        room[0] -= restored
        for i in range(nodes - 1, -1, -1):
            node = path[i]
            if state[node] & _GPU:
                _unlink(after[0], before[0], node)
            else:
                state[node] |= _GPU
                if threshold == 0:
                    _append(after[2], before[2], node)
            _append(after[0], before[0], node)
        out[0, call] = gpu
        out[1, call] = restored
        hit = gpu + restored
        _make_room(slots[call] - hit, size, state, after, before, room, threshold, out, call, time)
        _insert(
            ids,
            start,
            end,
            size,
            at,
            state,
            met,
            after,
            before,
            path,
            room,
            threshold,
            out,
            call,
            time,
        )


@kernel
def _insert(  # type: ignore[no-untyped-def]
    ids, start, end, size, at, state, met, after, before, path, room, threshold, out, call, time,
):  # fmt: skip
    """Put a call's path into the tree and copy to host what is due."""
    nodes = _match(ids, start, end, size, at, state, met, after, before, path, time)
    found = start
    for i in range(nodes):
        node = path[i]
        found += size[node]
        if state[node] & _GPU:
            met[node] += 1
        else:
            # It was computed again, so the tree takes the new copy.
            state[node] |= _GPU
            room[0] -= size[node]
            _unlink(after[1], before[1], node)
            _append(after[0], before[0], node)
            if threshold == 0:
                _append(after[2], before[2], node)
    if found < end:
        leaf = ids[found]
        size[leaf] = end - found
        at[leaf] = found
        state[leaf] = _GPU
        met[leaf] = 1
        room[0] -= size[leaf]
        _append(after[0], before[0], leaf)
        path[nodes] = leaf
        nodes += 1
    time[len(size)] += 1
    for i in range(nodes - 1, -1, -1):
        time[path[i]] = time[len(size)]
        _unlink(after[0], before[0], path[i])
        _append(after[0], before[0], path[i])
    if threshold > 0:
        for i in range(nodes):
            node = path[i]
            if state[node] & _HOST:
                continue
            if met[node] < threshold or not _copy(
                node, size, state, after, before, room, out, call
            ):
                break


@kernel
def _make_room(needed, size, state, after, before, room, threshold, out, call, time):  # type: ignore[no-untyped-def]
    """Evict from the GPU, least recent leaf first, until `needed` pages are free."""
    gap = len(size)
    while room[0] < needed and after[0, gap] != gap:
        node = after[0, gap]
        if threshold == 0:
            if state[node] & _HOST:
                _unlink(after[2], before[2], node)
            else:
                _copy(node, size, state, after, before, room, out, call)
        _unlink(after[0], before[0], node)
        room[0] += size[node]
        state[node] &= ~_GPU & 7
        if state[node] & _HOST:
            older = before[1, gap]
            while older != gap and time[older] > time[node]:
                older = before[1, older]
            newer = after[1, older]
            after[1, older] = before[1, newer] = node
            before[1, node], after[1, node] = older, newer
        else:
            size[node] = 0


@kernel
def _copy(node, size, state, after, before, room, out, call):  # type: ignore[no-untyped-def]
    """Copy a node to host memory; return whether there was room."""
    gap = len(size)
    if room[1] < size[node]:
        freed = 0
        while freed < size[node] and after[2, gap] != gap:
            other = after[2, gap]
            _unlink(after[2], before[2], other)
            state[other] &= _GPU
            freed += size[other]
        while freed < size[node] and after[1, gap] != gap:
            other = after[1, gap]
            _unlink(after[1], before[1], other)
            if not state[other] & _MET:
                out[3, call] += size[other]
            freed += size[other]
            size[other] = 0
            state[other] = 0
        room[1] += freed
    if room[1] < size[node]:
        return False
    room[1] -= size[node]
    state[node] = (state[node] | _HOST) & (7 - _MET)
    out[2, call] += size[node]
    return True


@kernel
def _match(ids, start, end, size, at, state, met, after, before, path, time):  # type: ignore[no-untyped-def]
    """Walk ids[start:end] from the root, splitting the last node where it goes on.

    The nodes met become the most recent of their rings, and so does the rest of a split one.
    Writes them into `path` and returns their number.
    """
    i = start
    nodes = 0
    gap = len(size)
    time[gap] += 1
    while i < end and size[ids[i]] > 0:
        node = ids[i]
        source = at[node]
        same = 1
        most = min(np.int64(size[node]), end - i)
        while same < most and ids[i + same] == ids[source + same]:
            same += 1
        path[nodes] = node
        nodes += 1
        i += same
        if same < size[node]:
            rest = ids[source + same]
            size[rest] = size[node] - same
            at[rest] = source + same
            size[node] = same
            state[rest] = state[node]
            met[rest] = met[node]
            time[rest] = time[gap]
            for ring in range(3):
                if before[ring, node] >= 0:
                    _append(after[ring], before[ring], rest)
            break
    for i in range(nodes - 1, -1, -1):
        node = path[i]
        time[node] = time[gap]
        for ring in range(2):
            if before[ring, node] >= 0:
                _unlink(after[ring], before[ring], node)
                _append(after[ring], before[ring], node)
    return nodes


@kernel
def _unlink(after, before, node):  # type: ignore[no-untyped-def]
    after[before[node]] = after[node]
    before[after[node]] = before[node]
    before[node] = -1


@kernel
def _append(after, before, node):  # type: ignore[no-untyped-def]
    gap = len(after) - 1
    last = before[gap]
    before[node] = last
    after[node] = gap
    after[last] = node
    before[gap] = node
