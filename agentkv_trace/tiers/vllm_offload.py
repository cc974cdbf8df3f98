"""vLLM with its CPU tier (the offloading connector), replayed per capacity, one call at a time.

The pool on the GPU does not notice the tier: a loaded chunk takes a block and a key as a computed
one does. So `vllm.pool_hits` gives the GPU's hits, and only the tier is replayed here.

Its rules, which make it no stack and its hits not even monotone in its size:
* Each call ranks its chunks together, tail older than head. The rank is given when the call
  first uses the tier, and given anew when it is finalised: in the first step of the next call,
  after that step's store.
* The lookup goes on where the GPU's hit ends. Loaded chunks are refreshed.
* Each step of `step_tokens` offers the chunks it completed. Those not resident are stored, for
  which the least recent others are evicted, and all of them are refreshed. Offers begin behind
  what was loaded, so that the GPU's hits age in the tier then; where nothing was loaded they begin
  at the head, GPU hits included.
* An offer larger than the tier waits and is made again together with the next one.
* Full chunks of outputs are not offered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.stream import check_capacities, each_capacity
from agentkv_trace.tiers.vllm import pool_hits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.tiers.stream import CallStream

STEP_TOKENS = 8192


@dataclass(frozen=True)
class OffloadHits:
    """What each call gets from the two tiers and puts into the second, in chunks.

    gpu: int32[calls].
    host: int32[k, calls], loaded from host; a full hit counts whole, though the engine computes its
        last token again.
    written: int32[k, calls], stored to host.
    evicted: int32[k, calls], left the host during the call and were never looked up in it, on
        either tier, since they were written.
    """

    gpu: NDArray[np.int32]
    host: NDArray[np.int32]
    written: NDArray[np.int32]
    evicted: NDArray[np.int32]


def offload_hits(
    stream: CallStream,
    gpu_capacity: int,
    host_capacities: ArrayLike,
    output_tokens: ArrayLike | None = None,
    step_tokens: int = STEP_TOKENS,
) -> OffloadHits:
    """Replay vLLM's pool once and its CPU tier at each host size.

    gpu_capacity: usable blocks, at least what the largest call occupies. host_capacities: chunks,
    1 or more each. output_tokens: as for `vllm.pool_hits`. step_tokens: vLLM's
    `max_num_batched_tokens`. Raises InputError for numbers outside. O(references) per host size.
    """
    if step_tokens < 1:
        raise InputError(f"step_tokens is {step_tokens}: give 1 token or more")
    sizes = check_capacities(host_capacities)
    gpu = pool_hits(stream, [gpu_capacity], output_tokens)[0]

    def simulate(capacity: int, out: NDArray[np.int32]) -> None:
        _host(
            stream.ids,
            stream.offsets,
            stream.prompt_tokens,
            gpu,
            stream.unique,
            capacity,
            stream.chunk_tokens,
            int(step_tokens),
            out,
        )

    out = each_capacity(simulate, sizes, 3, stream.calls)
    return OffloadHits(gpu, out[:, 0].copy(), out[:, 1].copy(), out[:, 2].copy())


# after, before: rings of chunk ids, oldest first. Ring 0 holds the calls whose order is settled;
# the last three calls have a ring each, so that a rank given anew moves a whole ring. Ring r's gap
# is unique + r; before[chunk] is -1 where the chunk is not resident.


@kernel
def _host(ids, offsets, prompt, gpu, unique, capacity, chunk_tokens, step_tokens, out):  # type: ignore[no-untyped-def]
    after = np.full(unique + 4, -1, np.int32)
    before = np.full(unique + 4, -1, np.int32)
    for gap in range(unique, unique + 4):
        after[gap] = before[gap] = gap
    settled = unique
    finalised, last, mine = unique + 1, unique + 2, unique + 3
    offered = np.zeros(unique, np.int64)  # the last offer the chunk was part of
    reused = np.zeros(unique, np.bool_)  # whether a lookup met it since it was written
    offer = 0
    resident = 0
    for call in range(len(offsets) - 1):
        # An empty prompt never runs, so it finalises nothing.
        if prompt[call] == 0:
            continue
        start = offsets[call]
        chunks = offsets[call + 1] - start
        gpu_hit = np.int64(gpu[call])
        hit = gpu_hit
        while hit < chunks and before[ids[start + hit]] >= 0:
            hit += 1
        out[0, call] = hit - gpu_hit
        for i in range(start, start + hit):
            reused[ids[i]] = True
        for i in range(start + gpu_hit, start + hit):
            _unlink(after, before, ids[i])
            _prepend(after, before, mine, ids[i])
        # Until the last call is finalised, which is here where a load takes the first step, the
        # order is settled, last, finalised, mine; then it is settled + finalised, mine, last.
        final = bool(hit > gpu_hit)
        if final:
            _move_all(after, before, finalised, settled)
        next_offer = hit if final else 0
        done = min(hit * chunk_tokens, prompt[call] - 1)
        while done < prompt[call]:
            done = min(done + step_tokens, prompt[call])
            full = done // chunk_tokens
            if full > next_offer and full - next_offer <= capacity:
                offer += 1
                new = 0
                for i in range(start + next_offer, start + full):
                    offered[ids[i]] = offer
                    if before[ids[i]] < 0:
                        new += 1
                short = resident + new - capacity
                if short > 0:
                    resident -= short
                    short = _evict(after, before, offered, offer, settled, short, reused, out, call)
                    if not final:
                        short = _evict(
                            after, before, offered, offer, last, short, reused, out, call
                        )
                        short = _evict(
                            after, before, offered, offer, finalised, short, reused, out, call
                        )
                        short = _evict(
                            after, before, offered, offer, mine, short, reused, out, call
                        )
                    else:
                        short = _evict(
                            after, before, offered, offer, mine, short, reused, out, call
                        )
                        short = _evict(
                            after, before, offered, offer, last, short, reused, out, call
                        )
                for i in range(start + next_offer, start + full):
                    if before[ids[i]] >= 0:
                        _unlink(after, before, ids[i])
                    else:
                        reused[ids[i]] = False
                    _prepend(after, before, mine, ids[i])
                resident += new
                out[1, call] += new
                next_offer = full
            if not final:
                _move_all(after, before, finalised, settled)
                final = True
        finalised, last, mine = last, mine, finalised


@kernel
def _evict(after, before, offered, offer, gap, short, reused, out, call):  # type: ignore[no-untyped-def]
    """Drop up to `short` chunks of a ring, oldest first, none of this offer."""
    chunk = after[gap]
    while short > 0 and chunk != gap:
        following = after[chunk]
        if offered[chunk] != offer:
            _unlink(after, before, chunk)
            before[chunk] = -1
            short -= 1
            if not reused[chunk]:
                out[2, call] += 1
        chunk = following
    return short


@kernel
def _unlink(after, before, chunk):  # type: ignore[no-untyped-def]
    after[before[chunk]] = after[chunk]
    before[after[chunk]] = before[chunk]


@kernel
def _prepend(after, before, gap, chunk):  # type: ignore[no-untyped-def]
    """Put a chunk at the old end of a ring: in one call the deeper chunk is the older."""
    first = after[gap]
    before[chunk] = gap
    after[chunk] = first
    after[gap] = chunk
    before[first] = chunk


@kernel
def _move_all(after, before, source, target):  # type: ignore[no-untyped-def]
    """Put all chunks of a ring behind those of another."""
    if after[source] == source:
        return
    first, last = after[source], before[source]
    end = before[target]
    after[end] = first
    before[first] = end
    after[last] = target
    before[target] = last
    after[source] = before[source] = source
