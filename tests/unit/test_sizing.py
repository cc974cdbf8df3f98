"""Sizes from small curves, by hand."""

from __future__ import annotations

import pytest

from agentkv_trace.advise.sizing import (
    around,
    buyable_sizes,
    check_recover,
    round_up,
    size_host,
    step,
    working_set,
)
from agentkv_trace.errors import InputError
from naive import DistanceCurve

GIB = 2**30
# 10 references miss always, 50 hit from 10 chunks on, 30 from 100, 10 from 1000.
CURVE = DistanceCurve([10] * 50 + [100] * 30 + [1000] * 10, cold=10)


def test_working_set() -> None:
    assert working_set(CURVE) == 1000
    assert working_set(CURVE, 0.95) == 1000
    assert working_set(CURVE, 0.85) == 100
    assert working_set(CURVE, 0.5) == 10


def test_a_curve_without_hits_has_no_working_set() -> None:
    assert working_set(DistanceCurve([], cold=5)) == 0


def test_smallest_host_tier() -> None:
    sizing = size_host(CURVE, 10, 0.95)
    assert (sizing.gpu_hit_ratio, sizing.ceiling) == (0.5, 0.9)
    assert sizing.gain == pytest.approx(0.4)
    assert sizing.target_hit_ratio == pytest.approx(0.5 + 0.95 * 0.4)
    assert sizing.need_chunks == 1000
    assert size_host(CURVE, 10, 0.75).need_chunks == 100


def test_recovering_all_reaches_the_ceiling_whatever_the_rounding() -> None:
    for hits in range(1, 60):
        curve = DistanceCurve([1] * hits + [7] * (60 - hits) + [90] * 13, cold=7, tail=3)
        assert size_host(curve, 1, 1.0).need_chunks == 90


def test_nothing_to_gain_where_the_gpu_holds_the_working_set() -> None:
    sizing = size_host(CURVE, 1000, 0.95)
    assert sizing.need_chunks is None
    assert sizing.reason == "the GPU's KV pool holds the whole working set"


def test_nothing_to_gain_below_half_a_point() -> None:
    curve = DistanceCurve([10] * 9000 + [100_000] * 40, cold=960)
    sizing = size_host(curve, 10, 0.95)
    assert sizing.reason == "an unlimited host tier would add 0.40 points"
    more = DistanceCurve([10] * 9000 + [100_000] * 60, cold=940)
    assert size_host(more, 10, 0.95).need_chunks == 100_000


def test_nothing_to_gain_without_reuse() -> None:
    sizing = size_host(DistanceCurve([], cold=100), 10, 0.95)
    assert sizing.reason is not None
    assert "hardly any prefix" in sizing.reason


def test_a_host_tier_up_to_the_pool_adds_nothing() -> None:
    sizing = size_host(CURVE, 100, 0.95)
    chunk = GIB // 100
    same = step(CURVE, sizing, GIB, chunk)
    assert same.capacity_chunks == 100
    assert (same.hit_ratio, same.recovered) == (sizing.gpu_hit_ratio, 0.0)
    more = step(CURVE, sizing, 10 * GIB, chunk)
    assert (more.hit_ratio, more.recovered) == (0.9, 1.0)


def test_sizes_people_buy() -> None:
    known = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536]
    sizes = buyable_sizes()
    assert [next(sizes) // GIB for _ in known] == known
    assert round_up(0) == GIB
    assert round_up(24 * GIB) == 24 * GIB
    assert round_up(24 * GIB + 1) == 32 * GIB
    assert round_up(1500 * GIB) == 1536 * GIB


def test_sizes_around_one() -> None:
    assert [size // GIB for size in around(64 * GIB)] == [24, 32, 48, 64, 96, 128]
    assert [size // GIB for size in around(GIB)] == [1, 2, 4]


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_a_share_out_of_range(share: float) -> None:
    with pytest.raises(InputError, match="--recover"):
        check_recover(share)
