"""Host tiers: what each backend looks up, stores and evicts, on whole stretches of a path.

The rules are those of the models in `tiers/`, which replay them chunk by chunk:
* IDEAL: looks up and touches the whole path, tail older; evicts exactly what is needed.
* OFFLOAD: looks up behind the GPU's hit. Each call ranks its chunks together; offers of each
  step are stored, and refreshed behind what was loaded; the rank is given anew when it ends.
* IN_PROCESS: looks up whole prompts; hits are touched tail older, new chunks added head older.
* SERVER: touches whole prompts tail older, stores all or nothing, and drops a share of all once
  it is filled to its watermark.
* EAGER: a second pool: what is missing is stored, what is loaded becomes recent, head older.
* LAZY: takes what leaves the GPU.
"""

# ruff: noqa: TID253
from __future__ import annotations

import numpy as np

from agentkv_trace.replay.holding import (
    _evict,
    _fill,
    _hold,
    _let_go,
    _let_go_head_first,
    _oldest,
    _shorten,
)
from agentkv_trace.replay.inner import inner
from agentkv_trace.replay.segments import (
    DOWN,
    HI,
    LO,
    MARK,
    NEWER,
    OLDER,
    RESIDENT,
    _give_back,
    _link,
    _node,
    _pieces,
    _survey,
    _unlink,
)

NONE, IDEAL, OFFLOAD, IN_PROCESS, SERVER, EAGER, LAZY = range(7)
POLICIES = {
    "ideal": IDEAL,
    "offload": OFFLOAD,
    "in_process": IN_PROCESS,
    "server": SERVER,
    "eager": EAGER,
    "lazy": LAZY,
    # No tree of nodes here: the host is taken as one LRU stack, or as what leaves the GPU.
    "hicache": IDEAL,
}
WATERMARK = 0.8
EVICTED_SHARE = 0.2


@inner
def _touch(store, tier, capacity, pieces, n):  # type: ignore[no-untyped-def]
    """Touch a whole path, tail older, storing what is missing."""
    _hold(store, tier, pieces, n)
    missing = _survey(store, tier, pieces, n)[0]
    _evict(store, tier, store.counts[tier, RESIDENT] + missing - capacity)
    _fill(store, tier, pieces, n)
    _let_go(store, tier, pieces, n, store.seg[tier, OLDER])
    # A path longer than the tier loses its own tail.
    _evict(store, tier, store.counts[tier, RESIDENT] - capacity)


@inner
def _refresh(store, tier, pieces, n, after):  # type: ignore[no-untyped-def]
    """Touch what is resident of a path, tail older, and put it next to `after` (-1: the newest)."""
    _hold(store, tier, pieces, n)
    if after < 0:
        after = store.seg[tier, OLDER]
    _let_go(store, tier, pieces, n, after)


@inner
def _offer(store, tier, capacity, mark, pieces, n):  # type: ignore[no-untyped-def]
    """Store and refresh a stretch at the old end of a call's rank, which begins at `mark`."""
    _hold(store, tier, pieces, n)
    missing = _survey(store, tier, pieces, n)[0]
    _evict(store, tier, store.counts[tier, RESIDENT] + missing - capacity)
    _fill(store, tier, pieces, n)
    _let_go(store, tier, pieces, n, mark)


@inner
def _rank(store, tier):  # type: ignore[no-untyped-def]
    """Open a rank at the recent end, between two nodes; return the older, which knows the other."""
    begin = _node(store, MARK, 0, 0)
    _link(store.seg, store.seg[tier, OLDER], begin)
    end = _node(store, MARK, 0, 0)
    _link(store.seg, begin, end)
    store.seg[begin, DOWN] = end
    return begin


@inner
def _rank_anew(store, tier, begin):  # type: ignore[no-untyped-def]
    """Move what is in a rank to the recent end and close it."""
    seg = store.seg
    end = np.int64(seg[begin, DOWN])
    first, last = np.int64(seg[begin, NEWER]), np.int64(seg[end, OLDER])
    if first != end and seg[end, NEWER] != tier:
        seg[begin, NEWER] = end
        seg[end, OLDER] = begin
        newest = np.int64(seg[tier, OLDER])
        seg[newest, NEWER] = first
        seg[first, OLDER] = newest
        seg[last, NEWER] = tier
        seg[tier, OLDER] = last
    _unlink(seg, begin)
    _unlink(seg, end)
    _give_back(store, begin)
    _give_back(store, end)


@inner
def _store_in_process(store, tier, capacity, track, hit, chunks, tracks, pieces):  # type: ignore[no-untyped-def]
    n = _pieces(track, 0, hit, tracks, pieces)
    _refresh(store, tier, pieces, n, -1)
    stored = min(chunks - hit, capacity - hit)
    # Each chunk makes room before it is looked at, even one that turns out to be resident.
    _evict(store, tier, store.counts[tier, RESIDENT] + stored - capacity)
    n = _pieces(track, hit, hit + stored, tracks, pieces)
    added = _fill(store, tier, pieces, n)
    _let_go_head_first(store, tier, pieces, n)
    return added


@inner
def _store_in_server(store, tier, capacity, track, chunks, tracks, pieces):  # type: ignore[no-untyped-def]
    n = _pieces(track, 0, chunks, tracks, pieces)
    missing = _survey(store, tier, pieces, n)[0]
    stored = store.counts[tier, RESIDENT] + missing <= capacity
    _hold(store, tier, pieces, n)
    if stored:
        _fill(store, tier, pieces, n)
    _let_go(store, tier, pieces, n, store.seg[tier, OLDER])
    return missing if stored else 0


@inner
def _watermark(store, tier, capacity):  # type: ignore[no-untyped-def]
    resident = store.counts[tier, RESIDENT]
    if resident >= WATERMARK * capacity:
        _evict(store, tier, np.int64(EVICTED_SHARE * resident))


@inner
def _refresh_head_first(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Make what is resident of a path recent, the head older."""
    _hold(store, tier, pieces, n)
    _let_go_head_first(store, tier, pieces, n)


@inner
def _store_eager(store, tier, capacity, track, lo, hi, tracks, pieces):  # type: ignore[no-untyped-def]
    """Store what is missing of a stretch, as far as the tier can hold it."""
    n = _pieces(track, lo, hi, tracks, pieces)
    if _survey(store, tier, pieces, n)[0] > capacity:
        # The first that fit; where they end follows by halves from what is missing above.
        low, high = lo, hi
        while low < high:
            middle = (low + high + 1) // 2
            n = _pieces(track, lo, middle, tracks, pieces)
            if _survey(store, tier, pieces, n)[0] <= capacity:
                low = middle
            else:
                high = middle - 1
        n = _pieces(track, lo, low, tracks, pieces)
    # What to store is settled before room is made, which may take chunks of this call.
    _fill(store, tier, pieces, n)
    _evict(store, tier, store.counts[tier, RESIDENT] - capacity)
    _let_go_head_first(store, tier, pieces, n)


@inner
def _take_victim(store, tier, capacity, track, lo, hi, piece):  # type: ignore[no-untyped-def]
    """Store what leaves the GPU, the deepest first; room may be made by a shallower part of it."""
    seg = store.seg
    while hi > lo:
        above = np.int64(-1)
        node = np.int64(store.head[tier, track])
        while node >= 0 and seg[node, LO] < hi:
            above = node
            node = np.int64(seg[node, DOWN])
        if above >= 0 and seg[above, HI] >= hi:
            hi = np.int64(seg[above, LO])
            continue
        begin = max(lo, hi - capacity)
        if above >= 0:
            begin = max(begin, np.int64(seg[above, HI]))
        _evict(store, tier, store.counts[tier, RESIDENT] + hi - begin - capacity)
        piece[0, 0] = track
        piece[0, 1] = begin
        piece[0, 2] = hi
        _fill(store, tier, piece, 1)
        _let_go(store, tier, piece, 1, store.seg[tier, OLDER])
        hi = begin


@inner
def _evict_to(store, tier, chunks, host, host_capacity, piece):  # type: ignore[no-untyped-def]
    """Evict the oldest idle chunks of the GPU into a host tier; return how many could not be."""
    while chunks > 0:
        node = _oldest(store, tier)
        if node == tier:
            break
        track, lo, hi = _shorten(store, tier, node, chunks)
        if track >= 0:
            _take_victim(store, host, host_capacity, track, lo, hi, piece)
        chunks -= hi - lo
    return chunks
