"""The prefix tree of a trace: from chunk keys to each call's base."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentkv_trace._jit import kernel

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]


@kernel
def _slot(slot_row, slot_key, key, mask):  # type: ignore[no-untyped-def]
    """Return the slot that holds `key`, or the free one where it belongs."""
    slot = np.int64((key ^ (key >> np.uint64(32))) & np.uint64(mask))
    while slot_row[slot] >= 0 and slot_key[slot] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def _owner(up, start, call, depth):  # type: ignore[no-untyped-def]
    """Return the latest call that touched depth-1 of a path that `call` contains.

    `start[c]` is where the part of c's path begins that no later call has touched, and
    `up[c]` the call that took what is before it.
    """
    while start[call] >= depth:
        above = up[call]
        # Whoever is sent on from `call` is sent on from `above` too: skip it next time.
        if start[above] >= start[call]:
            up[call] = up[above]
        call = above
    return call


@kernel
def _link(known, known_chunks, offsets, keys, slot_row, slot_key):  # type: ignore[no-untyped-def]
    calls = known.size
    mask = slot_row.size - 1
    base = np.full(calls, -1, np.int32)
    base_chunks = np.zeros(calls, np.int32)
    up = np.arange(calls).astype(np.int32)
    start = np.zeros(calls, np.int32)
    for call in range(calls):
        found = known[call]
        at = offsets[call]
        end = offsets[call + 1]
        while at < end:
            slot = _slot(slot_row, slot_key, keys[at], mask)
            if slot_row[slot] < 0:
                break
            found = slot_row[slot]
            at += 1
        depth = known_chunks[call] + np.int32(at - offsets[call])
        for new in range(at, end):
            slot = _slot(slot_row, slot_key, keys[new], mask)
            slot_row[slot] = call
            slot_key[slot] = keys[new]
        if depth == 0:
            continue
        owner = _owner(up, start, found, depth)
        base[call] = owner
        base_chunks[call] = depth
        while True:
            before = start[owner]
            above = up[owner]
            start[owner] = depth
            up[owner] = call
            depth = before
            if depth == 0:
                break
            owner = _owner(up, start, above, depth)
    return base, base_chunks


def link(known: Int32, known_chunks: Int32, offsets: Int64, keys: UInt64) -> tuple[Int32, Int32]:
    """Find the longest prefix that each call's path shares with an earlier call's path.

    Calls come in row order. The first `known_chunks[i]` chunks of call i are also the first
    of the earlier call `known[i]` (0 and -1 where nothing is known); `keys[offsets[i]:
    offsets[i+1]]` are the keys of the rest of its path. Returns `base` and `base_chunks`,
    int32[calls] each: the latest of the earlier calls that share the longest prefix, and
    that prefix in chunks; -1 and 0 where nothing is shared.
    """
    slots = 1 << max(4, (2 * keys.size - 1).bit_length())
    base, base_chunks = _link(
        np.ascontiguousarray(known, np.int32),
        np.ascontiguousarray(known_chunks, np.int32),
        np.ascontiguousarray(offsets, np.int64),
        np.ascontiguousarray(keys, np.uint64),
        np.full(slots, -1, np.int32),
        np.zeros(slots, np.uint64),
    )
    return base, base_chunks


def new_keys(
    known_chunks: Int32, offsets: Int64, keys: UInt64, base_chunks: Int32
) -> tuple[Int64, UInt64]:
    """Leave of each call's keys, as given to `link`, those behind its base.

    Returns int64[calls+1] offsets and the keys: the trace's `new_chunks`.
    """
    shared = base_chunks.astype(np.int64) - known_chunks
    counts = np.diff(offsets) - shared
    new_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    take = np.arange(new_offsets[-1]) + np.repeat(offsets[:-1] + shared - new_offsets[:-1], counts)
    return new_offsets, keys[take]
