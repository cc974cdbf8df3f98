"""The chunk engine: exact LRU stack distances of any stream of chunk references.

`ChunkStack` takes a flat stream, `CallStack` the paths of calls in either order of touches.
Both are fed in pieces of any size, and what they return does not depend on where pieces end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.engine.keys import as_keys, pieces
from agentkv_trace.engine.lru_line import LruLine
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    Int64 = NDArray[np.int64]
    UInt64 = NDArray[np.uint64]

Order = Literal["tail-first", "head-first"]
ORDERS: tuple[Order, ...] = ("head-first", "tail-first")
"""At the places of `lru_line.HEAD_FIRST` and `TAIL_FIRST`."""

PIECE = 2**20
"""References handled at a time: each step over them has the processor's cache for itself."""


@kernel
def _leading(distances, offsets, runs):  # type: ignore[no-untyped-def]
    """Write the running maximum of each call's distances up to its first cold chunk, then 0."""
    for call in range(offsets.size - 1):
        highest = 0
        running = True
        for i in range(offsets[call], offsets[call + 1]):
            running = running and distances[i] > 0
            highest = max(highest, distances[i])
            runs[i] = highest if running else 0


@kernel
def _count(distances, histogram):  # type: ignore[no-untyped-def]
    for i in range(distances.size):
        if distances[i] >= 0:
            histogram[distances[i]] += 1


class ChunkStack:
    """Distances of a flat stream: each reference is looked up, then touched."""

    def __init__(self) -> None:
        self._line = LruLine()
        self._histogram = np.zeros(1, np.int64)

    @property
    def unique_chunks(self) -> int:
        """Distinct chunks so far."""
        return len(self._line)

    @property
    def histogram(self) -> Int64:
        """References at each distance fed to `feed_histogram`, int64[unique_chunks + 1].

        Entry 0 counts first touches.
        """
        return _sized(self._histogram, self.unique_chunks + 1)

    def feed(self, keys: Any) -> Int64:
        """Return each reference's stack distance, int64[n]: itself included, 0 at first touch.

        `keys` are chunk keys, uint64[n]. Cost per reference does not depend on the stream.

        Raises:
            InputError: `keys` is no one-dimensional array of uint64.
        """
        keys = as_keys(keys)
        distances = np.empty(keys.size, np.int64)
        done = 0
        for piece in pieces(keys, PIECE):
            self._line.touch(self._line.ids.intern(piece), distances[done : done + piece.size])
            done += piece.size
        return distances

    def feed_histogram(self, keys: Any) -> None:
        """Count the distances in `histogram` only: no memory per reference.

        Raises:
            InputError: `keys` is no one-dimensional array of uint64.
        """
        keys = as_keys(keys)
        scratch = np.empty(min(keys.size, PIECE), np.int64)
        for piece in pieces(keys, PIECE):
            distances = scratch[: piece.size]
            self._line.touch(self._line.ids.intern(piece), distances)
            self._histogram = _counted(self._histogram, distances, self.unique_chunks)


@dataclass(frozen=True, slots=True, eq=False)
class CallDistances:
    """What calls looked up, by distance; histograms are int64[unique_chunks + 1], entry 0 is 0."""

    order: Order
    calls: int
    references: int
    cold_references: int
    """References to chunks that no earlier call touched."""
    unique_chunks: int
    chunk_histogram: Int64
    """References by stack distance: how large a tier must be to hold the chunk."""
    prefix_histogram: Int64
    """References by the capacity from which the chunk and all before it are resident."""


class CallStack:
    """Distances of calls: each looks up its prompt, then touches its path.

    All lookups of a call see the stack as it was when the call began. The touches come tail
    first, so that the head is the most recent, or head first. A chunk that a call holds twice
    (none does where keys chain) is looked up twice with one result, touched twice, and counts
    twice as cold where it is new.

    A call's hit at some capacity is its leading run of resident chunks. A chunk belongs to it
    from the running maximum of the distances up to it; with tail-first touches of prefix trees
    this is its own distance. Head first it is an idealised cache, which looks a whole prompt
    up in one pass.
    """

    def __init__(self, order: Order = "tail-first") -> None:
        """Start with an empty stack.

        Raises:
            InputError: There is no such order.
        """
        if order not in ORDERS:
            raise InputError(f"there is no order {order!r}: use one of {', '.join(ORDERS)}")
        self.order = order
        self._line = LruLine()
        self._calls = 0
        self._chunk = np.zeros(1, np.int64)
        self._prefix = np.zeros(1, np.int64)

    @property
    def unique_chunks(self) -> int:
        """Distinct chunks touched so far."""
        return len(self._line)

    def feed(self, keys: Any, offsets: ArrayLike, prompt_chunks: ArrayLike | None = None) -> Int64:
        """Return the distance of each reference at its call's start, int64[n].

        `keys` are the paths' chunk keys, uint64[n], heads first; call c's are
        `keys[offsets[c]:offsets[c + 1]]`, offsets int64[calls + 1]. Of each path the leading
        `prompt_chunks[c]` are looked up (all by default), the others only touched. The result
        is 0 for chunks that no earlier call touched and -1 for those that are not looked up.

        Raises:
            InputError: Wrong type of keys, offsets that do not ascend from 0 to n, or more
                prompt chunks than a path has.
        """
        keys, offsets, looked = as_calls(keys, offsets, prompt_chunks)
        distances = np.full(keys.size, -1, np.int64)
        for first, end in call_pieces(offsets, PIECE):
            begin, until = int(offsets[first]), int(offsets[end])
            self._line.touch_calls(
                self._line.ids.intern(np.require(keys[begin:until], np.uint64, ["C", "W"])),
                offsets[first : end + 1] - begin,
                looked[first:end],
                ORDERS.index(self.order),
                distances[begin:until],
            )
        return distances

    def feed_histogram(
        self, keys: Any, offsets: ArrayLike, prompt_chunks: ArrayLike | None = None
    ) -> None:
        """Count the distances of some calls for `result`; the arguments are those of `feed`.

        Raises:
            InputError: As `feed`.
        """
        keys, offsets, looked = as_calls(keys, offsets, prompt_chunks)
        for first, end in call_pieces(offsets, PIECE):
            begin, until = int(offsets[first]), int(offsets[end])
            within = offsets[first : end + 1] - begin
            distances = self.feed(keys[begin:until], within, looked[first:end])
            chunks = self.unique_chunks
            self._chunk = _counted(self._chunk, distances, chunks)
            self._prefix = _counted(self._prefix, leading_run(distances, within), chunks)
        self._calls += offsets.size - 1

    def result(self) -> CallDistances:
        """Return the counts of all calls fed to `feed_histogram`."""
        chunk = _sized(self._chunk, self.unique_chunks + 1)
        prefix = _sized(self._prefix, self.unique_chunks + 1)
        references, cold = int(chunk.sum()), int(chunk[0])
        chunk[0] = prefix[0] = 0
        return CallDistances(
            self.order, self._calls, references, cold, self.unique_chunks, chunk, prefix
        )


def leading_run(distances: Int64, offsets: ArrayLike) -> Int64:
    """Return from which capacity each reference and all before it in its call are resident.

    `distances` and `offsets` are those of `CallStack.feed`. The result, int64[n], is the
    running maximum of a call's distances up to the first cold chunk, and 0 from there on.
    """
    runs = np.empty(distances.size, np.int64)
    _leading(distances, np.ascontiguousarray(offsets, np.int64), runs)
    return runs


def as_calls(
    keys: Any, offsets: ArrayLike, prompt_chunks: ArrayLike | None
) -> tuple[UInt64, Int64, Int64]:
    """Return keys uint64[n], offsets int64[calls + 1] and chunks to look up int64[calls].

    Raises:
        InputError: Wrong type of keys, offsets that do not ascend from 0 to n, or more prompt
            chunks than a path has.
    """
    keys = as_keys(keys)
    bounds = _whole_numbers(offsets, "offsets")
    sizes = np.diff(bounds)
    if not bounds.size or bounds[0] != 0 or bounds[-1] != keys.size or (sizes < 0).any():
        raise InputError(f"offsets of calls must ascend from 0 to the {keys.size} keys")
    if prompt_chunks is None:
        return keys, bounds, sizes
    looked = _whole_numbers(prompt_chunks, "prompt_chunks")
    if looked.shape != sizes.shape or (looked < 0).any() or (looked > sizes).any():
        raise InputError("prompt_chunks must say for each call how many of its chunks to look up")
    return keys, bounds, looked


def call_pieces(offsets: Int64, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of calls with at most `size` references each, or one longer call."""
    first, calls = 0, offsets.size - 1
    while first < calls:
        end = int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1
        end = min(max(end, first + 1), calls)
        yield first, end
        first = end


def _whole_numbers(values: ArrayLike, name: str) -> Int64:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a one-dimensional array of whole numbers")
    return np.require(array, np.int64, ["C", "W"])


def _counted(histogram: Int64, distances: Int64, highest: int) -> Int64:
    """Return the histogram with some distances counted, in a larger array where it must be."""
    if histogram.size <= highest:
        larger = np.zeros(max(highest + 1, histogram.size * 3 // 2), np.int64)
        larger[: histogram.size] = histogram
        histogram = larger
    _count(distances, histogram)
    return histogram


def _sized(histogram: Int64, size: int) -> Int64:
    found = np.zeros(size, np.int64)
    size = min(size, histogram.size)
    found[:size] = histogram[:size]
    return found
