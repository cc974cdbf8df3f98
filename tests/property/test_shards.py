"""SHARDS against the same sample drawn in Python ints and stacked in a list."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.chunk_stack import ORDERS, ChunkStack, Order
from agentkv_trace.engine.shards import Shards

if TYPE_CHECKING:
    from agentkv_trace.engine.sampled_curve import SampledCurve

streams = st.lists(st.integers(0, 30), max_size=80)
rates = st.sampled_from([1e-9, 0.1, 0.3, 0.5, 0.9, 1.0])
seeds = st.integers(0, 5)
whole_calls = st.lists(st.lists(st.integers(0, 15), max_size=6, unique=True), max_size=20)


def joined(lists: list[list[int]]) -> list[int]:
    return [item for each in lists for item in each]


def cuts(draw: st.DataObject, size: int) -> list[tuple[int, int]]:
    inner = draw.draw(st.lists(st.integers(0, size), max_size=3))
    return list(pairwise([0, *sorted(inner), size]))


def u64(chunks: list[int]) -> np.ndarray:
    return np.array(chunks, np.uint64)


def hits_of(curve: SampledCurve, prefix: bool = False) -> list[float]:
    hits = curve.prefix_hits if prefix else curve.chunk_hits
    assert hits is not None
    return hits.tolist()


def check(curve: SampledCurve, distances: list[int], units: list[int], known: int) -> None:
    """Compare a fixed-rate curve of known distinct chunks with the twin's."""
    references = curve.references
    if not distances:
        expected = [0.0]
    elif curve.rate == 1:
        expected = [
            float(sum(0 < d <= c for d in distances)) for c in range(distances.count(0) + 1)
        ]
    else:
        expected = naive.calibrated(distances, units, curve.rate, references, known)
    assert curve.samples == distances.count(0)
    assert hits_of(curve) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    scale = known / max(curve.samples, 1)
    assert curve.capacities.tolist() == pytest.approx([i * scale for i in range(len(expected))])


@settings(max_examples=150)
@given(chunks=streams, rate=rates, seed=seeds, data=st.data())
def test_a_fixed_rate_equals_the_twin(
    chunks: list[int], rate: float, seed: int, data: st.DataObject
) -> None:
    shards = Shards(rate=rate, seed=seed)
    for begin, end in cuts(data, len(chunks)):
        shards.feed(u64(chunks[begin:end]))
    sampled = [chunk for chunk in chunks if naive.is_sampled(chunk, rate, seed)]
    unique = len(set(chunks))
    check(shards.result(unique), naive.stack_distances(sampled), sampled, unique)


@settings(max_examples=60)
@given(chunks=streams, rate=rates, seed=seeds)
def test_the_plain_ratio_and_the_first_bucket(chunks: list[int], rate: float, seed: int) -> None:
    sampled = [chunk for chunk in chunks if naive.is_sampled(chunk, rate, seed)]
    distances = naive.stack_distances(sampled)
    for correction in ("none", "adjusted"):
        shards = Shards(rate=rate, seed=seed, correction=correction)
        shards.feed(u64(chunks))
        curve = shards.result()
        highest = 0.0
        for capacity, hits in enumerate(hits_of(curve)):
            counted = sum(0 < d <= capacity for d in distances)
            if correction == "none":
                expected = counted * len(chunks) / max(len(sampled), rate)
            else:
                expected = counted / rate + len(chunks) - len(sampled) / rate
            expected = min(max(expected, 0), len(chunks)) if capacity else 0
            highest = max(highest, expected)
            assert hits == pytest.approx(highest, rel=1e-6, abs=1e-6)
            assert curve.capacities[capacity] == pytest.approx(capacity / rate)


@settings(max_examples=60)
@given(drawn=whole_calls, rate=rates, seed=seeds, order=st.sampled_from(ORDERS), data=st.data())
def test_calls_by_chunk_equal_the_twin(
    drawn: list[list[int]], rate: float, seed: int, order: Order, data: st.DataObject
) -> None:
    shards = Shards(rate=rate, seed=seed, order=order)
    for begin, end in cuts(data, len(drawn)):
        piece = drawn[begin:end]
        shards.feed(u64(joined(piece)), np.cumsum([0, *map(len, piece)]))
    paths = [[c for c in path if naive.is_sampled(c, rate, seed)] for path in drawn]
    distances = joined(naive.call_distances([(p, len(p)) for p in paths], order))
    unique = len({chunk for path in drawn for chunk in path})
    curve = shards.result(unique)
    assert curve.references == sum(map(len, drawn))
    check(curve, distances, joined(paths), unique)


@settings(max_examples=100)
@given(sizes=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), max_size=25), seed=seeds)
@pytest.mark.parametrize("order", ORDERS)
def test_calls_by_root_equal_the_twin(
    order: Order, sizes: list[tuple[int, int]], seed: int
) -> None:
    # Tree t holds the chunks 10t, 10t + 1, ...; a call is the first few of one tree.
    drawn = [[10 * tree + i for i in range(size)] for tree, size in sizes]
    rate = 0.4
    shards = Shards(rate=rate, seed=seed, order=order, by="root")
    shards.feed(u64(joined(drawn)), np.cumsum([0, *map(len, drawn)]))
    unique = len({chunk for path in drawn for chunk in path})
    curve = shards.result(unique)
    paths = [path for path in drawn if path and naive.is_sampled(path[0], rate, seed)]
    per_call = naive.call_distances([(path, len(path)) for path in paths], order)
    units = [path[0] for path in paths for _ in path]
    check(curve, joined(per_call), units, unique)
    # Tail first, the running maximum is a chunk's own distance.
    if order == "tail-first":
        assert hits_of(curve, prefix=True) == pytest.approx(hits_of(curve))
    else:
        assert all(p <= c + 1e-6 for p, c in zip(hits_of(curve, True), hits_of(curve), strict=True))


@settings(max_examples=80)
@given(chunks=streams, samples=st.integers(1, 40), seed=seeds, data=st.data())
def test_a_fixed_size_holds_the_lowest_hashes(
    chunks: list[int], samples: int, seed: int, data: st.DataObject
) -> None:
    shards = Shards(samples=samples, seed=seed)
    for begin, end in cuts(data, len(chunks)):
        shards.feed(u64(chunks[begin:end]))
    unique = len(set(chunks))
    curve = shards.result(unique)
    held = {chunk for chunk in chunks if naive.sampling_hash(chunk, seed) <= shards._limit}
    assert curve.samples == len(held) <= samples
    hits = hits_of(curve)
    assert hits == sorted(hits)
    assert hits[-1] <= len(chunks) - unique + 1e-6
    if unique <= samples:
        exact = ChunkStack()
        exact.feed_histogram(u64(chunks))
        assert curve.rate == 1
        assert (curve.expected_error, curve.error_bound) == (0, 0)
        assert hits[1:] == np.cumsum(exact.histogram[1:]).tolist()
        distances, counts = curve.histogram()
        assert distances.tolist() == (np.flatnonzero(exact.histogram[1:]) + 1).tolist()
        assert counts.tolist() == [n for n in exact.histogram[1:].tolist() if n]
