"""Exact cumulative counts of stack distances: how many references hit within a capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from agentkv_trace._jit import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

Int64 = NDArray[np.int64]


@kernel
def _changes(first, length, near):  # type: ignore[no-untyped-def]
    """Count slope changes at each capacity below `near`; list those from there on.

    The list holds twice the capacity, plus one where the slope falls.
    """
    highest = np.int64(0)
    for i in range(first.size):
        highest = max(highest, first[i] - 1 + length[i])
    near = min(near, highest + 1)
    change = np.zeros(near, np.int32)
    far = 0
    for i in range(first.size):
        begin = first[i] - 1
        if begin >= near:
            far += 1
        if begin + length[i] >= near:
            far += 1
    events = np.empty(far, np.int64)
    n = 0
    for i in range(first.size):
        begin = first[i] - 1
        end = begin + length[i]
        if begin < near:
            change[begin] += 1
        else:
            events[n] = 2 * begin
            n += 1
        if end < near:
            change[end] -= 1
        else:
            events[n] = 2 * end + 1
            n += 1
    return change, events


@kernel
def _corners(change, events):  # type: ignore[no-untyped-def]
    """Return the corners of the function whose slope changes so; the events are sorted."""
    size = 1 + events.size
    for i in range(change.size):
        if change[i] != 0:
            size += 1
    x = np.empty(size, np.int64)
    y = np.empty(size, np.int64)
    x[0] = y[0] = 0
    n = 0
    slope = np.int64(0)
    height = np.int64(0)
    at = np.int64(0)
    capacity = 0
    i = 0
    while capacity < change.size or i < events.size:
        turn = np.int64(0)
        if capacity < change.size:
            here = np.int64(capacity)
            turn += change[capacity]
            capacity += 1
        else:
            here = events[i] >> 1
            while i < events.size and events[i] >> 1 == here:
                turn += 1 - 2 * (events[i] & 1)
                i += 1
        if turn != 0:
            height += slope * (here - at)
            slope += turn
            at = here
            if here > 0:
                n += 1
            x[n] = here
            y[n] = height
    return x[: n + 1].copy(), y[: n + 1].copy()


@dataclass(frozen=True, slots=True, eq=False)
class Cumulative:
    """How many references hit in a tier of c chunks, for every c at once, exactly.

    Piecewise linear through the corners `(x[i], y[i])`, int64[n], both ascending from (0, 0);
    level behind the last. All slopes are whole numbers: a run of consecutive distances is a
    slope of one, k equal distances are a slope of k over one chunk.
    """

    x: Int64
    y: Int64

    @staticmethod
    def of_runs(first: Int64, length: NDArray[np.integer]) -> Cumulative:
        """Count the distances `first .. first + length`, both arrays of one size.

        Takes memory O(runs): distances up to a few times their number are counted, the others
        sorted.
        """
        change, events = _changes(first, length, 4 * first.size + 1)
        events.sort()
        return Cumulative(*_corners(change, events))

    @staticmethod
    def of_distances(distances: Int64, counts: Int64) -> Cumulative:
        """Count `counts[i]` references at `distances[i]` (from 1, in any order)."""
        there = counts > 0
        distances, counts = distances[there], counts[there]
        if np.any(distances[1:] <= distances[:-1]):
            order = np.argsort(distances, kind="stable")
            distances, counts = distances[order], counts[order]
            starts = np.flatnonzero(np.diff(distances, prepend=0))
            distances, counts = distances[starts], np.add.reduceat(counts, starts)
        after = np.cumsum(counts)
        x = np.stack((distances - 1, distances), axis=1).ravel()
        y = np.stack((after - counts, after), axis=1).ravel()
        return Cumulative.of_corners(np.concatenate(([0], x)), np.concatenate(([0], y)))

    @staticmethod
    def of_corners(x: Int64, y: Int64) -> Cumulative:
        """Return the function through ascending points (repeats allowed), without idle corners."""
        new = np.ones(x.size, bool)
        new[1:] = x[1:] > x[:-1]
        every = Cumulative(x[new], y[new])
        turning = every.turns() != 0
        turning[0] = True
        return Cumulative(every.x[turning], every.y[turning])

    @staticmethod
    def sum_of(functions: Iterable[Cumulative]) -> Cumulative:
        """Return the sum of functions."""
        functions = list(functions)
        x = np.concatenate([np.zeros(1, np.int64), *(f.x for f in functions)])
        turns = np.concatenate([np.zeros(1, np.int64), *(f.turns() for f in functions)])
        order = np.argsort(x, kind="stable")
        x = x[order]
        slopes = np.cumsum(turns[order])
        heights = np.cumsum(slopes[:-1] * np.diff(x))
        # Of corners at one place the last has the slope from there on, all have the height.
        return Cumulative.of_corners(x, np.concatenate((np.zeros(1, np.int64), heights)))

    def turns(self) -> Int64:
        """Return by how much the slope changes at each corner, int64[n]."""
        slopes = np.zeros(self.x.size + 1, np.int64)
        slopes[1:-1] = np.diff(self.y) // np.diff(self.x)
        return np.diff(slopes)

    @property
    def total(self) -> int:
        """References that hit in a tier without limit."""
        return int(self.y[-1])

    def at(self, capacity: Int64) -> Int64:
        """Return the hits at each capacity, of any shape, from 0."""
        here = np.searchsorted(self.x, capacity, side="right") - 1
        after = np.minimum(here + 1, self.x.size - 1)
        rise = self.y[after] - self.y[here]
        slope = rise // np.maximum(self.x[after] - self.x[here], 1)
        found: Int64 = self.y[here] + slope * (capacity - self.x[here])
        return found

    def reach(self, hits: Int64) -> Int64:
        """Return the smallest capacity with at least that many hits, each from 0 to `total`."""
        after = np.searchsorted(self.y, hits, side="left")
        before = np.maximum(after - 1, 0)
        rise = self.y[after] - self.y[before]
        slope = np.maximum(rise // np.maximum(self.x[after] - self.x[before], 1), 1)
        found: Int64 = self.x[before] - (self.y[before] - hits) // slope
        return found
