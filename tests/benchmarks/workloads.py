"""Deterministic traces that look like coding agents, of any size."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentkv_trace._jit import kernel


@kernel
def _draw(state):  # type: ignore[no-untyped-def]
    """Step a xorshift generator; return a number below 2**31."""
    value = state[0]
    value ^= (value << 13) & 0x7FFFFFFFFFFFFFFF
    value ^= value >> 7
    value ^= (value << 17) & 0x7FFFFFFFFFFFFFFF
    state[0] = value
    return value & 0x7FFFFFFF


@kernel
def _agents(calls, agents, head, first, grow, fold_at, fold_to, seed):  # type: ignore[no-untyped-def]
    base = np.full(calls, -1, np.int32)
    shared = np.zeros(calls, np.int32)
    prompt = np.empty(calls, np.int32)
    path = np.empty(calls, np.int32)
    session = np.empty(calls, np.int64)
    last = np.full(agents, -1, np.int64)
    task = np.zeros(agents, np.int64)
    state = np.array([seed * 2654435761 + 88172645463325252], np.int64)
    sessions = 0
    for call in range(calls):
        # Squared, so that some agents are busy and some pause for long.
        pick = _draw(state) % 65536
        agent = pick * pick // 65536 * agents // 65536
        before = last[agent]
        new = grow // 2 + _draw(state) % grow
        if before < 0 or _draw(state) % 1024 == 0:
            base[call] = call - 1
            shared[call] = head if call else 0
            task[agent] = head + first
            prompt[call] = head + first + new
            session[call] = sessions
            sessions += 1
        elif path[before] > fold_at:
            base[call] = before
            shared[call] = task[agent]
            prompt[call] = fold_to + new
            session[call] = session[before]
        else:
            base[call] = before
            shared[call] = path[before]
            prompt[call] = path[before] + new
            session[call] = session[before]
        path[call] = prompt[call] + grow // 8
        last[agent] = call
    return base, shared, prompt, path, session


def agent_calls(
    calls: int,
    *,
    agents: int = 64,
    head: int = 500,
    first: int = 40,
    grow: int = 64,
    fold_at: int = 20_000,
    fold_to: int = 4_000,
    seed: int = 1,
) -> tuple[dict[str, Any], Any]:
    """Return the tree columns of agents that take turns at random, and each call's session.

    All sessions share a head of `head` chunks. A session goes on from its last path, adding
    `grow` chunks a call on average, until the path holds `fold_at`; it then keeps head and
    task (`first` chunks) and goes on from `fold_to`. One call in 1,024 begins a new session.
    """
    *tree, session = _agents(calls, agents, head, first, grow, fold_at, fold_to, seed)
    names = ("base", "base_chunks", "prompt_chunks", "path_chunks")
    return dict(zip(names, tree, strict=True)), session


@kernel
def _flatten(base, shared, path):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    ends = np.empty(base.size + 1, np.int64)
    ends[0] = 0
    for call in range(base.size):
        total += path[call]
        ends[call + 1] = total
    ids = np.empty(total, np.int32)
    new = 0
    for call in range(base.size):
        begin = ends[call]
        if shared[call]:
            source = ends[base[call]]
            for depth in range(shared[call]):
                ids[begin + depth] = ids[source + depth]
        for depth in range(shared[call], path[call]):
            ids[begin + depth] = new
            new += 1
    return ids, ends, new


def flatten(tree: dict[str, Any]) -> tuple[Any, Any, int]:
    """Return dense chunk ids of all paths, int32[n], where each call's begin, and their number."""
    ids, ends, unique = _flatten(tree["base"], tree["base_chunks"], tree["path_chunks"])
    return ids, ends, int(unique)


@kernel
def _lru(ids, ends, prompt, unique, capacity):  # type: ignore[no-untyped-def]
    newer = np.full(unique + 1, -1, np.int32)
    older = np.full(unique + 1, -1, np.int32)
    ring = unique
    newer[ring] = ring
    older[ring] = ring
    resident = 0
    hits = np.int64(0)
    for call in range(ends.size - 1):
        for at in range(ends[call], ends[call] + prompt[call]):
            if newer[ids[at]] < 0:
                break
            hits += 1
        for at in range(ends[call + 1] - 1, ends[call] - 1, -1):
            chunk = ids[at]
            if newer[chunk] >= 0:
                older[newer[chunk]] = older[chunk]
                newer[older[chunk]] = newer[chunk]
            elif resident == capacity:
                oldest = newer[ring]
                newer[ring] = newer[oldest]
                older[newer[oldest]] = ring
                newer[oldest] = -1
            else:
                resident += 1
            youngest = older[ring]
            newer[youngest] = chunk
            older[chunk] = youngest
            newer[chunk] = ring
            older[ring] = chunk
    return hits


def lru_hits(ids: Any, ends: Any, prompt_chunks: Any, unique: int, capacity: int) -> int:
    """Replay a plain LRU cache of one capacity over flat dense ids: lists in arrays, no hashing.

    Returns the prompt chunks that hit, of all calls. This is the least that any replay does.
    """
    return int(_lru(ids, ends, prompt_chunks, unique, capacity))
