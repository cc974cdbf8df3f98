"""Slow, obviously right twins of the kernels."""

from __future__ import annotations


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


def vllm_stack_hits(calls, chunk_tokens, capacity):
    """The LRU stack, where each chunk keeps the largest (position + partial slot) it ever had."""
    stack, needs, hits = [], {}, []
    for path, prompt_tokens in calls:
        most = max(prompt_tokens - 1, 0) // chunk_tokens
        hits.append(_leading(path[:most], [c for c in needs if needs[c] <= capacity]))
        stack = path + [c for c in stack if c not in path]
        slot = 1 if prompt_tokens % chunk_tokens else 0
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
    """A dict, oldest first; hits are touched tail first, new chunks are added head first."""
    cache, hits = {}, []
    for path, _ in calls:
        hit = _leading(path, cache)
        for chunk in reversed(path[:hit]):
            cache[chunk] = cache.pop(chunk)
        for _ in path[hit:]:
            if len(cache) + len(path) - hit > capacity:
                del cache[next(iter(cache))]
        for chunk in path[hit:]:
            cache.setdefault(chunk)
        hits.append(hit)
    return hits


def lmcache_server_hits(calls, chunk_tokens, capacity, watermark=0.8, evicted_share=0.2):
    """A dict, oldest first, with a watermark looked at after each call; stores that do not fit drop."""
    cache, hits = {}, []
    for path, _ in calls:
        hits.append(_leading(path, cache))
        if len(set(cache) | set(path)) <= capacity:
            cache.update(dict.fromkeys(path))
        for chunk in reversed(path):
            if chunk in cache:
                cache[chunk] = cache.pop(chunk)
        if len(cache) >= watermark * capacity:
            for _ in range(int(evicted_share * len(cache))):
                del cache[next(iter(cache))]
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
