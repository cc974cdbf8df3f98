from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import naive
from agentkv_trace.trace.chunks import SEED, extend
from agentkv_trace.trace.tree import link

PATHS = st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=14)


def chained(path: list[int]) -> list[int]:
    return extend(SEED, b"", bytes(path), 1)[0]


def linked(paths: list[list[int]], known: list[int], known_chunks: list[int]) -> tuple:
    own = [chained(path)[skip:] for path, skip in zip(paths, known_chunks, strict=True)]
    offsets = np.cumsum([0, *map(len, own)])
    base, length = link(
        np.array(known, np.int32),
        np.array(known_chunks, np.int32),
        offsets,
        np.array([key for keys in own for key in keys], np.uint64),
    )
    return base.tolist(), length.tolist()


@given(PATHS)
def test_bases_equal_those_found_by_comparing_all_pairs(paths: list[list[int]]) -> None:
    nothing = [0] * len(paths)
    assert linked(paths, [-1] * len(paths), nothing) == naive.link(paths)


@given(PATHS, st.data())
def test_what_is_known_beforehand_changes_nothing(
    paths: list[list[int]], data: st.DataObject
) -> None:
    known, known_chunks = [], []
    for row, path in enumerate(paths):
        earlier = data.draw(st.integers(-1, row - 1))
        shared = naive.shared_prefix(path, paths[earlier]) if earlier >= 0 else 0
        skip = data.draw(st.integers(0, shared))
        known.append(earlier if skip else -1)
        known_chunks.append(skip)
    assert linked(paths, known, known_chunks) == naive.link(paths)


def test_key_zero_is_a_key_like_any_other() -> None:
    keys = np.array([0, 0], np.uint64)
    base, length = link(np.array([-1, -1]), np.array([0, 0]), np.array([0, 1, 2]), keys)
    assert base.tolist() == [-1, 0]
    assert length.tolist() == [0, 1]
