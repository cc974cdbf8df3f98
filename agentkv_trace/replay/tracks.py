"""Tracks: the prefix tree of a trace cut into few long lines, so that a path is a handful of them.

Every path of the tree is a chain of stretches of tracks. A track begins where its path leaves
another (`parent`, at depth `attach`) and follows, at each fork, the branch with most calls below
it. Leaving a track therefore at least halves the calls below, and a path has at most
log2(calls) + 1 tracks; in practice the shared head, the session and its folds. A session that
only grows is one track however many calls it has.
"""

# ruff: noqa: TID253
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.engine.prefix_tree import parents, tree_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Tracks:
    """The tracks of a tree.

    track: int32[rows], the track in which each row's path ends, -1 for an empty path.
    parent, attach: int32[tracks], the track that each one leaves (-1: none) and the depth in
        chunks at which it does.
    """

    track: NDArray[np.int32]
    parent: NDArray[np.int32]
    attach: NDArray[np.int32]


def tracks_of(base: ArrayLike, base_chunks: ArrayLike, path_chunks: ArrayLike) -> Tracks:
    """Cut the tree of some paths into tracks.

    The columns are those of a trace, int32[rows]. O(rows log rows).
    Raises InputError where they are no tree.
    """
    base, shared, _, path = tree_columns(base, base_chunks, path_chunks, path_chunks)
    holder = parents(base, shared)
    # A path that adds nothing ends inside its holder's piece, like a branch of no length.
    order = np.lexsort((shared, holder)).astype(np.int64)
    return Tracks(*_tracks(holder, shared, path, order))


@kernel
def _tracks(holder, shared, path, order):  # type: ignore[no-untyped-def]
    rows = holder.size
    weight = np.ones(rows, np.int64)
    for row in range(rows - 1, -1, -1):
        if holder[row] >= 0:
            weight[holder[row]] += weight[row]
    # order: branches by holder, then depth; first[row]: where those of a row begin.
    first = np.zeros(rows + 2, np.int64)
    for row in range(rows):
        first[holder[row] + 2] += 1
    for row in range(rows + 1):
        first[row + 1] += first[row]
    track = np.full(rows, -1, np.int32)
    parent = np.full(2 * rows + 1, -1, np.int32)
    attach = np.zeros(2 * rows + 1, np.int32)
    count = 0
    for at in range(first[0], first[1]):
        if path[order[at]] > 0:
            track[order[at]] = count
            count += 1
    for row in range(rows):
        if path[row] == shared[row]:
            continue
        here = track[row]
        rest = weight[row]
        at = first[row + 1]
        end = first[row + 2]
        while at < end:
            depth = shared[order[at]]
            last = at
            best = -1
            heaviest = np.int64(0)
            while last < end and shared[order[last]] == depth:
                branch = order[last]
                rest -= weight[branch]
                if path[branch] > depth and weight[branch] > heaviest:
                    best = branch
                    heaviest = weight[branch]
                last += 1
            # What is left of this row's own piece wins a tie.
            if depth < path[row] and heaviest <= rest:
                best = -1
            for i in range(at, last):
                branch = order[i]
                if branch == best or path[branch] == depth:
                    track[branch] = here
                else:
                    track[branch] = count
                    parent[count] = here
                    attach[count] = depth
                    count += 1
            if best >= 0 and depth < path[row]:
                parent[count] = here
                attach[count] = depth
                here = count
                count += 1
            at = last
        track[row] = here
    return track, parent[:count].copy(), attach[:count].copy()
