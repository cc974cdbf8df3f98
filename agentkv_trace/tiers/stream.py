"""The calls a tier simulator reads: dense chunk ids in one flat array, and the checks on them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class CallStream:
    """Calls in order of time; `call_stream` builds and checks one.

    ids: int64[n], the chunks of each prompt, head first; dense, and one id always has the same
        parent and position. The partial tail of a prompt has no id.
    offsets: int64[calls + 1], where each call's chunks begin in `ids`.
    prompt_tokens: int64[calls].
    parents: int64[unique], the id before each id in its path, -1 for a head.
    """

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    chunk_tokens: int
    parents: NDArray[np.int64]

    @property
    def calls(self) -> int:
        """Return the number of calls."""
        return len(self.prompt_tokens)

    @property
    def unique(self) -> int:
        """Return the number of distinct chunks."""
        return len(self.parents)

    @property
    def has_tail(self) -> NDArray[np.bool_]:
        """Return, per call, whether its prompt ends in a partial chunk: bool[calls]."""
        tail: NDArray[np.bool_] = self.prompt_tokens % self.chunk_tokens != 0
        return tail

    @property
    def largest_call(self) -> int:
        """Return the chunks that the longest prompt occupies, its partial tail included."""
        longest = int(self.prompt_tokens.max(initial=0))
        return -(-longest // self.chunk_tokens)


def call_stream(
    keys: ArrayLike, offsets: ArrayLike, prompt_tokens: ArrayLike, chunk_tokens: int
) -> CallStream:
    """Build a stream of calls from their chunk keys and check that its paths form a tree.

    keys: uint64[n], or ids of any other integer type that are not negative: the full chunks of
        each prompt, head first.
    offsets: integers[calls + 1], from 0 to n.
    prompt_tokens: integers[calls]; call i has `prompt_tokens[i] // chunk_tokens` keys.
    Raises InputError where shapes, counts or parents do not fit. O(n).
    """
    starts = _integers(offsets, "offsets")
    tokens = _integers(prompt_tokens, "prompt_tokens")
    if chunk_tokens < 1:
        raise InputError(f"chunk_tokens is {chunk_tokens}: give a number of tokens above 0")
    if len(starts) != len(tokens) + 1:
        raise InputError(
            f"{len(starts)} offsets for {len(tokens)} calls: give one more offset than calls"
        )
    if (tokens < 0).any():
        raise InputError("a call has a negative prompt length: prompt_tokens must be 0 or more")
    ids, parents = densify(keys, starts)
    short = np.flatnonzero(np.diff(starts) != tokens // chunk_tokens)
    if len(short):
        call = int(short[0])
        raise InputError(
            f"call {call} has {starts[call + 1] - starts[call]} chunks but its {tokens[call]} "
            f"prompt tokens make {tokens[call] // chunk_tokens} of {chunk_tokens} tokens"
        )
    return CallStream(ids, starts, tokens, int(chunk_tokens), parents)


def densify(keys: ArrayLike, offsets: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give chunk keys ids by first appearance and find the parent of each.

    keys: uint64[n]; offsets: integers[calls + 1], from 0 to n.
    Returns ids int64[n], from 0 to unique - 1, and parents int64[unique] (-1 for a head).
    Raises InputError where a key follows two different keys, so that equal keys do not mean
    equal prefixes. Open addressing; O(n).
    """
    flat = np.asarray(keys)
    if flat.ndim != 1 or not (np.issubdtype(flat.dtype, np.integer) or flat.size == 0):
        raise InputError(f"chunk keys must be one row of integers, not {flat.dtype}{flat.shape}")
    if flat.size and np.issubdtype(flat.dtype, np.signedinteger) and flat.min() < 0:
        raise InputError("a chunk key is negative: keys are unsigned 64-bit numbers")
    starts = _integers(offsets, "offsets")
    if not len(starts) or starts[0] != 0 or starts[-1] != len(flat) or (np.diff(starts) < 0).any():
        raise InputError(f"offsets must rise from 0 to the number of chunk keys, {len(flat)}")
    ids, unique = _dense(np.require(flat, np.uint64, ["C", "W"]))
    parents = np.full(unique, -2, dtype=np.int64)
    conflict = _find_parents(ids, starts, parents)
    if conflict >= 0:
        call = int(np.searchsorted(starts, conflict, side="right")) - 1
        raise InputError(
            f"chunk {conflict - starts[call]} of call {call} followed another chunk before: keys "
            "must chain, so that equal keys mean equal whole prefixes"
        )
    return ids, parents


def check_capacities(capacities: ArrayLike, smallest: int = 1) -> NDArray[np.int64]:
    """Return capacities in chunks as int64[k], or raise InputError for those out of reach.

    smallest: what the largest call occupies. An engine never schedules a call that does not fit
    its pool, so a simulator has no answer below that.
    """
    sizes = np.atleast_1d(_integers(capacities, "capacities"))
    if (sizes < 1).any():
        raise InputError(f"a capacity of {sizes.min()} chunks: give 1 or more")
    if (sizes < smallest).any():
        raise InputError(
            f"a capacity of {sizes.min()} chunks cannot hold the largest call, which needs "
            f"{smallest}: the engine would never run it; give {smallest} or more"
        )
    return sizes


def each_capacity(
    simulate: Callable[[int, NDArray[np.int32]], object],
    capacities: NDArray[np.int64],
    *shape: int,
) -> NDArray[np.int32]:
    """Run one simulation per capacity, as many at a time as there are cores.

    simulate: takes a capacity and the int32[shape] result to fill, zeros at first; its kernel must
    not hold the GIL. Returns int32[k, *shape].
    """
    out = np.zeros((len(capacities), *shape), dtype=np.int32)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        # The largest first: it may run longest. list() passes an exception on.
        order = np.argsort(-capacities, kind="stable")
        list(pool.map(lambda row: simulate(int(capacities[row]), out[row]), order))
    return out


def _integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim > 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise InputError(f"{name} must be one row of integers, not {array.dtype}{array.shape}")
    # Writable too: a read-only array would compile the kernels a second time.
    return np.require(array, np.int64, ["C", "W"])


@kernel
def _dense(keys):  # type: ignore[no-untyped-def]
    """Give keys ids by first appearance. The table doubles before it is half full."""
    ids = np.empty(len(keys), np.int64)
    mask = np.int64(1023)
    table = np.full(mask + 1, -1, np.int64)
    first = np.empty(1024, np.uint64)
    unique = 0
    for i in range(len(keys)):
        key = keys[i]
        slot = _slot(key, mask)
        while table[slot] >= 0 and first[table[slot]] != key:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            if unique == len(first) // 2:
                grown = np.empty(2 * len(first), np.uint64)
                grown[:unique] = first[:unique]
                first = grown
                mask = 2 * mask + 1
                table = np.full(mask + 1, -1, np.int64)
                for known in range(unique):
                    slot = _slot(first[known], mask)
                    while table[slot] >= 0:
                        slot = (slot + 1) & mask
                    table[slot] = known
                slot = _slot(key, mask)
                while table[slot] >= 0:
                    slot = (slot + 1) & mask
            first[unique] = key
            table[slot] = unique
            unique += 1
        ids[i] = table[slot]
    return ids, unique


@kernel
def _slot(key, mask):  # type: ignore[no-untyped-def]
    # Shifts only: keys are hashes already, and a product would overflow without the compiler.
    key = key ^ (key >> np.uint64(32))
    key = key ^ (key >> np.uint64(15))
    return np.int64(key & np.uint64(mask))


@kernel
def _find_parents(ids, offsets, parents):  # type: ignore[no-untyped-def]
    """Fill in parents (-2: not seen) and return where an id has a second parent, or -1."""
    for call in range(len(offsets) - 1):
        parent = -1
        for i in range(offsets[call], offsets[call + 1]):
            if parents[ids[i]] == -2:
                parents[ids[i]] = parent
            elif parents[ids[i]] != parent:
                return i
            parent = ids[i]
    return -1
