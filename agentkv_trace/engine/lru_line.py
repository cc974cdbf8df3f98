"""The LRU stack as a line of positions: the kernels of the chunk engine.

Each touch takes the next position; a bit is set where the touch is still its chunk's last. A
chunk's distance is the number of bits at its position and behind. The bits before a position
are summed from four levels: the words of a block of 512 positions (popcount), and running
counts of the blocks within a group of 64, of the groups within a super of 64, and of supers.
Clearing a bit lowers the running counts behind it: 64 neighbours at once in vector registers
and without a branch, which takes half the time of a Fenwick tree; setting one is free, since
running counts are written when the line reaches them.

When the line is full, the chunks move up to its beginning. It is four times the number of
chunks, so memory follows the distinct chunks, and moving them all is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.engine.keys import DenseIds
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int32 = NDArray[np.int32]
    Int64 = NDArray[np.int64]
    UInt64 = NDArray[np.uint64]

HEAD_FIRST, TAIL_FIRST, STREAM = 0, 1, 2

_GROUP = 2**15  # positions: 64 blocks of 512
_SUPER = 2**21  # positions: 64 groups
_MOST = 2**31 - _GROUP  # positions are int32
_SLACK = 4  # positions per chunk


@kernel
def _popcount(word):  # type: ignore[no-untyped-def]
    """Return how many bits of a word are set; compiles to the processor's own instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = word & np.uint64(0x3333333333333333)
    word = low + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _before(position, bits, blocks, groups, supers):  # type: ignore[no-untyped-def]
    """Return how many bits are set before a position."""
    block = position >> 9
    group = block >> 6
    count = np.int64(supers[group >> 6]) + np.int64(groups[group]) + np.int64(blocks[block])
    first = block << 3
    last = (position >> 6) & 7
    part = (np.uint64(1) << np.uint64(position & 63)) - np.uint64(1)
    for j in range(8):
        mask = np.uint64(0)
        if j < last:
            mask = ~np.uint64(0)
        if j == last:
            mask = part
        count += _popcount(bits[first + j] & mask)
    return count


@kernel
def _touch(  # type: ignore[no-untyped-def]
    ids, offsets, looked, order, last, previous, now, live, bits, blocks, groups, supers, distances
):
    """Touch calls one by one, write the distances they saw, return the number of chunks now.

    In order `STREAM` a reference is looked up when it is touched. What changes the line is
    written out here: as functions of their own it takes twice the time.
    """
    for call in range(offsets.size - 1):
        begin = offsets[call]
        end = offsets[call + 1]
        for i in range(begin, begin + looked[call]):
            position = np.int64(last[ids[i]])
            distances[i] = 0
            if position >= 0:
                distances[i] = live - _before(position, bits, blocks, groups, supers)
        # A loop of its own, since its misses overlap where nothing else waits for them.
        for i in range(begin, end):
            number = ids[begin + end - 1 - i] if order == TAIL_FIRST else ids[i]
            previous[i] = last[number]
            last[number] = now + i - begin
        for i in range(begin, end):
            position = np.int64(previous[i])
            if position < 0:
                live += 1
                if order == STREAM:
                    distances[i] = 0
            else:
                if order == STREAM:
                    distances[i] = live - _before(position, bits, blocks, groups, supers)
                # Clear the bit, and lower the running counts behind it.
                bits[position >> 6] ^= np.uint64(1) << np.uint64(position & 63)
                block = position >> 9
                group = block >> 6
                nth = np.int16(block & 63)
                first = block - (block & 63)
                for j in range(64):
                    blocks[first + j] -= np.int16(np.int16(j) > nth)
                nth = np.int16(group & 63)
                first = group - (group & 63)
                for j in range(64):
                    groups[first + j] -= np.int32(np.int16(j) > nth)
                for j in range((group >> 6) + 1, (now >> 21) + 1):
                    supers[j] -= 1
            if now & 511 == 0 and now > 0:
                # The first position of a block: write its running counts.
                block = now >> 9
                count = np.int64(blocks[block - 1])
                for j in range((block - 1) << 3, block << 3):
                    count += _popcount(bits[j])
                if block & 63:
                    blocks[block] = count
                else:
                    blocks[block] = 0
                    group = block >> 6
                    count += np.int64(groups[group - 1])
                    if group & 63:
                        groups[group] = count
                    else:
                        groups[group] = 0
                        supers[group >> 6] = np.int64(supers[(group >> 6) - 1]) + count
            bits[now >> 6] |= np.uint64(1) << np.uint64(now & 63)
            now += 1
    return live


@kernel
def _move(last, live, bits, blocks, groups, supers):  # type: ignore[no-untyped-def]
    """Write for each chunk how many are before it: its place when there are no gaps."""
    for number in range(live):
        position = np.int64(last[number])
        last[number] = _before(position, bits, blocks, groups, supers)


class LruLine:
    """Chunks in order of their last touch, named by dense ids."""

    def __init__(self) -> None:
        self.ids = DenseIds()
        """Ids of keys; `touch` takes ids that it has given out."""
        self._last = np.empty(0, np.int32)
        self._previous = np.empty(0, np.int32)
        self._size = 0
        self._now = 0
        self._live = 0
        self._lay_out(2 * _GROUP)

    def __len__(self) -> int:
        """Return how many distinct chunks were touched."""
        return self._live

    def recency(self) -> Int64:
        """Return all ids that were touched, the least recent first, int64[len]."""
        return np.argsort(self._last[: self._live])

    def touch(self, ids: Int32, distances: Int64) -> None:
        """Look up and touch one reference after the other, int32[n]; write int64[n] distances.

        A distance counts the chunk itself and is 0 where it is touched for the first time.
        Feed it in pieces: the line has room for all of one.
        """
        bounds = np.array([0, ids.size], np.int64)
        self.touch_calls(ids, bounds, np.zeros(1, np.int64), STREAM, distances)

    def touch_calls(
        self, ids: Int32, offsets: Int64, looked: Int64, order: int, distances: Int64
    ) -> None:
        """Do so for calls: look up the leading chunks of one, then touch all of it.

        `offsets`, int64[calls + 1], and `looked`, int64[calls], say where calls begin and how
        many chunks they look up; the distances of others are left as they are.
        """
        self._make_room(ids.size)
        if self._previous.size < ids.size:
            self._previous = np.empty(ids.size, np.int32)
        with np.errstate(over="ignore"):
            self._live = _touch(
                ids,
                offsets,
                looked,
                order,
                self._last,
                self._previous,
                self._now,
                self._live,
                *self._line,
                distances,
            )
        self._now += ids.size

    @property
    def _line(self) -> tuple[UInt64, NDArray[np.int16], Int32, Int32]:
        return self._bits, self._blocks, self._groups, self._supers

    def _make_room(self, touches: int) -> None:
        """Make room for all ids given out and for the next touches."""
        used = len(self.ids)
        if used > self._last.size:
            last = np.full(max(used, 2 * self._last.size), -1, np.int32)
            last[: self._last.size] = self._last
            self._last = last
        if self._now + touches <= self._size:
            return
        if self._live + touches > _MOST:
            raise InputError("the trace has more than two billion distinct chunks: sample it")
        with np.errstate(over="ignore"):
            _move(self._last, self._live, *self._line)
        size = max(_SLACK * self._live, self._live + touches, self._size)
        self._lay_out(min(size, _MOST))

    def _lay_out(self, size: int) -> None:
        """Make a line of at least `size` positions, all chunks at its beginning."""
        groups = -(-size // _GROUP)
        supers = -(-groups // 64)
        if groups * _GROUP != self._size:
            self._size = groups * _GROUP
            self._bits = np.empty(self._size // 64, np.uint64)
        words, rest = divmod(self._live, 64)
        self._bits[:words] = 2**64 - 1
        self._bits[words:] = 0
        if rest:
            self._bits[words] = 2**rest - 1
        # As if all positions were taken: right for those that are, rewritten for the others.
        self._blocks = np.tile(np.arange(0, _GROUP, 512, dtype=np.int16), groups)
        self._groups = np.tile(np.arange(0, _SUPER, _GROUP, dtype=np.int32), supers)
        self._supers = np.arange(0, supers * _SUPER, _SUPER, dtype=np.int64).astype(np.int32)
        self._now = self._live
