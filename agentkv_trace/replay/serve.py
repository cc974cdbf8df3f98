"""One call on one replica: looked up, given room, stored to host, let go at its end.

`tier` is the replica's GPU, `tier + 1` or `host` its host tier.
"""

# ruff: noqa: TID253
from __future__ import annotations

import numpy as np

from agentkv_trace.replay.holding import _evict, _fill, _hold, _let_go, _use
from agentkv_trace.replay.host import (
    EAGER,
    IDEAL,
    IN_PROCESS,
    LAZY,
    NONE,
    OFFLOAD,
    SERVER,
    _evict_to,
    _offer,
    _rank,
    _rank_anew,
    _refresh,
    _refresh_head_first,
    _store_eager,
    _store_in_process,
    _store_in_server,
    _touch,
    _watermark,
)
from agentkv_trace.replay.inner import inner
from agentkv_trace.replay.segments import (
    IDLE,
    OLDER,
    OUTPUTS,
    RESIDENT,
    UP,
    USED,
    WRITTEN,
    _aligned,
    _leading,
    _link,
    _node,
    _pieces,
    _survey,
)


@inner
def _path(sim, call, lo, hi):  # type: ignore[no-untyped-def]
    """Lay out depths lo .. hi of a call's path in `sim.pieces`; return how many there are."""
    return _pieces(sim.calls.track[call], lo, hi, sim.tracks, sim.pieces)


@inner
def _host_path(sim, call, hi):  # type: ignore[no-untyped-def]
    """Lay out the first chunks of a call's path in the host tier's chunks, as `_path`."""
    return _pieces(sim.calls.host_track[call], 0, hi, sim.host_tracks, sim.pieces)


@inner
def _look_up(store, tier, call, sim):  # type: ignore[no-untyped-def]
    """Return the GPU's hit in chunks, and the host's: in tokens to restore, and in its chunks.

    Changes nothing.
    """
    engine, calls = sim.engine, sim.calls
    chunks = np.int64(calls.prompt_chunks[call])
    most = chunks
    if engine.skip_last:
        most = max(calls.prompt[call] - 1, 0) // engine.chunk_tokens
    gpu = min(np.int64(_leading(store, tier, sim.pieces, _path(sim, call, 0, chunks))), most)
    if engine.policy == NONE:
        return gpu, np.int64(0), np.int64(0)
    if engine.policy in (OFFLOAD, EAGER, LAZY):
        limit = chunks if engine.policy == OFFLOAD else most
        n = _path(sim, call, gpu, limit)
        found = np.int64(_leading(store, tier + 1, sim.pieces, n))
        return gpu, found * engine.chunk_tokens, found
    n = _host_path(sim, call, calls.host_prompt[call])
    found = np.int64(_leading(store, tier + 1, sim.pieces, n))
    restored = found * engine.host_chunk_tokens - gpu * engine.chunk_tokens
    return gpu, max(restored, 0), found


@inner
def _room(store, tier, call, gpu, own, sim):  # type: ignore[no-untyped-def]
    """Return the chunks that no path shares which a call needs, and by how much room is short.

    own: such chunks of the calls that run. The second is what must be evicted, or -1 where the
    idle chunks do not suffice.
    """
    engine, calls = sim.engine, sim.calls
    chunks = np.int64(calls.prompt_chunks[call])
    missing, idle = _survey(store, tier, sim.pieces, _path(sim, call, 0, chunks))
    slots = chunks
    if engine.tails:
        slots = -(-calls.prompt[call] // engine.chunk_tokens)
    need = slots - gpu
    short = max(need - engine.pool + store.counts[tier, RESIDENT] + own, 0)
    if short > store.counts[tier, IDLE] - idle:
        short = np.int64(-1)
    return need - missing, short


@inner
def _make_room(store, tier, chunks, sim):  # type: ignore[no-untyped-def]
    if sim.engine.policy == LAZY:
        _evict_to(store, tier, chunks, tier + 1, sim.engine.host_capacity, sim.pieces)
    else:
        _evict(store, tier, chunks)


@inner
def _take_up(store, tier, call, gpu, found, short, own, sim):  # type: ignore[no-untyped-def]
    """Give a call its room and note its hits on both tiers; return the chunks of its own."""
    chunks = np.int64(sim.calls.prompt_chunks[call])
    _restore(store, tier + 1, call, gpu, found, sim)
    if sim.engine.tails and gpu < chunks:
        own -= _copy(store, tier, call, sim)
    _use(store, tier, sim.pieces, _path(sim, call, 0, gpu))
    _hold(store, tier, sim.pieces, _path(sim, call, 0, chunks))
    _make_room(store, tier, short, sim)
    _fill(store, tier, sim.pieces, _path(sim, call, 0, chunks))
    return own


@inner
def _copy(store, tier, call, sim):  # type: ignore[no-untyped-def]
    """Leave a copy where a prompt's last chunk was, if it is computed though it is resident.

    The engine computes it into a second block and never merges the two. Return how many.
    """
    seg = store.seg
    chunks = sim.calls.prompt_chunks[call]
    n = _path(sim, call, chunks - 1, chunks)
    missing, idle = _survey(store, tier, sim.pieces, n)
    if missing or not idle:
        return 0
    last = _aligned(store, tier, sim.pieces[0, 0], chunks - 1, chunks)
    copy = _node(store, OUTPUTS, 0, 1)
    seg[copy, USED] = 1
    _link(seg, seg[last, OLDER], copy)
    store.counts[tier, RESIDENT] += 1
    store.counts[tier, IDLE] += 1
    return 1


@inner
def _restore(store, host, call, gpu, found, sim):  # type: ignore[no-untyped-def]
    """Note a hit of `found` chunks on the host tier."""
    policy = sim.engine.policy
    if policy == NONE:
        return
    if policy not in (OFFLOAD, EAGER, LAZY):
        _use(store, host, sim.pieces, _host_path(sim, call, found))
        return
    _use(store, host, sim.pieces, _path(sim, call, 0, gpu + found))
    if found == 0:
        return
    n = _path(sim, call, gpu, gpu + found)
    if policy == OFFLOAD:
        mark = sim.progress.mark
        if mark[call] < 0:
            mark[call] = _rank(store, host)
        _refresh(store, host, sim.pieces, n, mark[call])
        _settle(store, host, sim)
    else:
        _refresh_head_first(store, host, sim.pieces, n)


@inner
def _settle(store, host, sim):  # type: ignore[no-untyped-def]
    """Give the ranks of calls that ended before this step their last place."""
    tiers = sim.tiers
    while tiers.pending[host] >= 0:
        begin = tiers.pending[host]
        tiers.pending[host] = store.seg[begin, UP]
        _rank_anew(store, host, begin)


@inner
def _postpone(store, host, begin, sim):  # type: ignore[no-untyped-def]
    """Leave a rank to be settled in the replica's next step."""
    tiers = sim.tiers
    if tiers.pending[host] < 0:
        tiers.pending[host] = begin
    else:
        store.seg[tiers.pending_last[host], UP] = begin
    tiers.pending_last[host] = begin
    tiers.pending_clock[host] = sim.fleet.clock[host // 2]


@inner
def _write(store, host, call, settle, sim):  # type: ignore[no-untyped-def]
    """Store a call's prompt to host as it is computed; return the chunks written.

    settle: whether the batch's first step ends before this prompt does.
    """
    engine, calls, pieces = sim.engine, sim.calls, sim.pieces
    policy, capacity = engine.policy, engine.host_capacity
    before = store.counts[host, WRITTEN]
    chunks = np.int64(calls.host_prompt[call])
    track = calls.host_track[call]
    if policy == OFFLOAD:
        _offers(store, host, call, settle, sim)
    elif policy == EAGER:
        _store_eager(store, host, capacity, track, np.int64(0), chunks, sim.tracks, pieces)
    elif policy == IDEAL:
        # What lies deeper than the tier is large would leave at once.
        _touch(store, host, capacity, pieces, _host_path(sim, call, min(chunks, capacity)))
    elif policy == IN_PROCESS:
        hit = np.int64(_leading(store, host, pieces, _host_path(sim, call, chunks)))
        _store_in_process(store, host, capacity, track, hit, chunks, sim.host_tracks, pieces)
    elif policy == SERVER:
        _store_in_server(store, host, capacity, track, chunks, sim.host_tracks, pieces)
    return store.counts[host, WRITTEN] - before


@inner
def _offers(store, host, call, settle, sim):  # type: ignore[no-untyped-def]
    """Offer a prompt step by step: behind what was loaded, or all of it."""
    engine, mark = sim.engine, sim.progress.mark
    if mark[call] < 0:
        mark[call] = _rank(store, host)
    loaded = sim.progress.restored[call] // engine.chunk_tokens
    hit = sim.progress.gpu[call] + loaded
    offered = hit if loaded > 0 else np.int64(0)
    prompt = sim.calls.prompt[call]
    done = min(hit * engine.chunk_tokens, prompt - 1)
    while done < prompt:
        done = min(done + engine.step_tokens, prompt)
        full = done // engine.chunk_tokens
        if full > offered and full - offered <= engine.host_capacity:
            n = _path(sim, call, offered, full)
            _offer(store, host, engine.host_capacity, mark[call], sim.pieces, n)
            offered = full
        if settle:
            _settle(store, host, sim)


@inner
def _skip_write(store, host, call, sim):  # type: ignore[no-untyped-def]
    """Touch what is resident in host of a call whose new chunks are not to be stored."""
    policy = sim.engine.policy
    if policy in (OFFLOAD, EAGER, LAZY):
        return
    n = _host_path(sim, call, sim.calls.host_prompt[call])
    n = _host_path(sim, call, _leading(store, host, sim.pieces, n))
    _refresh(store, host, sim.pieces, n, -1)


@inner
def _output_need(store, tier, call, sim):  # type: ignore[no-untyped-def]
    """Return the chunks a call's output takes, and how many of its path are idle now.

    The first are those of its path, those never sent again, and a partial one.
    """
    engine, calls = sim.engine, sim.calls
    path = np.int64(calls.path_chunks[call])
    n = _path(sim, call, calls.prompt_chunks[call], path)
    missing, idle = _survey(store, tier, sim.pieces, n)
    other = np.int64(0)
    tail = np.int64(0)
    if engine.outputs:
        stored = calls.prompt[call] + max(calls.output[call] - 1, 0)
        other = max(stored // engine.chunk_tokens - path, np.int64(0))
        if engine.tails and stored % engine.chunk_tokens:
            tail = np.int64(1)
    return np.int64(missing), other, tail, np.int64(idle)


@inner
def _let_go_call(store, tier, call, chunks, sim):  # type: ignore[no-untyped-def]
    """Let go of the first chunks of a call's path, tail older."""
    n = _path(sim, call, 0, chunks)
    _let_go(store, tier, sim.pieces, n, store.seg[tier, OLDER])


@inner
def _finish(store, tier, call, other, short, sim):  # type: ignore[no-untyped-def]
    """Keep a call's output, for which `short` chunks are evicted, and let its path go."""
    prompt, path = sim.calls.prompt_chunks[call], sim.calls.path_chunks[call]
    _hold(store, tier, sim.pieces, _path(sim, call, prompt, path))
    _make_room(store, tier, short, sim)
    _fill(store, tier, sim.pieces, _path(sim, call, prompt, path))
    if other > 0:
        node = _node(store, OUTPUTS, 0, other)
        _link(store.seg, store.seg[tier, OLDER], node)
        store.counts[tier, RESIDENT] += other
        store.counts[tier, IDLE] += other
        store.counts[tier, WRITTEN] += other
    _let_go_call(store, tier, call, path, sim)


@inner
def _finish_on_host(store, host, call, sim):  # type: ignore[no-untyped-def]
    """Store what a call's output adds to its path, and give its chunks their last place."""
    engine, calls, pieces = sim.engine, sim.calls, sim.pieces
    policy, capacity = engine.policy, engine.host_capacity
    saved = sim.progress.saved[call]
    if policy == OFFLOAD:
        mark = sim.progress.mark
        if mark[call] < 0:
            return
        first, path = calls.prompt_chunks[call], calls.path_chunks[call]
        if saved and 0 < path - first <= capacity:
            _offer(store, host, capacity, mark[call], pieces, _path(sim, call, first, path))
        _postpone(store, host, mark[call], sim)
        mark[call] = -1
    elif policy == EAGER and saved:
        first, path = np.int64(calls.prompt_chunks[call]), np.int64(calls.path_chunks[call])
        _store_eager(store, host, capacity, calls.track[call], first, path, sim.tracks, pieces)
    elif policy == IDEAL and saved:
        path = min(np.int64(calls.host_path[call]), capacity)
        _touch(store, host, capacity, pieces, _host_path(sim, call, path))
    elif policy == SERVER:
        n = _host_path(sim, call, calls.host_prompt[call])
        _refresh(store, host, pieces, n, -1)
        if engine.tick_s <= 0:
            _watermark(store, host, capacity)
