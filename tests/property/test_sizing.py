"""What must hold of any curve, pool and share."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.advise.sizing import MIN_GAIN, around, round_up, size_host, step, working_set
from agentkv_trace.engine.curve import MissRatioCurve
from naive import DistanceCurve

DISTANCES = st.lists(st.integers(1, 200), max_size=60)
CURVES = st.builds(DistanceCurve, DISTANCES, st.integers(1, 40), tail=st.integers(0, 15))
SHARES = st.floats(0.01, 1.0)
SIZES = st.integers(1, 2**45)


@given(CURVES, st.integers(0, 250), SHARES)
def test_the_need_is_the_smallest_that_recovers_the_share(curve, pool, share) -> None:
    sizing = size_host(curve, pool, share)
    alone, ceiling = curve.prefix_hit_ratio(pool), curve.ceiling
    assert (sizing.need_chunks is None) == (ceiling - alone < MIN_GAIN)
    assert (sizing.need_chunks is None) == (sizing.reason is not None)
    if sizing.need_chunks is not None:
        target = min(alone + share * (ceiling - alone), ceiling)
        assert curve.prefix_hit_ratio(sizing.need_chunks) >= target
        assert curve.prefix_hit_ratio(sizing.need_chunks - 1) < target
        assert sizing.need_chunks > pool


@given(CURVES, st.integers(0, 250), SHARES, SHARES)
def test_more_to_recover_never_needs_less(curve, pool, one, other) -> None:
    low = size_host(curve, pool, min(one, other)).need_chunks
    high = size_host(curve, pool, max(one, other)).need_chunks
    assert (low is None) == (high is None)
    assert low is None or low <= high


@given(CURVES, st.integers(0, 250), SIZES, SIZES, st.integers(1, 2**40))
def test_larger_tiers_never_give_less(curve, pool, one, other, chunk_bytes) -> None:
    sizing = size_host(curve, pool, 0.95)
    small = step(curve, sizing, min(one, other), chunk_bytes)
    large = step(curve, sizing, max(one, other), chunk_bytes)
    assert sizing.gpu_hit_ratio <= small.hit_ratio <= large.hit_ratio <= sizing.ceiling
    assert 0 <= small.recovered <= large.recovered <= 1
    if small.capacity_chunks <= pool:
        assert small.hit_ratio == sizing.gpu_hit_ratio


@given(CURVES, SHARES)
def test_the_working_set_is_the_smallest_with_its_share(curve, share) -> None:
    size = working_set(curve, share)
    assert curve.prefix_hit_ratio(size) >= share * curve.ceiling
    assert size == 0 or curve.prefix_hit_ratio(size - 1) < share * curve.ceiling
    assert size <= working_set(curve)


@given(CURVES, st.integers(0, 250), SHARES)
def test_the_curve_of_the_engine_gives_the_same(curve, pool, share) -> None:
    real = MissRatioCurve.from_distances(
        np.array(curve.distances, np.int64),
        chunk_tokens=curve.chunk_tokens,
        calls=1,
        prompt_tokens=curve.prompt_tokens,
        references=curve.references,
        unique_chunks=curve.unique_chunks,
    )
    assert size_host(real, pool, share) == size_host(curve, pool, share)
    assert working_set(real, share) == working_set(curve, share)


@given(SIZES)
def test_rounding_up_buys_enough_and_at_most_twice(needed: int) -> None:
    bought = round_up(needed)
    assert bought >= needed
    assert bought < 2 * needed or bought == 2**30
    sizes = around(bought)
    assert bought in sizes
    assert sizes == sorted(set(sizes))
