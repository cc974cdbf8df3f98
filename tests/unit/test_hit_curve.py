from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.tiers.hit_curve import BACKENDS, REPLAYS, backend_curve
from made import trace

CALLS = trace(range(8), range(9), [0, 1, 50, 51], range(10), [0, 1, 50, 51, 52])


@pytest.mark.parametrize("backend", REPLAYS)
def test_replayed_points_reach_what_the_workload_can_hit(backend: str) -> None:
    curve = backend_curve(CALLS, backend)
    points = curve.points()
    # Chunks 0 to 9 and 50 to 52 are distinct, and the longest call takes 10.
    assert points[0] >= 10
    assert points[-1] >= 13 * 1.25
    assert curve.ceiling == curve.prefix_hit_ratio(int(points[-1]))
    # Of 36 references 13 are first touches.
    assert curve.miss_ratio(int(points[-1])) == pytest.approx(13 / 36)
    assert curve.miss_ratio(int(points[0]) - 1) == 1.0
    assert curve.cold_references == 13


def test_the_order_is_the_backends_own() -> None:
    orders = {name: backend_curve(CALLS, name).order for name in BACKENDS}
    assert orders.pop("lmcache") == "head-first"
    assert set(orders.values()) == {"tail-first"}


def test_a_replayed_curve_knows_nothing_that_was_not_replayed() -> None:
    curve = backend_curve(CALLS, "sglang", [12, 20])
    assert curve.points().tolist() == [12, 20]
    np.testing.assert_array_equal(curve.miss_ratio([12, 19]), curve.miss_ratio([12, 12]))
    assert not hasattr(curve, "capacity_for")


def test_a_capacity_that_the_largest_call_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="the largest call takes 10"):
        backend_curve(CALLS, "sglang", [9])
