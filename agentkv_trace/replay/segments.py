"""What tiers hold, as segments: stretches of tracks that were touched together.

A tier keeps a doubly linked list of its segments in order of recency and, per track, another in
order of depth. Inside a segment the deeper chunk is the older one (or the newer one, where
HEAD_FIRST is set), so an eviction shortens a segment at one end. Calls that run hold the segments
of their paths: those leave the list of recency until nobody holds them. A touch of a whole path
costs a few segments, however many chunks they have.

All tiers share one table `seg`, int32[nodes, FIELDS]; node number t is the gap in tier t's ring.
"""

# ruff: noqa: TID253
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 (numba reads the annotations)

from agentkv_trace._jit import kernel
from agentkv_trace.replay.inner import inner

LO, HI, TRACK, OLDER, NEWER, UP, DOWN, HOLDS, USED, HEAD_FIRST = range(10)
FIELDS = 10
RESIDENT, IDLE, WRITTEN, EVICTED, UNUSED = range(5)
COUNTS = 5
OUTPUTS = -1
"""TRACK of chunks that no path shares: outputs that are never sent again."""
MARK = -2
"""TRACK of a node that holds no chunk but marks a place in the ring."""
SPARE = 4096
"""Nodes that one event may take."""
MOST_TRACKS = 64


class Store(NamedTuple):
    """The tiers' tables.

    seg: int32[nodes, FIELDS]. head: int32[tiers, tracks], the shallowest segment of each track.
    counts: int64[tiers, COUNTS], in chunks: resident, idle (resident and held by nobody), written
    and evicted so far, evicted and never looked up. free: int64[2], the first free node (linked by
    NEWER) and how many there are.
    """

    seg: NDArray[np.int32]
    head: NDArray[np.int32]
    counts: NDArray[np.int64]
    free: NDArray[np.int64]


@kernel
def _store(tiers, tracks, nodes):  # type: ignore[no-untyped-def]
    seg = np.full((nodes, FIELDS), -1, np.int32)
    for node in range(nodes):
        seg[node, NEWER] = node + 1
    for tier in range(tiers):
        seg[tier, OLDER] = seg[tier, NEWER] = tier
        seg[tier, TRACK] = MARK
    free = np.array([tiers, nodes - tiers], np.int64)
    head = np.full((tiers, tracks), -1, np.int32)
    return Store(seg, head, np.zeros((tiers, COUNTS), np.int64), free)


@kernel
def _with_room(store):  # type: ignore[no-untyped-def]
    """Return a store with twice as many nodes."""
    old = store.seg.shape[0]
    seg = np.full((2 * old, FIELDS), -1, np.int32)
    seg[:old] = store.seg
    for node in range(old, 2 * old):
        seg[node, NEWER] = node + 1
    seg[2 * old - 1, NEWER] = store.free[0]
    store.free[0] = old
    store.free[1] += old
    return Store(seg, store.head, store.counts, store.free)


@inner
def _node(store, track, lo, hi):  # type: ignore[no-untyped-def]
    """Take a free node, linked nowhere."""
    node = store.free[0]
    if store.free[1] < 1:
        raise RuntimeError("the table of segments is full")
    seg = store.seg
    store.free[0] = seg[node, NEWER]
    store.free[1] -= 1
    seg[node] = -1
    seg[node, TRACK] = track
    seg[node, LO] = lo
    seg[node, HI] = hi
    seg[node, HOLDS] = seg[node, USED] = seg[node, HEAD_FIRST] = 0
    return node


@inner
def _give_back(store, node):  # type: ignore[no-untyped-def]
    store.seg[node, NEWER] = store.free[0]
    store.free[0] = node
    store.free[1] += 1


@inner
def _link(seg, after, node):  # type: ignore[no-untyped-def]
    """Put a node into a ring, one newer than `after`."""
    newer = seg[after, NEWER]
    seg[node, OLDER] = after
    seg[node, NEWER] = newer
    seg[after, NEWER] = node
    seg[newer, OLDER] = node


@inner
def _unlink(seg, node):  # type: ignore[no-untyped-def]
    seg[seg[node, OLDER], NEWER] = seg[node, NEWER]
    seg[seg[node, NEWER], OLDER] = seg[node, OLDER]
    seg[node, OLDER] = seg[node, NEWER] = -1


@inner
def _leave_track(store, tier, node):  # type: ignore[no-untyped-def]
    seg = store.seg
    if seg[node, TRACK] < 0:
        return
    up, down = seg[node, UP], seg[node, DOWN]
    if up >= 0:
        seg[up, DOWN] = down
    else:
        store.head[tier, seg[node, TRACK]] = down
    if down >= 0:
        seg[down, UP] = up


@inner
def _pieces(track, lo, hi, tracks, out):  # type: ignore[no-untyped-def]
    """Fill in (track, from, to) of depths lo .. hi of a path that ends in `track`, deepest first.

    Returns their number.
    """
    n = 0
    while track >= 0 and hi > lo:
        begin = tracks.attach[track]
        if hi > begin:
            out[n, 0] = track
            out[n, 1] = max(begin, lo)
            out[n, 2] = hi
            n += 1
            hi = begin
        track = tracks.parent[track]
    return n


@inner
def _find(store, tier, track, depth):  # type: ignore[no-untyped-def]
    """Return the first segment of a track that reaches beyond a depth, or -1."""
    node = store.head[tier, track]
    while node >= 0 and store.seg[node, HI] <= depth:
        node = store.seg[node, DOWN]
    return node


@inner
def _leading(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Return how many chunks of a path are resident without a gap, from its first on."""
    seg = store.seg
    found = 0
    for i in range(n - 1, -1, -1):
        lo, hi = pieces[i, 1], pieces[i, 2]
        at = lo
        node = _find(store, tier, pieces[i, 0], lo)
        while node >= 0 and seg[node, LO] <= at and at < hi:
            at = min(seg[node, HI], hi)
            node = seg[node, DOWN]
        found += at - lo
        if at < hi:
            break
    return found


@inner
def _survey(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Return how many chunks of a path are missing, and how many are resident and idle."""
    seg = store.seg
    missing = 0
    idle = 0
    for i in range(n):
        lo, hi = pieces[i, 1], pieces[i, 2]
        missing += hi - lo
        node = _find(store, tier, pieces[i, 0], lo)
        while node >= 0 and seg[node, LO] < hi:
            here = min(seg[node, HI], hi) - max(seg[node, LO], lo)
            missing -= here
            if seg[node, HOLDS] == 0:
                idle += here
            node = seg[node, DOWN]
    return missing, idle


@inner
def _split(store, node, depth):  # type: ignore[no-untyped-def]
    """Cut a segment in two at a depth and return the deeper part."""
    seg = store.seg
    deeper = _node(store, seg[node, TRACK], depth, seg[node, HI])
    seg = store.seg
    seg[node, HI] = depth
    for field in (HOLDS, USED, HEAD_FIRST):
        seg[deeper, field] = seg[node, field]
    down = seg[node, DOWN]
    seg[deeper, UP] = node
    seg[deeper, DOWN] = down
    seg[node, DOWN] = deeper
    if down >= 0:
        seg[down, UP] = deeper
    if seg[node, OLDER] >= 0:
        _link(seg, node if seg[node, HEAD_FIRST] else seg[node, OLDER], deeper)
    return deeper


@inner
def _aligned(store, tier, track, lo, hi):  # type: ignore[no-untyped-def]
    """Cut segments at both ends of a stretch; return its first segment, or -1."""
    seg = store.seg
    node = _find(store, tier, track, lo)
    if node < 0 or seg[node, LO] >= hi:
        return np.int64(-1)
    if seg[node, LO] < lo:
        node = _split(store, node, lo)
    first = np.int64(node)
    last = node
    while seg[last, HI] < hi and seg[last, DOWN] >= 0 and seg[seg[last, DOWN], LO] < hi:
        last = seg[last, DOWN]
    if seg[last, HI] > hi:
        _split(store, last, hi)
    return first
