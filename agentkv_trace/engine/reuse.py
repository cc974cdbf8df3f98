"""What the runs of the path engine say about one capacity, without another pass over the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.engine.path_stack import Runs


@dataclass(frozen=True, slots=True)
class Writes:
    """What became of the chunks written to an LRU tier of one capacity.

    A call writes each chunk of its path that is not resident when it touches the path. The
    chunk is `reused` if a later call's lookup hits it before it leaves, else `evicted` if it
    leaves, else `resident` at the end of the trace. Chunks of a path longer than the tier
    leave as they come. `written` is the sum of the three.
    """

    written: int
    reused: int
    evicted: int
    resident: int

    @property
    def evicted_before_reuse(self) -> float:
        """The share of written chunks that left before a lookup hit them; 0.0 of none."""
        return self.evicted / self.written if self.written else 0.0


@kernel
def _within(first, length, capacity):  # type: ignore[no-untyped-def]
    """Count the distances `first .. first + length` up to `capacity`."""
    return min(max(capacity - first + 1, 0), length)


@kernel
def _hits(call, first, length, capacity, hits):  # type: ignore[no-untyped-def]
    for i in range(call.size):
        hits[call[i]] += _within(first[i], np.int64(length[i]), capacity)


@kernel
def _lifetimes(  # type: ignore[no-untyped-def]
    capacity, call, owner, depth, first, length, after, by_call, by_owner, by_depth, by_first,
    by_length, calls,
):  # fmt: skip
    """Return touches that found their chunk resident, first hits, and the used depth per call.

    A chunk is used if a lookup hit it since it was written. Shallower chunks of a path leave
    later and are hit with the deeper ones, so the used chunks of a path are its first `used`.
    """
    used = np.zeros(calls, np.int64)
    found = np.int64(0)
    reused = np.int64(0)
    run = 0
    other = 0
    while run < call.size or other < after.size:
        if other == after.size or run < after[other]:
            resident = _within(first[run], np.int64(length[run]), capacity)
            if resident > 0:
                found += resident
                top = depth[run] + resident
                reused += max(0, top - max(np.int64(depth[run]), used[owner[run]]))
                used[call[run]] = top
            run += 1
            continue
        # A call's touch at its end replaces what its start said; outputs only add to it.
        this = by_call[other]
        deepest = np.int64(0) if by_depth[other] == 0 else used[this]
        while other < after.size and by_call[other] == this:
            resident = _within(by_first[other], np.int64(by_length[other]), capacity)
            found += resident
            top = min(by_depth[other] + resident, used[by_owner[other]])
            if top > by_depth[other]:
                deepest = max(deepest, top)
            other += 1
        used[this] = deepest
    return found, reused, used


def _whole(capacity: int) -> int:
    if capacity < 0:
        raise InputError(f"capacity is {capacity} chunks: give zero or more")
    return int(capacity)


def hits_at(runs: Runs, capacity_chunks: int) -> NDArray[np.int32]:
    """Return how many prompt chunks each call hits in an LRU tier, int32[calls].

    The chunks that hit are the first ones of the prompt.

    Raises:
        InputError: The capacity is negative.
    """
    hits = np.zeros(runs.refreshes.path_chunks.size, np.int32)
    _hits(runs.call, runs.first_distance, runs.length, _whole(capacity_chunks), hits)
    return hits


def writes_at(runs: Runs, capacity_chunks: int) -> Writes:
    """Return what an LRU tier of a capacity writes over the trace, and what becomes of it.

    Takes time and memory O(runs + calls).

    Raises:
        InputError: The capacity is negative.
    """
    capacity = _whole(capacity_chunks)
    rest = runs.refreshes
    found, reused, used = _lifetimes(
        capacity, runs.call, runs.owner, runs.depth, runs.first_distance, runs.length,
        rest.after, rest.call, rest.owner, rest.depth, rest.first_distance, rest.length,
        rest.path_chunks.size,
    )  # fmt: skip
    written = rest.touched - int(found)
    resident = _resident_unused(runs, capacity, used)
    return Writes(written, int(reused), written - int(reused) - resident, resident)


def _resident_unused(runs: Runs, capacity: int, used: NDArray[np.int64]) -> int:
    """Count the chunks in the tier at the end of the trace that no lookup hit."""
    rest = runs.refreshes
    begin = rest.left.astype(np.int64)
    size = rest.path_chunks - begin
    order = slice(None) if rest.last_touch is None else rest.last_touch
    below = np.empty_like(size)
    latest_first = size[order][::-1]
    below[order] = (np.cumsum(latest_first) - latest_first)[::-1]
    end = begin + np.clip(capacity - below, 0, size)
    return int(np.maximum(end - np.maximum(begin, used), 0).sum())
