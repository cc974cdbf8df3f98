"""Slow, obviously right twins of the kernels."""

from __future__ import annotations

from collections import OrderedDict

# --- prefix tree ---------------------------------------------------------------------------


def shared_prefix(one: list[int], other: list[int]) -> int:
    """Return how many leading elements two lists share."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared


def link(paths: list[list[int]]) -> tuple[list[int], list[int]]:
    """Return each path's base (latest on a tie) and base_chunks by comparing all pairs."""
    bases, lengths = [], []
    for row, path in enumerate(paths):
        base, length = -1, 0
        for earlier in range(row):
            shared = shared_prefix(path, paths[earlier])
            if shared and shared >= length:
                base, length = earlier, shared
        bases.append(base)
        lengths.append(length)
    return bases, lengths


# ---- Tiers: the real caches as plain Python, one capacity at a time. A path is a list of chunks,
# ---- head first; a call is (path, prompt tokens); every function returns hits in chunks.


def lru_hits(calls, chunk_tokens, capacity):
    """A list as LRU stack, most recent first."""
    stack, hits = [], []
    for path, _ in calls:
        resident = stack[:capacity]
        hits.append(_leading(path, resident))
        stack = path + [c for c in stack if c not in path]
    return hits


def vllm_stack_hits(calls, chunk_tokens, capacity, looked_up=None):
    """The LRU stack, where each chunk keeps the largest (position + partial slot) it ever had.

    looked_up: how many chunks of each path are looked up, where that is not all but the last token.
    """
    stack, needs, hits = [], {}, []
    for i, (path, tokens) in enumerate(calls):
        most = looked_up[i] if looked_up else max(tokens - 1, 0) // chunk_tokens
        hits.append(_leading(path[:most], [c for c in needs if needs[c] <= capacity]))
        stack = path + [c for c in stack if c not in path]
        slot = 1 if tokens % chunk_tokens else 0
        for position, chunk in enumerate(stack, 1):
            before = 0 if chunk in path else needs[chunk]
            needs[chunk] = max(before, position + slot)
    return hits


def vllm_pool_hits(calls, chunk_tokens, capacity, output_tokens=None):
    """A free queue of numbered blocks; each holds a chunk, an output chunk or nothing."""
    queue, holds = list(range(capacity)), {}
    copies, hits = {}, []
    for i, (path, prompt_tokens) in enumerate(calls):
        output = output_tokens[i] if output_tokens else 1
        stored = prompt_tokens + max(output - 1, 0)
        mine = []
        for chunk in path[: max(prompt_tokens - 1, 0) // chunk_tokens]:
            if not copies.get(chunk):
                break
            mine.append(copies[chunk][0])
            queue.remove(mine[-1])
        hits.append(len(mine))
        for slot in range(len(mine), -(-stored // chunk_tokens)):
            block = queue.pop(0)
            if block in holds:
                copies[holds.pop(block)].remove(block)
            if slot < stored // chunk_tokens:
                holds[block] = path[slot] if slot < len(path) else ("output", i, slot)
                copies.setdefault(holds[block], []).append(block)
            mine.append(block)
        for block in reversed(mine):
            queue.insert(len(queue) if block in holds else 0, block)
    return hits


def lmcache_in_process_hits(calls, chunk_tokens, capacity):
    """Oldest first; hits are touched tail first, new chunks are added head first."""
    cache, hits = OrderedDict(), []
    for path, _ in calls:
        hit = _leading(path, cache)
        for chunk in reversed(path[:hit]):
            cache.move_to_end(chunk)
        for _ in path[hit:]:
            if len(cache) + len(path) - hit > capacity:
                cache.popitem(last=False)
        for chunk in path[hit:]:
            cache.setdefault(chunk)
        hits.append(hit)
    return hits


def lmcache_server_hits(calls, chunk_tokens, capacity, watermark=0.8, evicted_share=0.2):
    """Oldest first; a watermark is looked at after each call, and stores that do not fit drop."""
    cache, hits = OrderedDict(), []
    for path, _ in calls:
        hits.append(_leading(path, cache))
        if len(set(cache) | set(path)) <= capacity:
            cache.update(dict.fromkeys(path))
        for chunk in reversed(path):
            if chunk in cache:
                cache.move_to_end(chunk)
        if len(cache) >= watermark * capacity:
            for _ in range(int(evicted_share * len(cache))):
                cache.popitem(last=False)
    return hits


class _Node:
    def __init__(self, key, parent, used):
        self.key, self.parent, self.used, self.children = key, parent, used, {}

    def leaves(self):
        if not self.children:
            return [self]
        return [leaf for child in self.children.values() for leaf in child.leaves()]


def sglang_radix_hits(calls, chunk_tokens, capacity):
    """A radix tree of nodes; the least recent unlocked leaf node is evicted whole."""
    root, clock, hits = _Node([], None, 0), 0, []
    resident = 0

    def match(path):
        node, depth = root, 0
        while depth < len(path) and path[depth] in node.children:
            child = node.children[path[depth]]
            child.used = clock
            same = _leading(child.key, path[depth : depth + len(child.key)])
            if same < len(child.key):
                upper = _Node(child.key[:same], node, clock)
                node.children[path[depth]] = upper
                child.key, child.parent = child.key[same:], upper
                upper.children[child.key[0]] = child
                return upper, depth + same
            node, depth = child, depth + same
        return node, depth

    for path, prompt_tokens in calls:
        clock += 1
        node, hit = match(path[: max(prompt_tokens - 1, 0) // chunk_tokens])
        locked = []
        while node is not None:
            locked.append(node)
            node = node.parent
        while resident + -(-prompt_tokens // chunk_tokens) - hit > capacity:
            leaf = min((n for n in root.leaves() if n not in locked), key=lambda n: n.used)
            del leaf.parent.children[leaf.key[0]]
            resident -= len(leaf.key)
        clock += 1
        node, depth = match(path)
        if depth < len(path):
            node.children[path[depth]] = _Node(path[depth:], node, clock)
            resident += len(path) - depth
        hits.append(hit)
    return hits


def vllm_offload_hits(
    calls, chunk_tokens, gpu_capacity, host_capacity, output_tokens=None, step_tokens=8192
):
    """The CPU tier behind the pool: (hits on the GPU, loaded from host, stored to host)."""
    gpu = vllm_pool_hits(calls, chunk_tokens, gpu_capacity, output_tokens)
    user, rank, position = {}, {}, {}  # chunk -> last call that used it; call -> rank
    loaded, written = [0] * len(calls), [0] * len(calls)
    clock, last = 0, None

    def offer(keys, call):
        new = [c for c in keys if c not in user]
        others = sorted(set(user) - set(keys), key=lambda c: (rank[user[c]], -position[c]))
        short = len(new) - (host_capacity - len(user))
        if short > len(others):
            return False
        for chunk in others[: max(short, 0)]:
            del user[chunk]
        user.update(dict.fromkeys(keys, call))
        written[call] += len(new)
        return True

    for call, (path, prompt_tokens) in enumerate(calls):
        if prompt_tokens == 0:
            continue
        position.update((chunk, depth) for depth, chunk in enumerate(path))
        clock += 1
        rank[call] = clock
        loaded[call] = _leading(path[gpu[call] :], user)
        begin = gpu[call] + loaded[call] if loaded[call] else 0
        user.update(dict.fromkeys(path[gpu[call] : begin], call))
        done = min((gpu[call] + loaded[call]) * chunk_tokens, prompt_tokens - 1)
        # A load is a step of its own, which computes and stores nothing.
        steps = ([done] if loaded[call] else []) + list(
            range(done + step_tokens, prompt_tokens, step_tokens)
        )
        for number, tokens in enumerate([*steps, prompt_tokens, prompt_tokens]):
            full = tokens // chunk_tokens
            if full > begin and offer(path[begin:full], call):
                begin = full
            if number == 0 and last is not None:
                clock += 1
                rank[last] = clock
        last = call
    return gpu, loaded, written


def _leading(path, resident):
    """How many of a path's first chunks are among the resident ones."""
    return next((i for i, chunk in enumerate(path) if chunk not in resident), len(path))


# --- path engine ---------------------------------------------------------------------------


def chunks_of(path: list[int]) -> list[tuple[int, ...]]:
    """Return a path's chunks, head first; a chunk is its whole prefix."""
    return [tuple(path[: end + 1]) for end in range(len(path))]


def touch_order(calls, timing="sequential"):  # type: ignore[no-untyped-def]
    """Yield (call, chunks looked up or None, chunks touched), in order of time."""
    paths = [chunks_of(path) for path in calls.paths]
    prompts = [path[:size] for path, size in zip(paths, calls.prompts, strict=True)]
    if timing == "sequential":
        for call, path in enumerate(paths):
            yield call, prompts[call], path
        return
    running: list[int] = []

    def ended(now: float):  # type: ignore[no-untyped-def]
        done = sorted((calls.ends[call], call) for call in running if calls.ends[call] <= now)
        for _, call in done:
            running.remove(call)
            yield call, None, paths[call]

    for call, start in enumerate(calls.starts):
        yield from ended(start)
        yield call, prompts[call], prompts[call]
        running.append(call)
    yield from ended(float("inf"))


def path_distances(calls, timing="sequential"):  # type: ignore[no-untyped-def]
    """Return per call the (distance, owner) of each prompt chunk, None where it is new."""
    stack: list[tuple[int, ...]] = []
    owner: dict[tuple[int, ...], int] = {}
    found = [[] for _ in calls.paths]
    for call, looked, touched in touch_order(calls, timing):
        for chunk in looked or []:
            known = chunk in owner
            found[call].append((stack.index(chunk) + 1, owner[chunk]) if known else None)
        for chunk in reversed(touched):
            if chunk in owner:
                stack.remove(chunk)
            stack.insert(0, chunk)
            owner[chunk] = call
    return found


def lru_replay(calls, capacity: int, timing="sequential"):  # type: ignore[no-untyped-def]
    """Return per call the leading prompt chunks that hit in an LRU cache of one capacity."""
    cache: dict[tuple[int, ...], None] = {}
    hits = [0] * len(calls.paths)
    for call, looked, touched in touch_order(calls, timing):
        for chunk in looked or []:
            if chunk not in cache:
                break
            hits[call] += 1
        for chunk in reversed(touched):
            cache.pop(chunk, None)
            cache[chunk] = None
            if len(cache) > capacity:
                cache.pop(next(iter(cache)))
    return hits


def lru_writes(calls, capacity: int, timing="sequential"):  # type: ignore[no-untyped-def]
    """Return how many chunks were written to an LRU cache, reused, evicted unused, left unused."""
    stack: list[tuple[int, ...]] = []
    used: dict[tuple[int, ...], bool] = {}  # of the chunks in the cache
    written = reused = evicted = 0
    for _, looked, touched in touch_order(calls, timing):
        for chunk in looked or []:
            if chunk in used and not used[chunk]:
                used[chunk] = True
                reused += 1
        for chunk in touched:
            if chunk not in used:
                used[chunk] = False
                written += 1
        stack = touched + [chunk for chunk in stack if chunk not in touched]
        for chunk in stack[capacity:]:
            if used.pop(chunk, None) is False:
                evicted += 1
    return written, reused, evicted, list(used.values()).count(False)


def next_call_reuse(calls):  # type: ignore[no-untyped-def]
    """Return the share of new chunks of calls that the session's next call reads, or None."""
    seen: set[tuple[int, ...]] = set()
    waiting: dict[int, set[tuple[int, ...]]] = {}
    added = reused = 0
    for path, size, session in zip(calls.paths, calls.prompts, calls.sessions, strict=True):
        chunks = chunks_of(path)
        if session in waiting:
            added += len(waiting[session])
            reused += len(waiting[session] & set(chunks[:size]))
        waiting[session] = set(chunks) - seen
        seen.update(chunks)
    return reused / added if added else None


# --- sizing: a curve as a plain list of stack distances ---------------------------------------


class DistanceCurve:
    """What sizing needs of a curve, counted afresh on each question."""

    def __init__(
        self, distances: list[int], cold: int = 0, *, tail: int = 0, chunk_tokens: int = 16
    ) -> None:
        self.distances = distances
        self.chunk_tokens = chunk_tokens
        self.references = len(distances) + cold
        self.unique_chunks = cold
        self.prompt_tokens = self.references * chunk_tokens + tail

    def prefix_hit_ratio(self, capacity_chunks: int) -> float:
        hits = sum(distance <= capacity_chunks for distance in self.distances)
        return hits * self.chunk_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def ceiling(self) -> float:
        return self.prefix_hit_ratio(max(self.distances, default=0))

    def capacity_for(self, *, prefix_hit_ratio: float) -> int | None:
        for capacity in [0, *sorted(set(self.distances))]:
            if self.prefix_hit_ratio(capacity) >= prefix_hit_ratio:
                return capacity
        return None
