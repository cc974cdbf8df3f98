"""One sample of a stream: the stack of its chunks and the counts of its references."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.engine.chunk_stack import leading_run
from agentkv_trace.engine.keys import DenseIds, hashes
from agentkv_trace.engine.lru_line import LruLine
from agentkv_trace.engine.sampled_curve import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64 = NDArray[np.int64]
    UInt64 = NDArray[np.uint64]


@kernel
def _weigh(units, distances, spread, seen, with_cold, growth, sums):  # type: ignore[no-untyped-def]
    """Write what each reference adds to a covariance and to the growth, and add up the sums.

    `seen` holds of each unit its references, and their spreads in total and of the cold ones.
    """
    for i in range(units.size):
        with_cold[i] = growth[i] = 0.0
        if distances[i] >= 0:
            unit = units[i]
            n = seen[0, unit] + 1.0
            before = seen[1, unit]
            cold_before = seen[2, unit]
            seen[0, unit] = n
            seen[1, unit] += spread
            with_cold[i] = cold_before
            growth[i] = spread * (3.0 * n * (n - 1.0) + 1.0)
            if distances[i] == 0:
                seen[2, unit] += spread
                with_cold[i] += spread + before
                sums[1] += 1.0
                sums[3] += with_cold[i]
                sums[5] += growth[i]
                sums[7] += 2.0 * cold_before + spread
            sums[0] += 1.0
            sums[2] += with_cold[i]
            sums[4] += growth[i]
            sums[6] += 2.0 * before + spread


@kernel
def _add(distances, with_cold, growth, weight, hits):  # type: ignore[no-untyped-def]
    for i in range(distances.size):
        if distances[i] > 0:
            hits[0, distances[i]] += weight
            hits[1, distances[i]] += weight * with_cold[i]
            hits[2, distances[i]] += weight * growth[i]


class Sample:
    """References sampled so far; `tally` says what they add up to."""

    def __init__(self, kinds: int, order: int) -> None:
        self.line = LruLine()
        self.roots = DenseIds()
        self.tally = Tally(np.zeros((kinds, 3, 1)))
        self._order = order
        self._seen = np.zeros((3, 1))

    def feed(
        self,
        keys: UInt64,
        calls: tuple[Int64, Int64] | None,
        roots: UInt64 | None,
        rate: float,
        limit: int,
    ) -> bool:
        """Count references sampled at `rate`; do nothing where it takes more than `limit` chunks.

        `calls` are offsets and chunks to look up; `roots`, uint64[n], are units, else chunks.
        """
        ids = self.line.ids.intern(keys, limit)
        if ids.size < keys.size:
            return False
        tally = self.tally
        distances = np.full(keys.size, -1, np.int64)
        if calls is None:
            self.line.touch(ids, distances)
        else:
            self.line.touch_calls(ids, *calls, self._order, distances)
        units = ids if roots is None else self.roots.intern(roots)
        self._make_room(max(len(self.line.ids), len(self.roots)))
        with_cold, growth = np.empty((2, keys.size))
        sums = np.zeros(8)
        weight, spread = 1 / rate, 1 / rate - 1
        _weigh(units, distances, spread, self._seen, with_cold, growth, sums)
        _add(distances, with_cold, growth, weight, tally.hits[0])
        if tally.hits.shape[0] > 1 and calls is not None:
            runs = leading_run(distances, calls[0])
            _add(runs, with_cold, growth, weight, tally.hits[1])
        tally.sums += weight * sums
        tally.spread += weight * spread * sums[0]
        return True

    def shrink(self, salt: int, limit: int) -> None:
        """Drop the chunks with a hash above the limit, and scale distances to the others."""
        old = self.line.recency()
        keys = self.line.ids.keys[old]
        held = hashes(keys, salt) <= np.uint64(limit)
        kept = keys[held]
        line = LruLine()
        line.touch(line.ids.intern(kept), np.empty(kept.size, np.int64))
        self.line = line
        self._seen = self._seen[:, old[held]]
        edges = np.arange(self.tally.hits.shape[2])
        scale = max(keys.size, 1) / max(kept.size, 1)
        for rows in self.tally.hits:
            for row in rows:
                sums = np.interp(edges * scale, edges, np.cumsum(row))
                row[0] = 0
                row[1:] = np.diff(sums)

    def result(self, rate: float) -> Tally:
        """Return the counts, the rate being that of the sample now."""
        seen = self._seen[0]
        self.tally.live = len(self.line)
        self.tally.rate = rate
        self.tally.top_share = float(seen.max(initial=0) / max(np.sqrt((seen**2).sum()), 1))
        return self.tally

    def _make_room(self, units: int) -> None:
        if self._seen.shape[1] < units:
            seen = np.zeros((3, max(units, 2 * self._seen.shape[1])))
            seen[:, : self._seen.shape[1]] = self._seen
            self._seen = seen
        size = self.tally.hits.shape[2]
        if size <= len(self.line):
            hits = np.zeros((*self.tally.hits.shape[:2], max(len(self.line) + 1, 2 * size)))
            hits[:, :, :size] = self.tally.hits
            self.tally.hits = hits
