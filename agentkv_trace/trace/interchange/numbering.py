"""Chunk numbers of a trace to ids that count chunks by first appearance in prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agentkv_trace._jit import kernel

if TYPE_CHECKING:
    from agentkv_trace.trace.paths import Block

Int64 = npt.NDArray[np.int64]


@kernel
def _renumber(numbers, offsets, partial, id_of, following, ids):  # type: ignore[no-untyped-def]
    """Fill in ids, one more per call with a partial chunk; return the id that follows."""
    out = 0
    for call in range(partial.size):
        for at in range(offsets[call], offsets[call + 1]):
            number = numbers[at]
            if id_of[number] < 0:
                id_of[number] = following
                following += 1
            ids[out] = id_of[number]
            out += 1
        if partial[call]:
            ids[out] = following
            following += 1
            out += 1
    return following


class ByFirstAppearance:
    """Gives chunks the ids `first`, `first + 1`, ... as they appear, block after block."""

    def __init__(self, chunks: int, *, first: int = 0) -> None:
        self._id_of = np.full(chunks, -1, np.int64)
        self._following = first

    def ids(
        self, block: Block, partial: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Int64, Int64]:
        """Return int64 offsets and ids of a block of chunk numbers.

        A call marked in `partial` (bool[calls]) gets one more id, which occurs nowhere else.
        """
        calls = block.offsets.size - 1
        more = np.zeros(calls, np.bool_) if partial is None else np.asarray(partial, np.bool_)
        offsets = block.offsets + np.concatenate([[0], np.cumsum(more)])
        ids = np.empty(offsets[-1], np.int64)
        self._following = _renumber(
            block.chunks, block.offsets, more, self._id_of, self._following, ids
        )
        return offsets, ids
