"""64-bit chunk keys: dense ids by open addressing, and the hash that decides what is sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    UInt64 = NDArray[np.uint64]
    Int32 = NDArray[np.int32]
    Int64 = NDArray[np.int64]

BATCH = 256
"""Keys whose table slots are read before the first of them is looked at, so reads overlap."""

_SMALLEST = 1024
_REGISTER_BITS = 18
_MASK = 2**64 - 1


@kernel
def _mix(key):  # type: ignore[no-untyped-def]
    """Return the key with its bits mixed (the finaliser of splitmix64, a bijection)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@kernel
def _intern(keys, table, known, used, limit, slots, found, ids):  # type: ignore[no-untyped-def]
    """Write the id of each key; stop before a new key would be number `limit`.

    Return (keys done, ids in use). A batch's slots are read in one loop and compared in the
    next: the reads are independent, so the misses of a batch overlap.
    """
    mask = np.uint64(table.size - 1)
    for begin in range(0, keys.size, slots.size):
        size = min(slots.size, keys.size - begin)
        for i in range(size):
            slots[i] = np.int64(_mix(keys[begin + i]) & mask)
        for i in range(size):
            found[i] = table[slots[i]]
        for i in range(size):
            key = keys[begin + i]
            number = found[i]
            if number < 0 or known[number] != key:
                slot = slots[i]
                number = table[slot]
                while number >= 0 and known[number] != key:
                    slot = np.int64((np.uint64(slot) + np.uint64(1)) & mask)
                    number = table[slot]
                if number < 0:
                    if used >= limit:
                        return begin + i, used
                    number = used
                    table[slot] = number
                    known[number] = key
                    used += 1
            ids[begin + i] = number
    return keys.size, used


@kernel
def _fill(table, known, used):  # type: ignore[no-untyped-def]
    """Enter the first `used` known keys into an empty table."""
    mask = np.uint64(table.size - 1)
    for number in range(used):
        slot = np.int64(_mix(known[number]) & mask)
        while table[slot] >= 0:
            slot = np.int64((np.uint64(slot) + np.uint64(1)) & mask)
        table[slot] = number


@kernel
def _bits(word):  # type: ignore[no-untyped-def]
    """Return how many bits of a word are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = word & np.uint64(0x3333333333333333)
    word = low + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _select(keys, salt, limit, chosen):  # type: ignore[no-untyped-def]
    """Write where the hash is at most `limit`; return how many."""
    n = 0
    for i in range(keys.size):
        if _mix(keys[i] ^ salt) <= limit:
            chosen[n] = i
            n += 1
    return n


@kernel
def _sift(keys, salt, limit, chosen, registers, halves, state):  # type: ignore[no-untyped-def]
    """Do so, and count distinct keys: see `DistinctCount`."""
    n = 0
    mask = np.uint64(registers.size - 1)
    for i in range(keys.size):
        hashed = _mix(keys[i] ^ salt)
        if hashed <= limit:
            chosen[n] = i
            n += 1
        place = np.int64(hashed & mask)
        rest = (hashed >> np.uint64(_REGISTER_BITS)) | np.uint64(1 << 45)
        zeros = _bits(rest ^ (rest - np.uint64(1)))  # below the lowest one, and that one
        if zeros > registers[place]:
            state[0] += 1.0 / state[1]
            state[1] -= (halves[registers[place]] - halves[zeros]) / registers.size
            registers[place] = zeros
    return n


def as_keys(keys: Any) -> UInt64:
    """Return chunk keys as an array, uint64[n].

    Raises:
        InputError: It is no one-dimensional array of uint64.
    """
    array = np.asarray(keys)
    if array.dtype != np.uint64 or array.ndim != 1:
        raise InputError(
            f"chunk keys are a one-dimensional array of uint64, not {array.ndim}-dimensional "
            f"{array.dtype}: hash or cast them first"
        )
    return array


def pieces(keys: UInt64, size: int) -> Iterator[UInt64]:
    """Yield the keys in arrays of at most `size`, contiguous and writable as kernels want them."""
    for begin in range(0, keys.size, size):
        yield np.require(keys[begin : begin + size], np.uint64, ["C", "W"])


def hashes(keys: UInt64, salt: int) -> UInt64:
    """Return the sampling hash of each key, uint64[n]."""
    x = keys ^ np.uint64(salt)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: UInt64 = x ^ (x >> np.uint64(31))
    return found


def salt_of(seed: int) -> int:
    """Return the 64 bits that a seed mixes into keys before they are hashed."""
    # One more, since 0 is the one number that is not mixed, and a likely seed and key.
    return int(hashes(np.array([(seed + 1) * 0x9E3779B97F4A7C15 & _MASK], np.uint64), 0)[0])


def select(keys: UInt64, salt: int, limit: int) -> Int64:
    """Return where the hash of the key is at most `limit`, ascending int64[m]."""
    chosen = np.empty(keys.size, np.int64)
    with np.errstate(over="ignore"):
        n = _select(keys, np.uint64(salt), np.uint64(limit), chosen)
    return chosen[:n]


class DistinctCount:
    """How many distinct keys a stream has, estimated in 256 KiB to `RELATIVE_ERROR`.

    A register per low bits of the hash holds the longest run of zeros that followed; state is
    the estimate, and the chance that one more key changes a register: whenever one changes,
    the estimate grows by one over the chance it had.
    """

    RELATIVE_ERROR = 0.83 / 2 ** (_REGISTER_BITS / 2)

    def __init__(self) -> None:
        self._registers = np.zeros(2**_REGISTER_BITS, np.uint8)
        self._halves = 0.5 ** np.arange(64)
        self._state = np.array([0.0, 1.0])

    @property
    def estimate(self) -> float:
        """Distinct keys so far."""
        return float(self._state[0])

    def sift(self, keys: UInt64, salt: int, limit: int) -> Int64:
        """Count the keys of a piece, and return what `select` does, at the cost of both."""
        chosen = np.empty(keys.size, np.int64)
        with np.errstate(over="ignore"):
            n = _sift(
                keys,
                np.uint64(salt),
                np.uint64(limit),
                chosen,
                self._registers,
                self._halves,
                self._state,
            )
        return chosen[:n]


class DenseIds:
    """Numbers from 0 for keys, in order of first sight.

    A table of ids in a power of two of slots, at most 5/8 full, probed linearly, beside the
    list of keys by id: 4 bytes a slot and 8 a key, and nothing old is kept while it grows.
    """

    def __init__(self) -> None:
        self._used = 0
        self._known = np.empty(_SMALLEST * 5 // 8, np.uint64)
        self._table = np.full(_SMALLEST, -1, np.int32)
        self._slots = np.empty(BATCH, np.int64)
        self._found = np.empty(BATCH, np.int32)

    def __len__(self) -> int:
        return self._used

    @property
    def keys(self) -> UInt64:
        """The key of each id, uint64[len]."""
        return self._known[: self._used]

    def intern(self, keys: UInt64, limit: int = 2**31 - 1) -> Int32:
        """Return the id of each key, int32[n]; fewer where there would be more than `limit` ids.

        Then the ids are those of the leading keys, up to the first that finds no room.
        """
        ids = np.empty(keys.size, np.int32)
        done = 0
        while True:
            room = min(limit, self._known.size)
            with np.errstate(over="ignore"):
                more, self._used = _intern(
                    keys[done:],
                    self._table,
                    self._known,
                    self._used,
                    room,
                    self._slots,
                    self._found,
                    ids[done:],
                )
            done += more
            if done == keys.size or self._used >= limit:
                return ids[:done]
            self._grow()

    def _grow(self) -> None:
        size = 2 * self._table.size
        self._table = np.empty(0, np.int32)  # frees the old one first: the keys are elsewhere
        self._table = np.full(size, -1, np.int32)
        known = np.empty(size * 5 // 8, np.uint64)
        known[: self._used] = self.keys
        self._known = known
        with np.errstate(over="ignore"):
            _fill(self._table, self._known, self._used)
