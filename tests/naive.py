"""Slow, obviously right twins of the kernels."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter, OrderedDict

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


# --- chunk engine and SHARDS: a Python list as LRU stack, the most recent chunk first -----------


def stack_distances(chunks):  # type: ignore[no-untyped-def]
    """Return each reference's distance in a flat stream, 0 at first touch."""
    stack, distances = [], []
    for chunk in chunks:
        distances.append(stack.index(chunk) + 1 if chunk in stack else 0)
        _to_front(stack, chunk)
    return distances


def call_distances(calls, order):  # type: ignore[no-untyped-def]
    """Return per call the distances of what it looks up; calls are (path, chunks to look up)."""
    stack, found = [], []
    for path, looked in calls:
        found.append([stack.index(c) + 1 if c in stack else 0 for c in path[:looked]])
        for chunk in path if order == "head-first" else reversed(path):
            _to_front(stack, chunk)
    return found


def cache_hits(calls, order, capacity):  # type: ignore[no-untyped-def]
    """Return (resident chunks, leading run of them) of each call in an LRU cache."""
    cache, hits = OrderedDict(), []
    for path, looked in calls:
        prompt = path[:looked]
        hits.append((sum(chunk in cache for chunk in prompt), _leading(prompt, cache)))
        for chunk in path if order == "head-first" else reversed(path):
            cache[chunk] = None
            cache.move_to_end(chunk)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits


def _to_front(stack, chunk):  # type: ignore[no-untyped-def]
    if chunk in stack:
        stack.remove(chunk)
    stack.insert(0, chunk)


def mixed(key: int) -> int:
    """Return splitmix64's finaliser of a key."""
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    return key ^ key >> 31


def sampling_hash(key: int, seed: int) -> int:
    """Return the 64 bits that decide whether SHARDS takes a chunk."""
    return mixed(key ^ mixed((seed + 1) * 0x9E3779B97F4A7C15 % 2**64))


def is_sampled(key: int, rate: float, seed: int) -> bool:
    """Tell whether SHARDS takes a chunk."""
    return sampling_hash(key, seed) < rate * 2**64


def calibrated(distances, units, rate, references, cold_references):  # type: ignore[no-untyped-def]
    """Return a fixed-rate sample's hits within 0, 1, ... sampled chunks, in the whole stream.

    `distances` and `units` are those of its references; chunks are as many as are cold.
    """
    a = 1 / rate - 1
    seen, cold_seen = {}, {}
    refs, colds = Counter(units), Counter(u for u, d in zip(units, distances, strict=True) if not d)
    c, g = [], []
    for unit, distance in zip(units, distances, strict=True):
        before, cold_before = seen.get(unit, 0), cold_seen.get(unit, 0)
        c.append(a * (cold_before + (0 if distance else before + 1)))
        g.append(a * ((before + 1) ** 3 - before**3))
        seen[unit] = before + 1
        cold_seen[unit] = cold_before + (not distance)
    missing = references - len(distances) / rate
    more_cold = cold_references - sum(colds.values()) / rate
    # The weights (1 + p*c + q*g) / rate must make up for what is missing of both totals.
    total_c, total_g = sum(c) / rate, sum(g) / rate
    cold_c = sum(x for x, d in zip(c, distances, strict=True) if not d) / rate
    cold_g = sum(x for x, d in zip(g, distances, strict=True) if not d) / rate
    determinant = cold_c * total_g - cold_g * total_c
    if determinant > 1e-9 * cold_c * total_g:
        p = (more_cold * total_g - missing * cold_g) / determinant
        q = (missing * cold_c - more_cold * total_c) / determinant
    else:
        p, q = 0, missing / total_g
    variance = a / rate * sum(n**2 for n in refs.values())
    covariance = a / rate * sum(refs[u] * colds[u] for u in refs)
    cold_variance = a / rate * sum(n**2 for n in colds.values())
    slope = covariance / cold_variance
    unexplained = missing - slope * more_cold
    head = 0
    if q > 0:
        head = max(refs.values()) / sum(n**2 for n in refs.values()) ** 0.5
        if unexplained > 0:
            left = max(variance - slope * covariance, 0)
            head = max(head, 1 - 1.5**2 * left / unexplained**2)
    in_front = head * q * sum(x for x, d in zip(g, distances, strict=True) if d) / rate
    hits, highest = [0], 0
    for capacity in range(1, sum(colds.values()) + 1):
        within = [i for i, d in enumerate(distances) if 0 < d <= capacity]
        sum_of = sum(1 + p * c[i] + (1 - head) * q * g[i] for i in within) / rate + in_front
        highest = max(highest, min(sum_of, references - cold_references))
        hits.append(highest)
    return hits


def distances_by_position(chunks):  # type: ignore[no-untyped-def]
    """Return what `stack_distances` does, from a sorted list of last positions."""
    last, positions, distances = {}, [], []
    for now, chunk in enumerate(chunks):
        distances.append(0)
        if chunk in last:
            index = bisect_left(positions, last[chunk])
            distances[-1] = len(positions) - index
            del positions[index]
        positions.append(now)
        last[chunk] = now
    return distances


# ---- Report: a workload of one-chunk calls, from nothing but their distances


class DistanceWorkload:
    """A workload whose call i is one chunk with the i-th distance; what is cold never hits."""

    notes = ()

    onset_notes = ()

    def onsets(self, settings):
        return [None] * len(settings)

    def detail(self, cases, recover, bytes_per_token):
        return None

    def __init__(self, curve, facts, chunk_tokens=16):
        self.curve, self.facts, self.chunk_tokens = curve, facts, chunk_tokens
        self.distances = [*curve.distances, *[None] * (curve.references - len(curve.distances))]

    def host_chunk_tokens(self, backend):
        return self.chunk_tokens

    def host_chunks(self, backend, rank_bytes, kv_bytes_per_token):
        return rank_bytes // (self.chunk_tokens * kv_bytes_per_token)

    def smallest_pool(self, backend):
        return 1

    def use(self, backend, pool_tokens, host_chunks):
        import numpy as np

        from agentkv_trace.tiers.use import TierUse

        def tokens(flags):
            return np.array(flags, np.int64) * self.chunk_tokens

        pool = pool_tokens // self.chunk_tokens
        found = []
        for host in host_chunks:
            gpu = [d is not None and d <= pool for d in self.distances]
            either = [d is not None and d <= max(pool, host) for d in self.distances]
            stored = [host > 0 and not (d is not None and d <= host) for d in self.distances]
            kept = np.zeros(len(self.distances), np.int64)
            found.append(
                TierUse(
                    tokens([True] * len(self.distances)),
                    tokens(gpu),
                    tokens(either) - tokens(gpu),
                    tokens(stored),
                    kept,
                    host * self.chunk_tokens,
                )
            )
        return found


# ---- Host tiers: each call gives (GPU hits, restored, written, evicted before reuse) in chunks


class _Use:
    """Counts what is written to a host tier and what leaves it unused."""

    def __init__(self):
        self.used, self.rows = set(), []

    def write(self, chunk):
        self.used.discard(chunk)
        self.written += 1

    def evict(self, chunk):
        self.evicted += chunk not in self.used

    def start(self):
        self.written = self.evicted = 0

    def end(self, gpu, restored):
        self.rows.append((gpu, restored, self.written, self.evicted))


def ideal_tier(calls, capacity):
    """An LRU stack of (whole path, chunks of its prompt): gives (hits, written, evicted)."""
    stack, use = [], _Use()
    for path, prompt in calls:
        use.start()
        resident = stack[:capacity]
        hits = _leading(path[:prompt], resident)
        use.used.update(path[:hits])
        for chunk in path:
            if chunk not in resident:
                use.write(chunk)
        stack = path + [c for c in stack if c not in path]
        for chunk in {*resident, *path} - set(stack[:capacity]):
            use.evict(chunk)
        use.end(hits, 0)
    return [(hits, written, evicted) for hits, _, written, evicted in use.rows]


def simple_eager(calls, chunk_tokens, pool, capacity):
    """vLLM's second pool: missing chunks are appended, loaded ones move back, head first."""
    gpu = vllm_pool_hits(calls, chunk_tokens, pool)
    host, use = OrderedDict(), _Use()
    for (path, tokens), on_gpu in zip(calls, gpu, strict=True):
        use.start()
        hit = on_gpu
        while hit < max(tokens - 1, 0) // chunk_tokens and path[hit] in host:
            host.move_to_end(path[hit])
            hit += 1
        use.used.update(path[:hit])
        missing = [chunk for chunk in path if chunk not in host][:capacity]
        while len(host) + len(missing) > capacity:
            use.evict(host.popitem(last=False)[0])
        for chunk in missing:
            use.write(chunk)
            host[chunk] = None
        use.end(on_gpu, hit - on_gpu)
    return use.rows


def simple_lazy(calls, chunk_tokens, pool, capacity):
    """An LRU pool whose evicted chunks go to a second one unless they are there."""
    gpu, host, use = OrderedDict(), OrderedDict(), _Use()
    for path, tokens in calls:
        use.start()
        most = max(tokens - 1, 0) // chunk_tokens
        on_gpu = _leading(path[:most], gpu)
        hit = on_gpu
        while hit < most and path[hit] in host:
            host.move_to_end(path[hit])
            hit += 1
        use.used.update(path[:hit])
        for chunk in path:
            gpu.pop(chunk, None)
        while len(gpu) + -(-tokens // chunk_tokens) > pool:
            chunk = gpu.popitem(last=False)[0]
            if chunk not in host:
                if len(host) == capacity:
                    use.evict(host.popitem(last=False)[0])
                use.write(chunk)
                host[chunk] = None
        for chunk in reversed(path):
            gpu[chunk] = None
        use.end(on_gpu, hit - on_gpu)
    return use.rows


class _Copy(_Node):
    """A node of the tree with copies on the GPU and in host memory."""

    def __init__(self, key, parent, used):
        super().__init__(key, parent, used)
        self.gpu, self.host, self.met, self.hit = True, False, 0, False

    def all(self):
        yield self
        for child in self.children.values():
            yield from child.all()


class HiCache:
    """SGLang's two tiers on a tree of nodes; threshold 0 is write-back."""

    def __init__(self, pool, capacity, threshold):
        self.free, self.room, self.threshold = pool, capacity, threshold
        self.root, self.clock, self.doubles = _Copy([], None, 0), 0, []

    def nodes(self):
        return [node for node in self.root.all() if node is not self.root]

    def match(self, path):
        self.clock += 1
        node, found = self.root, []
        while path and path[0] in node.children:
            child = node.children[path[0]]
            child.used = self.clock
            same = _leading(child.key, path)
            if same < len(child.key):
                upper = _Copy(child.key[:same], node, self.clock)
                for name in ("gpu", "host", "met", "hit"):
                    setattr(upper, name, getattr(child, name))
                node.children[path[0]] = upper
                child.key, child.parent = child.key[same:], upper
                upper.children[child.key[0]] = child
                if child in self.doubles:
                    self.doubles[self.doubles.index(child)] = upper
                    self.doubles.append(child)
                found.append(upper)
                break
            found.append(child)
            node, path = child, path[same:]
        return found

    def copy(self, node):
        if self.room < len(node.key):
            freed = 0
            while freed < len(node.key) and self.doubles:
                other = self.doubles.pop(0)
                other.host = other.hit = False
                freed += len(other.key)
            while freed < len(node.key):
                leaves = [
                    n
                    for n in self.nodes()
                    if n.host and not n.gpu and not n.children and n not in self.loading
                ]
                if not leaves:
                    break
                other = min(leaves, key=lambda n: n.used)
                self.evicted += 0 if other.hit else len(other.key)
                freed += len(other.key)
                del other.parent.children[other.key[0]]
            self.room += freed
        if self.room < len(node.key):
            return False
        self.room -= len(node.key)
        node.host, node.hit = True, False
        self.written += len(node.key)
        return True

    def make_room(self, needed):
        while self.free < needed:
            leaves = [
                n for n in self.nodes() if n.gpu and not any(c.gpu for c in n.children.values())
            ]
            if not leaves:
                break
            node = min(leaves, key=lambda n: n.used)
            if self.threshold == 0:
                if node.host:
                    self.doubles.remove(node)
                else:
                    self.copy(node)
            node.gpu = False
            self.free += len(node.key)
            if not node.host:
                del node.parent.children[node.key[0]]

    def call(self, path, tokens, chunk_tokens):
        self.written = self.evicted = 0
        self.loading = []
        most = max(tokens - 1, 0) // chunk_tokens
        found = self.match(path[:most])
        for node in found:
            node.hit = node.hit or node.host
        gpu = sum(len(n.key) for n in found if n.gpu)
        self.loading = [n for n in found if not n.gpu]
        restored = sum(len(n.key) for n in self.loading)
        self.make_room(restored)
        self.free -= restored
        for node in reversed(self.loading):
            node.gpu = True
            if self.threshold == 0:
                self.doubles.append(node)
        self.loading = []
        self.make_room(-(-tokens // chunk_tokens) - gpu - restored)
        found = self.match(path)
        for node in found:
            if node.gpu:
                node.met += 1
            else:
                node.gpu = True
                self.free -= len(node.key)
                if self.threshold == 0:
                    self.doubles.append(node)
        rest = path[sum(len(n.key) for n in found) :]
        if rest:
            parent = found[-1] if found else self.root
            leaf = _Copy(rest, parent, self.clock + 1)
            self.clock += 1
            for node in found:
                node.used = self.clock
            leaf.met = 1
            parent.children[rest[0]] = leaf
            self.free -= len(rest)
            found.append(leaf)
        if self.threshold:
            for node in found:
                if node.host:
                    continue
                if node.met < self.threshold or not self.copy(node):
                    break
        return gpu, restored, self.written, self.evicted


def hicache(calls, chunk_tokens, pool, capacity, threshold):
    """Replay SGLang's two tiers."""
    cache = HiCache(pool, capacity, threshold)
    return [cache.call(list(path), tokens, chunk_tokens) for path, tokens in calls]


def lmcache_in_process_use(calls, capacity):
    """As `lmcache_in_process_hits`, with writes and evictions; small tiers store what fits."""
    cache, use, rows = OrderedDict(), _Use(), []
    for path, _ in calls:
        use.start()
        hit = _leading(path, cache)
        for chunk in reversed(path[:hit]):
            use.used.add(chunk)
            cache.move_to_end(chunk)
        stored = path[hit:][: capacity - hit]
        while len(cache) + len(stored) > capacity:
            use.evict(cache.popitem(last=False)[0])
        for chunk in stored:
            if chunk not in cache:
                use.write(chunk)
                cache[chunk] = None
        rows.append((hit, use.written, use.evicted))
    return rows


def lmcache_server_use(calls, capacity, watermark=0.8, evicted_share=0.2):
    """As `lmcache_server_hits`, with writes and evictions."""
    cache, use, rows = OrderedDict(), _Use(), []
    for path, _ in calls:
        use.start()
        hit = _leading(path, cache)
        use.used.update(path[:hit])
        if len(set(cache) | set(path)) <= capacity:
            for chunk in path:
                if chunk not in cache:
                    use.write(chunk)
                    cache[chunk] = None
        for chunk in reversed(path):
            if chunk in cache:
                cache.move_to_end(chunk)
        if len(cache) >= watermark * capacity:
            for _ in range(int(evicted_share * len(cache))):
                use.evict(cache.popitem(last=False)[0])
        rows.append((hit, use.written, use.evicted))
    return rows


# --- replay: one engine step by step, its pool a list of chunks ---------------------------------


class ReplayTwin:
    """A GPU pool with the chunks of running calls held, least recent first; no host tier.

    calls: dicts of `path` (chunks), `prompt` (chunks of it that are prompt), `output` (tokens) and
    `at` (arrival). A step takes 1 and computes up to `step_chunks` chunks of prompts, first come
    first served; a prompt is looked up when the prompts taken up before it leave tokens in a step.
    """

    def __init__(self, calls, capacity, step_chunks):  # type: ignore[no-untyped-def]
        self.calls, self.capacity, self.step_chunks = calls, capacity, step_chunks
        self.idle, self.held = [], Counter()
        self.waiting, self.queue, self.batch, self.decoding = [], [], [], []
        self.hits, self.ends = {}, {}

    def run(self):  # type: ignore[no-untyped-def]
        """Return hits in chunks and the time of the end of each call."""
        now, coming = 0.0, sorted(range(len(self.calls)), key=lambda i: (self.calls[i]["at"], i))
        batch_end = None
        while coming or self.waiting or self.queue or self.batch or self.decoding:
            ends = [end for end, _ in self.decoding] + ([batch_end] if self.batch else [])
            if ends and (not coming or min(ends) <= self.calls[coming[0]]["at"]):
                now = min(ends)
                over = sorted(i for end, i in self.decoding if end <= now)
                self.decoding = [(end, i) for end, i in self.decoding if end > now]
                if self.batch and batch_end <= now:
                    for i in self.batch:
                        if self.calls[i]["output"] <= 1:
                            over.append(i)
                        else:
                            self.decoding.append((now + self.calls[i]["output"] - 1, i))
                    self.batch = []
                for i in over:
                    self._end(i, now)
            else:
                now = self.calls[coming[0]]["at"]
                self.waiting.append(coming.pop(0))
            if coming and self.calls[coming[0]]["at"] <= now:
                continue
            self._take_up()
            if not self.batch and self.queue:
                batch_end = now + self._start()
        return self.hits, self.ends

    def _take_up(self):  # type: ignore[no-untyped-def]
        taken = self.batch + self.queue
        while self.waiting and sum(self._work(i) for i in taken) < self.step_chunks:
            i = self.waiting[0]
            prompt = self.calls[i]["path"][: self.calls[i]["prompt"]]
            hit = _leading(prompt, self._resident())
            spare = [c for c in self.idle if c not in prompt]
            new = [c for c in prompt if c not in self._resident()]
            if len(new) > self.capacity - len(self._resident()) + len(spare):
                break
            self.waiting.pop(0)
            self._hold(prompt)
            self.hits[i] = hit
            self.queue.append(i)
            taken.append(i)

    def _work(self, i):  # type: ignore[no-untyped-def]
        return max(self.calls[i]["prompt"] - self.hits[i], 1 / 1000)

    def _start(self):  # type: ignore[no-untyped-def]
        self.batch = [self.queue.pop(0)]
        tokens = self._work(self.batch[0])
        steps = -int(-tokens // self.step_chunks)
        while self.queue and tokens + self._work(self.queue[0]) <= steps * self.step_chunks:
            tokens += self._work(self.queue[0])
            self.batch.append(self.queue.pop(0))
        return steps

    def _resident(self):  # type: ignore[no-untyped-def]
        return set(self.idle) | set(self.held)

    def _hold(self, chunks):  # type: ignore[no-untyped-def]
        self.idle = [c for c in self.idle if c not in chunks]
        self.held.update(chunks)
        while len(self._resident()) > self.capacity:
            self.idle.pop(0)

    def _end(self, i, now):  # type: ignore[no-untyped-def]
        path, prompt = self.calls[i]["path"], self.calls[i]["prompt"]
        spare = [c for c in self.idle if c not in path]
        new = [c for c in path if c not in self._resident()]
        keep = path
        if len(new) > self.capacity - len(self._resident()) + len(spare):
            # Only where nobody can be preempted; tests leave room for it otherwise.
            keep = path[:prompt]
        self._hold(keep[prompt:])
        for chunk in reversed(keep):
            self.held[chunk] -= 1
            if not self.held[chunk]:
                del self.held[chunk]
                self.idle.append(chunk)
        self.ends[i] = now


# --- time to live --------------------------------------------------------------------------


def ttl_replay(drawn, lifetime, overlap=False):  # type: ignore[no-untyped-def]
    """Return each call's hits, by a table of when each chunk was last touched.

    `drawn` are calls as in strategies.Calls; a chunk is named by its whole prefix. With overlap a
    call touches its prompt at its start and its path at its end.
    """
    touched, hits, running = {}, [], []
    for path, prompt, now, end in zip(
        drawn.paths, drawn.prompts, drawn.starts, drawn.ends, strict=True
    ):
        for ended, chunks in sorted(running, key=lambda call: call[0]):
            if ended <= now:
                touched.update(dict.fromkeys(chunks, ended))
        running = [call for call in running if call[0] > now]
        chunks = [tuple(path[: depth + 1]) for depth in range(len(path))]
        found = 0
        for chunk in chunks[:prompt]:
            if chunk not in touched or now - touched[chunk] > lifetime:
                break
            found += 1
        hits.append(found)
        touched.update(dict.fromkeys(chunks[:prompt] if overlap else chunks, now))
        if overlap:
            running.append((end, chunks))
    return hits


# --- replay: when calls start, agent by agent -----------------------------------------------------


def closed_loop_starts(plan, lasts, agents):  # type: ignore[no-untyped-def]
    """Return when each call of a plan starts: families one after another, the next free agent's."""
    calls = len(plan.call)
    waits_for = [[] for _ in range(calls)]
    for source, target in zip(plan.edge_from, plan.edge_to, strict=True):
        waits_for[target].append(source)
    starts = [0.0] * calls
    free = [0.0] * agents
    for family in range(len(plan.release)):
        begin = min(free)
        free.remove(begin)
        mine = [call for call in range(calls) if plan.family[call] == family]
        done = set()
        while len(done) < len(mine):
            for call in mine:
                if call not in done and all(before in done for before in waits_for[call]):
                    ends = [starts[before] + lasts[before] for before in waits_for[call]]
                    starts[call] = max(ends, default=begin) + plan.gap[call]
                    done.add(call)
        free.append(max(starts[call] + lasts[call] for call in mine))
    return starts


# --- report: a trace over time, moment by moment -------------------------------------------------


def live_peaks(calls, count):  # type: ignore[no-untyped-def]
    """Return the most live tokens and sessions in each bucket, between any two events.

    calls: (session, start, end, prompt tokens), no two events at one time.
    """
    last = max(end for _, _, end, _ in calls)
    first = min(start for _, start, _, _ in calls)
    times = sorted({time - first for _, start, end, _ in calls for time in (start, end)})
    last -= first

    def bucket(time):  # type: ignore[no-untyped-def]
        return min(int(time / max(last, 1e-9) * count), count - 1)

    tokens, agents = [0] * count, [0] * count
    for low, high in itertools.pairwise([*times, times[-1]]):
        now = first + (low + high) / 2
        live = 0
        going = 0
        for name in {call[0] for call in calls}:
            mine = [call for call in calls if call[0] == name]
            if min(c[1] for c in mine) < now < max(c[2] for c in mine):
                begun = [call for call in mine if call[1] < now]
                live += max(begun, key=lambda call: call[1])[3]
                going += 1
        for at in range(bucket(low), bucket(high) + 1):
            tokens[at] = max(tokens[at], live)
            agents[at] = max(agents[at], going)
    return tokens, agents


def bucket_working_sets(distances, buckets, count, recover):  # type: ignore[no-untyped-def]
    """Return the smallest capacity with a share of each bucket's hits; distances of each call."""
    found = []
    for at in range(count):
        mine = sorted(
            distance
            for call, bucket in zip(distances, buckets, strict=True)
            for distance in call
            if bucket == at and distance is not None
        )
        found.append(mine[math.ceil(recover * len(mine) - 1e-9) - 1] if mine else None)
    return found


# --- replay: what a cache that loses nothing could hit at most ------------------------------------


def brought_before(calls, ties):  # type: ignore[no-untyped-def]
    """Return for each call the longest prompt prefix that other calls brought to its replica.

    calls: dicts of `path` (chunks), `prompt` (chunks of it that are prompt), `replica`, `started`
    and `ended`. A prompt is there once its call is taken up, its output once the call has ended.
    ties: whether a call that was taken up at the same time counts as earlier.
    """
    longest = []
    for call in calls:
        best = 0
        for other in calls:
            earlier = other["started"] < call["started"]
            earlier |= ties and other["started"] == call["started"]
            if other is call or other["replica"] != call["replica"] or not earlier:
                continue
            there = other["path"]
            if other["ended"] > call["started"]:
                there = there[: other["prompt"]]
            best = max(best, shared_prefix(call["path"][: call["prompt"]], there))
        longest.append(best)
    return longest


# --- report: distances by powers of two, sums by session -----------------------------------------


def distance_bins(distances):  # type: ignore[no-untyped-def]
    """Return the share of all references by (above, up to) in chunks, and of cold ones.

    distances: of the chunks of each call, None where a chunk is cold.
    """
    every = [each for call in distances for each in call]
    bins: dict[tuple[int, int], float] = {}
    for distance in every:
        if distance is not None:
            high = 1
            while high < distance:
                high *= 2
            low = high // 2 if high > 1 else 0
            bins[low, high] = bins.get((low, high), 0) + 1 / len(every)
    return bins, sum(each is None for each in every) / max(len(every), 1)


def session_sums(calls, gpu_hits):  # type: ignore[no-untyped-def]
    """Return (calls, prompt chunks, chunks seen before, GPU hits in tokens) by session.

    calls: (session, distances of the prompt's chunks, None where cold).
    """
    sums = {}
    for (name, call), hit in zip(calls, gpu_hits, strict=True):
        count, chunks, seen, gpu = sums.get(name, (0, 0, 0, 0))
        known = sum(each is not None for each in call)
        sums[name] = (count + 1, chunks + len(call), seen + known, gpu + hit)
    return sums
