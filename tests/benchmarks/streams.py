"""Flat streams of chunk references, and a plain LRU replay of one capacity over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.engine.chunk_stack import PIECE
from agentkv_trace.engine.keys import DenseIds

if TYPE_CHECKING:
    from pathlib import Path


def scrambled(numbers: Any) -> Any:
    """Return 64-bit keys that look like hashes, uint64[n]."""
    keys = numbers.astype(np.uint64)
    keys = (keys ^ (keys >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
    return keys ^ (keys >> np.uint64(32))


def zipf(references: int, chunks: int, seed: int = 1) -> Any:
    """Return keys of which the k-th most frequent is drawn in proportion to 1/k."""
    shares = np.cumsum(1 / np.arange(1, chunks + 1))
    drawn = np.random.default_rng(seed).random(references) * shares[-1]
    return scrambled(np.searchsorted(shares, drawn))


def uniform(references: int, chunks: int, seed: int = 1) -> Any:
    """Return keys drawn with equal chances."""
    return scrambled(np.random.default_rng(seed).integers(0, chunks, references))


@kernel
def _lru(ids, newer, older, resident, capacity):  # type: ignore[no-untyped-def]
    ring = newer.size - 1
    hits = 0
    for i in range(ids.size):
        chunk = ids[i]
        if newer[chunk] >= 0:
            hits += 1
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
    return hits, resident


def lru_hits(keys: Any, chunks: int, capacity: int) -> int:
    """Replay a plain LRU cache of one capacity: the same dense ids, and lists in arrays."""
    ids = DenseIds()
    newer = np.full(chunks + 1, -1, np.int32)
    older = np.full(chunks + 1, -1, np.int32)
    newer[chunks] = older[chunks] = chunks
    hits = resident = 0
    for begin in range(0, keys.size, PIECE):
        piece = ids.intern(keys[begin : begin + PIECE])
        more, resident = _lru(piece, newer, older, resident, capacity)
        hits += more
    return hits


def write_oracle_general(keys: Any, path: Path) -> None:
    """Write libCacheSim's binary format: objects of one byte."""
    layout = [("time", "<u4"), ("key", "<u8"), ("size", "<u4"), ("next", "<i8")]
    rows = np.zeros(keys.size, np.dtype(layout))
    rows["time"] = np.arange(keys.size) // 1000
    rows["key"] = keys
    rows["size"] = 1
    rows["next"] = -1
    rows.tofile(path)
