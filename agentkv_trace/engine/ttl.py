"""Hits of a cache that forgets by time, as hosted models have: no capacity, a time to live.

A chunk hits where it was touched no longer than the time to live ago; each touch, hit or not,
starts its time anew. The runs of the path engine tell who touched each chunk last. A call
touches its whole path, so the deeper a chunk, the longer ago its last touch: hits of a call are
a prefix, as in the LRU stack.

With sequential timing a call touches its path at its start. With overlap it touches its prompt
there and its path at its end, which takes over all that it holds: what a call touched last was
touched at its end if the call had ended, else at its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from agentkv_trace.engine.path_stack import Runs

__all__ = ["MINUTE_US", "ttl_hits"]

Int64 = NDArray[np.int64]

MINUTE_US = 60_000_000


def ttl_hits(
    runs: Runs,
    t_start_us: ArrayLike,
    lifetimes_us: ArrayLike,
    *,
    t_end_us: ArrayLike | None = None,
) -> Int64:
    """Return how many leading prompt chunks of each call hit, int64[lifetimes, calls].

    `runs` are those of `path_runs`, `t_start_us` the calls' starts in the order of the trace,
    int64[calls], `lifetimes_us` the times to live in microseconds. Runs made with overlap need
    the calls' ends too, int64[calls]; sequential ones must not have them. A chunk that was
    touched exactly its lifetime ago still hits.

    Raises:
        InputError: Times descend, end before they start or do not fit the runs, or a lifetime
            is negative.
    """
    starts = np.ascontiguousarray(t_start_us, np.int64)
    lifetimes = np.ascontiguousarray(lifetimes_us, np.int64)
    if starts.ndim != 1 or lifetimes.ndim != 1:
        raise InputError("t_start_us and lifetimes_us must be one row of integers each")
    if runs.call.size and starts.size <= int(runs.call.max()):
        raise InputError(f"there are {starts.size} starts for at least {runs.call.max() + 1} calls")
    if starts.size and (np.diff(starts) < 0).any():
        raise InputError("t_start_us must ascend: calls are looked up in the order of their starts")
    if lifetimes.size and lifetimes.min() < 0:
        raise InputError(f"a time to live is {lifetimes.min()} us: give 0 or more")
    touched = starts[runs.owner]
    if t_end_us is not None:
        ends_us = np.ascontiguousarray(t_end_us, np.int64)
        if ends_us.shape != starts.shape or (ends_us < starts).any():
            raise InputError("t_end_us must be one end per call, none before its start")
        last = ends_us[runs.owner]
        touched = np.where(last <= starts[runs.call], last, touched)
    ages = starts[runs.call] - touched
    ends = (runs.depth + runs.length).astype(np.int64)
    hits = np.zeros((lifetimes.size, starts.size), np.int64)
    for row, lifetime in zip(hits, lifetimes.tolist(), strict=True):
        alive = ages <= lifetime
        np.maximum.at(row, runs.call[alive], ends[alive])
    return hits
