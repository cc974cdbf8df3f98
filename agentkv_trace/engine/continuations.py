"""Where two prompts part: in the tree of their chunks and in the tree of their parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentkv_trace._jit import kernel
from agentkv_trace.engine.prefix_tree import parents

Int32 = NDArray[np.int32]

WINDOW = 32
"""Parts behind the last common one that are looked at."""


@kernel
def _shared(first, second, base_chunks, path_chunks, parent, shared):  # type: ignore[no-untyped-def]
    for pair in range(first.size):
        a = first[pair]
        b = second[pair]
        depth = np.int32(min(path_chunks[a], path_chunks[b]))
        while a != b:
            # What a call adds to the tree is in no earlier call's path.
            if a > b:
                depth = min(depth, base_chunks[a])
                a = parent[a]
            else:
                depth = min(depth, base_chunks[b])
                b = parent[b]
        shared[pair] = depth


def shared_chunks(
    first: ArrayLike,
    second: ArrayLike,
    base: ArrayLike,
    base_chunks: ArrayLike,
    path_chunks: ArrayLike,
) -> Int32:
    """Return how many chunks the paths of each pair of calls share, int32[pairs].

    The last three are the columns of a trace, int32[calls]. Takes steps up the tree for each
    pair: as many as calls added chunks to the two paths behind what they share.
    """
    shared, path = (_flat(column) for column in (base_chunks, path_chunks))
    one, two = _flat(first), _flat(second)
    found = np.empty(one.size, np.int32)
    _shared(one, two, shared, path, parents(_flat(base), shared), found)
    return found


@dataclass(frozen=True, slots=True)
class Tails:
    """What follows the common parts of pairs of prompts, int32[pairs, WINDOW] padded with -1.

    `common` is the last common part (-1: none), int32[pairs]; `old_parts` and `new_parts` count
    all parts behind it.
    """

    common: Int32
    old: Int32
    new: Int32
    old_parts: Int32
    new_parts: Int32


@kernel
def _up(part, stop, parent, tail):  # type: ignore[no-untyped-def]
    """Store the parts behind `stop` that come first on the way down to `part`; count all."""
    count = 0
    at = part
    while at != stop:
        count += 1
        at = parent[at]
    nth = count
    at = part
    while at != stop:
        nth -= 1
        if nth < tail.size:
            tail[nth] = at
        at = parent[at]
    return count


@kernel
def _tails(parent, old_leaf, new_leaf, common, old, new, old_parts, new_parts):  # type: ignore[no-untyped-def]
    for pair in range(old_leaf.size):
        a = old_leaf[pair]
        b = new_leaf[pair]
        while a != b:
            if a > b:
                a = parent[a]
            else:
                b = parent[b]
        common[pair] = a
        old_parts[pair] = _up(old_leaf[pair], a, parent, old[pair])
        new_parts[pair] = _up(new_leaf[pair], a, parent, new[pair])


def part_tails(parent: ArrayLike, old_leaf: ArrayLike, new_leaf: ArrayLike) -> Tails:
    """Return where pairs of prompts part, given the parts that end them, int32[pairs] each.

    `parent` is int32[parts], each part's parent before it (-1: none).
    """
    old_ends, new_ends = _flat(old_leaf), _flat(new_leaf)
    pairs = old_ends.size
    counts = [np.empty(pairs, np.int32) for _ in range(3)]
    old, new = (np.full((pairs, WINDOW), -1, np.int32) for _ in range(2))
    _tails(_flat(parent), old_ends, new_ends, counts[0], old, new, counts[1], counts[2])
    return Tails(counts[0], old, new, counts[1], counts[2])


@kernel
def _nth(parent, group, parts, nth):  # type: ignore[no-untyped-def]
    for which in range(parts.size):
        at = parts[which]
        while at >= 0:
            nth[which] += group[at] == group[parts[which]]
            at = parent[at]


def nth_of_group(parent: ArrayLike, group: ArrayLike, parts: ArrayLike) -> Int32:
    """Return the place of each part among those of its group in its prompt, from 1.

    `parent` and `group` are int32[parts of the trace], `parts` some of them.
    """
    wanted = _flat(parts)
    nth = np.zeros(wanted.size, np.int32)
    _nth(_flat(parent), _flat(group), wanted, nth)
    return nth


def _flat(values: ArrayLike) -> Int32:
    found: Int32 = np.ascontiguousarray(values, np.int32)
    return found if found.flags.writeable else found.copy()
