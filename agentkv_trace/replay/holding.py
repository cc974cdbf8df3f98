"""How calls touch, hold and let go of segments, and how segments are evicted."""

# ruff: noqa: TID253
from __future__ import annotations

import numpy as np

from agentkv_trace.replay.inner import inner
from agentkv_trace.replay.segments import (
    DOWN,
    EVICTED,
    HEAD_FIRST,
    HI,
    HOLDS,
    IDLE,
    LO,
    MARK,
    NEWER,
    OLDER,
    RESIDENT,
    TRACK,
    UNUSED,
    UP,
    USED,
    WRITTEN,
    _aligned,
    _find,
    _give_back,
    _leave_track,
    _link,
    _node,
    _unlink,
)


@inner
def _use(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Note that a lookup met the resident chunks of a path."""
    seg = store.seg
    for i in range(n):
        node = _find(store, tier, pieces[i, 0], pieces[i, 1])
        # Cut only what is not marked yet.
        while node >= 0 and seg[node, LO] < pieces[i, 2]:
            if seg[node, USED] == 0:
                node = _aligned(store, tier, pieces[i, 0], pieces[i, 1], pieces[i, 2])
                while node >= 0 and seg[node, LO] < pieces[i, 2]:
                    seg[node, USED] = 1
                    node = seg[node, DOWN]
                break
            node = seg[node, DOWN]


@inner
def _hold(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Hold the resident chunks of a path, which takes them out of the ring."""
    seg = store.seg
    for i in range(n):
        node = _aligned(store, tier, pieces[i, 0], pieces[i, 1], pieces[i, 2])
        while node >= 0 and seg[node, LO] < pieces[i, 2]:
            if seg[node, HOLDS] == 0:
                _unlink(seg, node)
                store.counts[tier, IDLE] -= seg[node, HI] - seg[node, LO]
            seg[node, HOLDS] += 1
            node = seg[node, DOWN]


@inner
def _fill(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Add the missing chunks of a path, held; return how many there were."""
    seg = store.seg
    added = 0
    for i in range(n):
        track, hi = pieces[i, 0], pieces[i, 2]
        at = pieces[i, 1]
        up = np.int64(-1)
        down = np.int64(store.head[tier, track])
        while at < hi:
            while down >= 0 and seg[down, HI] <= at:
                up, down = down, np.int64(seg[down, DOWN])
            end = hi
            if down >= 0:
                if seg[down, LO] <= at:
                    at = seg[down, HI]
                    continue
                end = min(np.int64(hi), np.int64(seg[down, LO]))
            node = _node(store, track, at, end)
            seg[node, HOLDS] = 1
            seg[node, UP] = up
            seg[node, DOWN] = down
            if up >= 0:
                seg[up, DOWN] = node
            else:
                store.head[tier, track] = node
            if down >= 0:
                seg[down, UP] = node
            added += end - at
            up = np.int64(node)
            at = end
    store.counts[tier, RESIDENT] += added
    store.counts[tier, WRITTEN] += added
    return added


@inner
def _join(store, tier, node):  # type: ignore[no-untyped-def]
    """Merge a segment with the next older one where they follow each other in depth too."""
    seg = store.seg
    older = seg[node, OLDER]
    if (
        seg[older, TRACK] != seg[node, TRACK]
        or seg[node, TRACK] < 0
        or seg[older, USED] != seg[node, USED]
        or seg[older, HEAD_FIRST] != seg[node, HEAD_FIRST]
    ):
        return
    if seg[node, HEAD_FIRST]:
        if seg[older, HI] != seg[node, LO]:
            return
        seg[node, LO] = seg[older, LO]
    else:
        if seg[older, LO] != seg[node, HI]:
            return
        seg[node, HI] = seg[older, HI]
    _unlink(seg, older)
    _leave_track(store, tier, older)
    _give_back(store, older)


@inner
def _let_go(store, tier, pieces, n, after):  # type: ignore[no-untyped-def]
    """Stop holding the chunks of a path; what nobody holds now becomes newer than `after`.

    Deeper ones become older.
    """
    seg = store.seg
    for i in range(n):
        lo = pieces[i, 1]
        node = np.int64(_find(store, tier, pieces[i, 0], lo))
        last = np.int64(-1)
        while node >= 0 and seg[node, LO] < pieces[i, 2]:
            last = node
            node = np.int64(seg[node, DOWN])
        while last >= 0 and seg[last, HI] > lo:
            up = np.int64(seg[last, UP])
            if seg[last, HOLDS] > 0:
                seg[last, HOLDS] -= 1
                if seg[last, HOLDS] == 0:
                    store.counts[tier, IDLE] += seg[last, HI] - seg[last, LO]
                    seg[last, HEAD_FIRST] = 0
                    _link(seg, after, last)
                    _join(store, tier, last)
                    after = last
            last = up
    return after


@inner
def _let_go_head_first(store, tier, pieces, n):  # type: ignore[no-untyped-def]
    """Stop holding what is held of a path: it becomes the newest, the deepest last."""
    seg = store.seg
    for i in range(n - 1, -1, -1):
        node = np.int64(_find(store, tier, pieces[i, 0], pieces[i, 1]))
        while node >= 0 and seg[node, LO] < pieces[i, 2]:
            if seg[node, HOLDS] > 0:
                seg[node, HOLDS] = 0
                store.counts[tier, IDLE] += seg[node, HI] - seg[node, LO]
                seg[node, HEAD_FIRST] = 1
                _link(seg, seg[tier, OLDER], node)
                _join(store, tier, node)
            node = np.int64(seg[node, DOWN])


@inner
def _oldest(store, tier):  # type: ignore[no-untyped-def]
    """Return the oldest segment that may be evicted, or `tier` where there is none."""
    seg = store.seg
    node = np.int64(seg[tier, NEWER])
    while node != tier and seg[node, TRACK] == MARK:
        node = np.int64(seg[node, NEWER])
    return node


@inner
def _shorten(store, tier, node, chunks):  # type: ignore[no-untyped-def]
    """Evict up to so many chunks of a segment; return track, from, to."""
    seg = store.seg
    track, lo, hi = np.int64(seg[node, TRACK]), np.int64(seg[node, LO]), np.int64(seg[node, HI])
    gone = min(hi - lo, chunks)
    count = store.counts[tier]
    count[RESIDENT] -= gone
    count[IDLE] -= gone
    count[EVICTED] += gone
    if seg[node, USED] == 0:
        count[UNUSED] += gone
    if gone == hi - lo:
        _unlink(seg, node)
        _leave_track(store, tier, node)
        _give_back(store, node)
    elif seg[node, HEAD_FIRST]:
        hi = lo + gone
        seg[node, LO] = hi
    else:
        lo = hi - gone
        seg[node, HI] = lo
    return track, lo, hi


@inner
def _evict(store, tier, chunks):  # type: ignore[no-untyped-def]
    """Evict the oldest idle chunks; return how many could not be."""
    while chunks > 0:
        node = _oldest(store, tier)
        if node == tier:
            break
        before = store.counts[tier, RESIDENT]
        _shorten(store, tier, node, chunks)
        chunks -= before - store.counts[tier, RESIDENT]
    return chunks
