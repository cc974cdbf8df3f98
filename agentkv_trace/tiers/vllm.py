"""vLLM's GPU block pool, one call at a time.

Two models. `needed_capacity` takes the plain stack's runs and gives what every capacity would
hit, in one pass; it is exact as long as no block is held twice (`duplicates_from`). `pool_hits`
keeps the pool's free queue itself, per capacity, and is exact always.

The pool's rules, beside those of an LRU stack:
* The last prompt token is always computed, so a hit ends at chunk (prompt_tokens - 1) //
  chunk_tokens. A prompt of full chunks that is resident whole gets its last chunk computed into a
  second block; the older copy keeps its place in the queue and is what later lookups find.
* A partial tail has no key. It takes a block while the call runs, and that block is the first to
  be reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.lru import hits_at, stack_runs
from agentkv_trace.tiers.stream import check_capacities, each_capacity

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.lru import RunTable
    from agentkv_trace.tiers.stream import CallStream


def needed_capacity(
    runs: RunTable,
    path_chunks: ArrayLike,
    has_tail: ArrayLike,
    refreshes: RunTable | None = None,
) -> NDArray[np.int64]:
    """Return the pool size that the first chunk of each run needs to be hit, int64[runs].

    runs: of `lru.stack_runs`, or of the path engine with sequential timing; each further chunk of
        a run needs one more.
    path_chunks: integers[calls], full chunks that each call touches, hit or not.
    has_tail: bool[calls], whether the call also took a block for a partial tail.
    refreshes: runs that calls touch beside those they look up, where there are such (the path
        engine's, where a path has outputs). Raises InputError where the lengths differ.

    A chunk survives a call if its stack position after that call, plus one where the call had a
    partial tail, fits the pool. The running maximum of that is the position itself, plus one if a
    call with a tail ran since the position last grew. A call moves down every chunk above the
    oldest it takes, so it moves just the owners later than its oldest owner, and all owners where
    it has cold chunks. One number therefore says which owners need one more: those up to the last
    call with a tail and not later than the oldest owner of any call since. O(runs + calls).
    """
    chunks = np.require(path_chunks, np.int64)
    tail = np.require(has_tail, np.bool_, ["C", "W"])
    calls = len(tail)
    if chunks.shape != tail.shape:
        raise InputError(f"{len(chunks)} path lengths for {calls} calls: give one each")
    oldest = np.full(calls, calls, np.int64)
    warm = np.zeros(calls, np.int64)
    for table in (runs,) if refreshes is None else (runs, refreshes):
        np.minimum.at(oldest, table.call, table.owner)
        np.add.at(warm, table.call, table.length)
    oldest[warm < chunks] = -1
    limit = _limits(oldest, tail)
    needed: NDArray[np.int64] = runs.first_distance + (runs.owner <= limit[runs.call])
    return needed


def one_pass_hits(stream: CallStream, capacities: ArrayLike) -> NDArray[np.int32]:
    """Return each call's hit in chunks at each pool size in one pass, int32[k, calls].

    capacities: usable blocks, vLLM's `num_gpu_blocks` less its null block. Exact below
    `duplicates_from` and from the largest call up. Raises InputError for capacities below 1.
    """
    runs = stack_runs(stream)
    needed = needed_capacity(runs, np.diff(stream.offsets), stream.has_tail)
    hits = hits_at(runs, needed, stream.calls, capacities)
    return np.minimum(hits, _most_hit(stream).astype(np.int32))


def duplicates_from(stream: CallStream) -> int | None:
    """Return the smallest pool in which a block is held twice, or None if there is none.

    That is where a prompt without a partial tail is resident whole. Below, `one_pass_hits` is
    exact; from there on only `pool_hits` is.
    """
    runs = stack_runs(stream)
    chunks = np.diff(stream.offsets)
    needed = needed_capacity(runs, chunks, stream.has_tail)
    whole = (runs.depth + runs.length == chunks[runs.call]) & ~stream.has_tail[runs.call]
    last = (needed + runs.length - 1)[whole]
    return int(last.min()) if len(last) else None


def pool_hits(
    stream: CallStream, capacities: ArrayLike, output_tokens: ArrayLike | None = None
) -> NDArray[np.int32]:
    """Replay vLLM's free queue at each pool size; return hits in chunks, int32[k, calls].

    capacities: usable blocks, at least what the largest call occupies; InputError otherwise.
    output_tokens: integers[calls], by default 1 each, whose token is sampled and never stored.
    Outputs take blocks of their own, which no other call shares.
    O(references) per capacity and O(capacity) memory.
    """
    output = np.ones(stream.calls, np.int64)
    if output_tokens is not None:
        output = np.require(output_tokens, np.int64)
        if output.shape != (stream.calls,) or (output < 0).any():
            raise InputError(f"output_tokens must be {stream.calls} numbers, 0 or more each")
    stored = stream.prompt_tokens + np.maximum(output - 1, 0)
    slots = -(-stored // stream.chunk_tokens)
    sizes = check_capacities(capacities, int(slots.max(initial=0)))
    # A pool larger than all blocks ever asked for never evicts; no need to lay it out.
    all_slots = max(int(slots.sum()), 1)
    full, most = stored // stream.chunk_tokens, _most_hit(stream)

    def simulate(capacity: int, hits: NDArray[np.int32]) -> None:
        pool = min(capacity, all_slots)
        _pool(stream.ids, stream.offsets, most, full, slots, stream.unique, pool, hits)

    return each_capacity(simulate, sizes, stream.calls)


def _most_hit(stream: CallStream) -> NDArray[np.int64]:
    """Return how many chunks of each prompt may hit: never the last token's."""
    return np.maximum(stream.prompt_tokens - 1, 0) // stream.chunk_tokens


@kernel
def _limits(oldest, tail):  # type: ignore[no-untyped-def]
    """Return, per call, up to which owner a chunk needs one block more."""
    limits = np.empty(len(tail), np.int64)
    limit = -1
    for call in range(len(tail)):
        limits[call] = limit
        limit = call if tail[call] else min(limit, oldest[call])
    return limits


@kernel
def _pool(ids, offsets, most, full, slots, unique, capacity, hits):  # type: ignore[no-untyped-def]
    """Replay one pool. Blocks are numbers; the free queue is a ring with `capacity` as its gap.

    A chunk's copies are a list too, oldest first, since only the oldest is ever looked up.
    """
    after = np.empty(capacity + 1, np.int32)
    before = np.empty(capacity + 1, np.int32)
    for block in range(capacity + 1):
        after[block] = block + 1
        before[block] = block - 1
    after[capacity] = 0
    before[0] = capacity
    holds = np.full(capacity, -1, np.int32)  # the block's chunk; -1 no key, -2 output
    oldest_copy = np.full(unique, -1, np.int32)
    newest_copy = np.full(unique, -1, np.int32)
    newer = np.full(capacity, -1, np.int32)
    older = np.full(capacity, -1, np.int32)
    held = np.empty(max(slots.max(), 1) if len(slots) else 1, np.int32)
    for call in range(len(offsets) - 1):
        start = offsets[call]
        chunks = offsets[call + 1] - start
        hit = 0
        while hit < most[call]:
            block = oldest_copy[ids[start + hit]]
            if block < 0:
                break
            after[before[block]] = after[block]
            before[after[block]] = before[block]
            held[hit] = block
            hit += 1
        for slot in range(hit, slots[call]):
            block = after[capacity]
            after[capacity] = after[block]
            before[after[block]] = capacity
            held[slot] = block
            chunk = holds[block]
            if chunk >= 0:
                if older[block] >= 0:
                    newer[older[block]] = newer[block]
                else:
                    oldest_copy[chunk] = newer[block]
                if newer[block] >= 0:
                    older[newer[block]] = older[block]
                else:
                    newest_copy[chunk] = older[block]
            if slot < chunks:
                chunk = ids[start + slot]
                holds[block] = chunk
                newer[block] = -1
                older[block] = newest_copy[chunk]
                if newest_copy[chunk] >= 0:
                    newer[newest_copy[chunk]] = block
                else:
                    oldest_copy[chunk] = block
                newest_copy[chunk] = block
            else:
                holds[block] = -2 if slot < full[call] else -1
        for slot in range(slots[call] - 1, -1, -1):
            block = held[slot]
            if holds[block] == -1:
                after[block] = after[capacity]
                before[block] = capacity
            else:
                after[block] = capacity
                before[block] = before[capacity]
            after[before[block]] = block
            before[after[block]] = block
        hits[call] = hit
