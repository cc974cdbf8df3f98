"""SGLang's radix cache, replayed per capacity.

It evicts whole leaf nodes, least recent first, until enough is free, and its node boundaries
depend on earlier splits and evictions: no stack algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.tiers.stream import check_capacities, each_capacity

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.stream import CallStream


def radix_hits(stream: CallStream, capacities: ArrayLike) -> NDArray[np.int32]:
    """Replay the radix cache at each pool size; return hits in chunks, int32[k, calls].

    A chunk is a page. The last prompt token never matches. A match that ends inside a node makes
    the node's rest as recent as the call, then splits it. The prompt is inserted when the call
    ends; its partial tail takes a page until then.
    capacities: pages, at least what the largest call occupies; InputError otherwise.
    The cost per call is its number of nodes, whatever their length, times its logarithm.
    """
    sizes = check_capacities(capacities, stream.largest_call)
    most = np.maximum(stream.prompt_tokens - 1, 0) // stream.chunk_tokens
    slots = -(-stream.prompt_tokens // stream.chunk_tokens)

    def simulate(capacity: int, hits: NDArray[np.int32]) -> None:
        _radix(stream.ids, stream.offsets, most, slots, stream.unique, capacity, hits)

    return each_capacity(simulate, sizes, stream.calls)


# A chunk has one parent, so at most one node begins with it: nodes are named by their first
# chunk. length[node] is 0 where there is none; its chunks are ids[at[node] : at[node] + length].
#
# The LRU order is a ring of nodes, oldest first, whose gap is `unique`. Whatever touches a node
# touches its ancestors, which are put behind it here, so the oldest node is always a leaf: no
# list of leaves is needed. The nodes of a running call are the most recent, and its prompt fits
# the pool, so they are never reached, which is what locking them does in the engine.


@kernel
def _radix(ids, offsets, most, slots, unique, capacity, hits):  # type: ignore[no-untyped-def]
    length = np.zeros(unique, np.int32)
    at = np.zeros(unique, np.int64)
    after = np.full(unique + 1, -1, np.int32)
    before = np.full(unique + 1, -1, np.int32)
    after[unique] = before[unique] = unique
    path = np.empty(max(slots.max(), 1) if len(slots) else 1, np.int32)
    used = 0
    for call in range(len(offsets) - 1):
        start, end = offsets[call], offsets[call + 1]
        hit, nodes = _match(ids, start, start + most[call], length, at, after, before, path)
        _refresh(path, nodes, after, before)
        while used + slots[call] - hit > capacity:
            oldest = after[unique]
            used -= length[oldest]
            length[oldest] = 0
            _unlink(after, before, oldest)
        found, nodes = _match(ids, start, end, length, at, after, before, path)
        if start + found < end:
            leaf = ids[start + found]
            length[leaf] = end - start - found
            at[leaf] = start + found
            used += length[leaf]
            _append(after, before, leaf)
        _refresh(path, nodes, after, before)
        hits[call] = hit


@kernel
def _match(ids, start, end, length, at, after, before, path):  # type: ignore[no-untyped-def]
    """Walk ids[start:end] from the root, splitting the last node where it goes on.

    Writes the nodes met into `path`; returns the number of chunks matched and of nodes.
    """
    i = start
    nodes = 0
    while i < end and length[ids[i]] > 0:
        node = ids[i]
        source = at[node]
        # Equal chunks mean equal prefixes: search for the last equal one.
        same, differs = 1, min(np.int64(length[node]), end - i) + 1
        if ids[i + differs - 2] == ids[source + differs - 2]:
            same = differs - 1
        while differs - same > 1:
            middle = (same + differs) // 2
            if ids[i + middle - 1] == ids[source + middle - 1]:
                same = middle
            else:
                differs = middle
        path[nodes] = node
        nodes += 1
        i += same
        if same < length[node]:
            rest = ids[source + same]
            length[rest] = length[node] - same
            at[rest] = source + same
            length[node] = same
            _append(after, before, rest)
            break
    return i - start, nodes


@kernel
def _refresh(path, nodes, after, before):  # type: ignore[no-untyped-def]
    """Make the nodes of a path the most recent, the root's child last."""
    for i in range(nodes - 1, -1, -1):
        _unlink(after, before, path[i])
        _append(after, before, path[i])


@kernel
def _unlink(after, before, node):  # type: ignore[no-untyped-def]
    after[before[node]] = after[node]
    before[after[node]] = before[node]


@kernel
def _append(after, before, node):  # type: ignore[no-untyped-def]
    gap = len(after) - 1
    last = before[gap]
    before[node] = last
    after[node] = gap
    after[last] = node
    before[gap] = node
