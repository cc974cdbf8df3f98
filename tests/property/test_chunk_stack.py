"""The chunk engine against a list as LRU stack and a cache of one capacity."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.chunk_stack import ORDERS, CallStack, ChunkStack, Order, leading_run
from agentkv_trace.engine.keys import DenseIds
from agentkv_trace.engine.path_stack import path_runs
from strategies import Calls, calls

streams = st.lists(st.integers(0, 12), max_size=60)
foreign_calls = st.lists(
    st.lists(st.integers(0, 9), max_size=7).flatmap(
        lambda path: st.tuples(st.just(path), st.integers(0, len(path)))
    ),
    max_size=12,
)


def keys_of(chunks: list[int]) -> np.ndarray:
    return np.array([chunk * 0x9E3779B97F4A7C15 % 2**64 for chunk in chunks], np.uint64)


def joined(lists: list[list[int]]) -> list[int]:
    return [item for each in lists for item in each]


def cuts(draw: st.DataObject, size: int) -> list[tuple[int, int]]:
    """Draw where a stream of some size is cut into pieces, empty ones too."""
    inner = draw.draw(st.lists(st.integers(0, size), max_size=4))
    return list(pairwise([0, *sorted(inner), size]))


def flat(drawn: list[tuple[list[int], int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return keys, offsets and prompt chunks of calls."""
    paths = [path for path, _ in drawn]
    offsets = np.cumsum([0, *map(len, paths)])
    return keys_of(joined(paths)), offsets, np.array([n for _, n in drawn], np.int64)


@given(chunks=streams, data=st.data())
def test_ids_are_numbered_in_order_of_sight(chunks: list[int], data: st.DataObject) -> None:
    ids, found = DenseIds(), []
    for begin, end in cuts(data, len(chunks)):
        found += ids.intern(keys_of(chunks[begin:end])).tolist()
    known = list(dict.fromkeys(chunks))
    assert found == [known.index(chunk) for chunk in chunks]
    assert ids.keys.tolist() == keys_of(known).tolist()


@settings(max_examples=200)
@given(chunks=streams, data=st.data())
def test_distances_equal_the_list(chunks: list[int], data: st.DataObject) -> None:
    stack, found = ChunkStack(), []
    for begin, end in cuts(data, len(chunks)):
        found += stack.feed(keys_of(chunks[begin:end])).tolist()
    assert found == naive.stack_distances(chunks)
    assert stack.unique_chunks == len(set(chunks))


@given(chunks=streams, data=st.data())
def test_the_histogram_counts_the_distances(chunks: list[int], data: st.DataObject) -> None:
    stack = ChunkStack()
    for begin, end in cuts(data, len(chunks)):
        stack.feed_histogram(keys_of(chunks[begin:end]))
    distances = naive.stack_distances(chunks)
    expected = [distances.count(d) for d in range(len(set(chunks)) + 1)]
    assert stack.histogram.tolist() == expected


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=200)
@given(drawn=foreign_calls, data=st.data())
def test_calls_equal_the_list(
    order: Order, drawn: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    stack, found = CallStack(order), []
    for begin, end in cuts(data, len(drawn)):
        found += stack.feed(*flat(drawn[begin:end])).tolist()
    expected = []
    pairs = zip(drawn, naive.call_distances(drawn, order), strict=True)
    for (path, looked), distances in pairs:
        expected += distances + [-1] * (len(path) - looked)
    assert found == expected


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=150)
@given(drawn=foreign_calls, data=st.data())
def test_calls_hit_as_in_a_cache_of_any_capacity(
    order: Order, drawn: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    stack = CallStack(order)
    for begin, end in cuts(data, len(drawn)):
        stack.feed_histogram(*flat(drawn[begin:end]))
    result = stack.result()
    assert result.calls == len(drawn)
    assert result.references == sum(looked for _, looked in drawn)
    assert result.unique_chunks == len({chunk for path, _ in drawn for chunk in path})
    assert result.cold_references == result.references - int(result.chunk_histogram.sum())
    for capacity in range(1, result.unique_chunks + 1):
        hits = naive.cache_hits(drawn, order, capacity)
        assert result.chunk_histogram[: capacity + 1].sum() == sum(chunk for chunk, _ in hits)
        assert result.prefix_histogram[: capacity + 1].sum() == sum(run for _, run in hits)


@settings(max_examples=150)
@given(drawn=calls())
def test_on_prefix_trees_it_agrees_with_the_path_engine(drawn: Calls) -> None:
    runs = path_runs(**drawn.tree())
    by_path = np.concatenate(
        [np.arange(n) + d for d, n in zip(runs.first_distance, runs.length, strict=True)]
        or [np.zeros(0, np.int64)]
    )
    chunks = {chunk for path in drawn.paths for chunk in naive.chunks_of(path)}
    number = {chunk: i for i, chunk in enumerate(sorted(chunks))}
    paths = [[number[c] for c in naive.chunks_of(path)] for path in drawn.paths]
    keys, offsets, prompts = flat(list(zip(paths, drawn.prompts, strict=True)))
    distances = CallStack("tail-first").feed(keys, offsets, prompts)
    assert distances[distances > 0].tolist() == by_path.tolist()
    # Distances ascend with depth, so a chunk's own says when its prefix is resident.
    runs_of = leading_run(distances, offsets)
    assert runs_of[distances > 0].tolist() == by_path.tolist()
