"""Which capacities to show: few points that draw a curve well."""

from __future__ import annotations

import itertools
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from agentkv_trace.engine.cumulative import Cumulative

Int64 = NDArray[np.int64]

LEVELS = 1024
"""Candidates are a capacity for each of so many equal parts of the hits, and the one before it."""
INVISIBLE = 0.0005
"""A deviation of this share of the hits is not worth a point."""


def choose_points(functions: list[Cumulative], limit: int) -> Int64:
    """Return at most `limit` ascending capacities that draw all the functions.

    Begins with what must be there and adds, one by one, the candidate that is farthest from
    the line between its neighbours, on a linear or a logarithmic axis of capacities.
    """
    functions = [function for function in functions if function.total]
    if not functions:
        return np.zeros(1, np.int64)
    first = min(int(function.reach(np.array(1))) for function in functions)
    last = max(int(function.x[-1]) for function in functions)
    seeds = list(dict.fromkeys((0, last, first, first - 1)))[:limit]
    corners = np.empty(0, np.int64)
    if max(function.x.size for function in functions) <= LEVELS:
        corners = np.unique(np.concatenate([function.x for function in functions]))
    if 0 < 2 * corners.size <= limit:
        seeds.extend(corners.tolist())
    candidates = _candidates(functions, corners, seeds)
    shares = np.stack([function.at(candidates) / function.total for function in functions])
    chosen = np.unique(np.searchsorted(candidates, np.unique(seeds))).tolist()
    axes = (candidates.astype(np.float64), np.log1p(candidates))
    return candidates[_refine(axes, shares, chosen, limit)]


def _candidates(functions: list[Cumulative], corners: Int64, seeds: list[int]) -> Int64:
    """Return ascending capacities among which the points are chosen."""
    found = [np.array(seeds, np.int64), corners]
    for function in functions:
        levels = np.arange(1, LEVELS + 1, dtype=np.int64)
        hits = -(-levels * function.total // LEVELS)
        reached = function.reach(hits)
        found += [reached, reached - 1]
    return np.unique(np.concatenate(found))


def _refine(
    axes: tuple[NDArray[np.float64], ...],
    shares: NDArray[np.float64],
    chosen: list[int],
    limit: int,
) -> list[int]:
    """Return the chosen indices and those that add most, up to the limit."""
    queue: list[tuple[float, int, int, int]] = []

    def add(low: int, high: int) -> None:
        if high - low < 2:
            return
        inside = slice(low + 1, high)
        off = np.zeros(high - low - 1)
        for axis in axes:
            part = (axis[inside] - axis[low]) / (axis[high] - axis[low])
            for share in shares:
                line = share[low] + part * (share[high] - share[low])
                off = np.maximum(off, np.abs(share[inside] - line))
        worst = int(np.argmax(off))
        heappush(queue, (-float(off[worst]), low + 1 + worst, low, high))

    chosen = sorted(chosen)
    for low, high in itertools.pairwise(chosen):
        add(low, high)
    while queue and len(chosen) < limit:
        off, worst, low, high = heappop(queue)
        if -off < INVISIBLE:
            break
        chosen.append(worst)
        add(low, worst)
        add(worst, high)
    return sorted(chosen)
