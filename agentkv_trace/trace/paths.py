"""The chunks of every call, rebuilt from a trace's shared rows in blocks of bounded size.

A trace stores a chunk once, with the first call that has it. That place is its number: its
position among all new chunks of the trace. So numbers are distinct for distinct chunks, dense,
and count chunks by first appearance, and no hash table is needed to get them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agentkv_trace._jit import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.trace.store import Trace

Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

BLOCK_CHUNKS = 1 << 20
"""References per block; a single call may exceed it."""


@kernel
def _holders(base, base_chunks):  # type: ignore[no-untyped-def]
    """Return the row that stores the chunk before each row's first new one (-1: none)."""
    above = np.full(base.size, -1, np.int32)
    for row in range(base.size):
        depth = base_chunks[row]
        if depth == 0:
            continue
        holder = base[row]
        while base_chunks[holder] >= depth:
            holder = above[holder]
        above[row] = holder
    return above


@kernel
def _fill(first, offsets, base_chunks, above, new_offsets, numbers):  # type: ignore[no-untyped-def]
    """Fill in the numbers of the first chunks of each row's path, as many as offsets give room."""
    for nth in range(offsets.size - 1):
        row = first + nth
        depth = offsets[nth + 1] - offsets[nth]
        while depth > 0:
            start = np.int64(base_chunks[row])
            shift = new_offsets[row] - start
            for at in range(start, depth):
                numbers[offsets[nth] + at] = shift + at
            depth = min(depth, start)
            row = above[row]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive calls with their chunks.

    Those of call `first + i` are `chunks[offsets[i]:offsets[i+1]]`, head first: numbers (int64)
    or keys (uint64).
    """

    first: int
    offsets: Int64
    chunks: Int64 | UInt64


class Paths:
    """Gives the chunks of any range of calls of a trace.

    Holds one key and a few integers per distinct chunk and call, never the references.
    """

    def __init__(self, trace: Trace) -> None:
        self._base_chunks = np.ascontiguousarray(trace.array("base_chunks"), np.int32)
        base = np.ascontiguousarray(trace.array("base"), np.int32)
        self._above = _holders(base, self._base_chunks)
        self._prompt = trace.array("prompt_chunks").astype(np.int64)
        self._path = trace.array("path_chunks").astype(np.int64)
        offsets, self.keys = trace.new_chunks()
        self._new_offsets = np.ascontiguousarray(offsets, np.int64)

    def numbers(self, first: int, last: int, *, outputs: bool = False) -> Block:
        """Return the chunk numbers of calls first .. last-1: of prompts, or of whole paths."""
        counts = (self._path if outputs else self._prompt)[first:last]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        numbers = np.empty(offsets[-1], np.int64)
        _fill(first, offsets, self._base_chunks, self._above, self._new_offsets, numbers)
        return Block(first, offsets, numbers)

    def blocks(
        self, *, outputs: bool = False, backwards: bool = False, block_chunks: int = BLOCK_CHUNKS
    ) -> Iterator[Block]:
        """Yield the chunk numbers of all calls, in blocks of some `block_chunks` references.

        Blocks come from the last to the first if `backwards`; calls in a block are in order.
        """
        counts = self._path if outputs else self._prompt
        # A block ends with the call that reaches the next multiple of its size.
        ends = np.flatnonzero(np.diff(np.cumsum(counts) // block_chunks, prepend=0)) + 1
        cuts = [0, *ends.tolist()]
        if cuts[-1] != counts.size:
            cuts.append(counts.size)
        pairs = list(pairwise(cuts))
        for first, last in reversed(pairs) if backwards else pairs:
            yield self.numbers(first, last, outputs=outputs)


def prompt_keys(trace: Trace, *, block_chunks: int = BLOCK_CHUNKS) -> Iterator[Block]:
    """Yield the chunk keys of all prompts, in blocks of some `block_chunks` references."""
    whole = Paths(trace)
    for block in whole.blocks(block_chunks=block_chunks):
        yield Block(block.first, block.offsets, whole.keys[block.chunks])


def paths(trace: Trace) -> Iterator[UInt64]:
    """Yield the keys of each call's whole path, head first: uint64[path_chunks] per call."""
    whole = Paths(trace)
    for block in whole.blocks(outputs=True):
        keys = whole.keys[block.chunks]
        for start, end in zip(block.offsets[:-1], block.offsets[1:], strict=True):
            yield keys[start:end]
