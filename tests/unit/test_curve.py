"""MissRatioCurve on curves small enough to know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentkv_trace.engine.curve import MissRatioCurve
from agentkv_trace.engine.groups import curves_by, window_codes
from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def curve(histogram: dict[int, int], prefix: dict[int, int] | None = None, **totals: Any):  # type: ignore[no-untyped-def]
    values: dict[str, Any] = {
        "chunk_tokens": 16,
        "calls": 2,
        "prompt_tokens": 2000,
        "references": 100,
        "unique_chunks": 60,
    }
    if prefix is not None:
        values["prefix_distances"] = np.array(list(prefix), np.int64)
        values["prefix_counts"] = np.array(list(prefix.values()), np.int64)
    distances = np.array(list(histogram), np.int64)
    counts = np.array(list(histogram.values()), np.int64)
    return MissRatioCurve.from_distances(distances, counts, **(values | totals))


def test_ratios_have_their_own_denominators() -> None:
    known = curve({5: 20, 9: 30}, {9: 40})
    assert known.miss_ratio(4) == 1.0
    assert known.miss_ratio(5) == 0.8
    assert known.miss_ratio([8, 9, 10**9]).tolist() == [0.8, 0.5, 0.5]
    assert known.prefix_hit_ratio(8) == 0.0
    assert known.prefix_hit_ratio(9) == known.ceiling == 40 * 16 / 2000
    assert known.cold_references == 50
    assert isinstance(known.miss_ratio(5), float)
    assert known.miss_ratio(np.zeros((2, 3), np.int32)).shape == (2, 3)


def test_nothing_at_all_is_no_error() -> None:
    none = np.empty(0, np.int32)
    empty = MissRatioCurve.from_runs(
        path_runs(none, none, none, none),
        chunk_tokens=16,
        calls=0,
        prompt_tokens=0,
        references=0,
        unique_chunks=0,
    )
    assert empty.miss_ratio([0, 5]).tolist() == [1.0, 1.0]
    assert empty.prefix_hit_ratio([0, 5]).tolist() == [0.0, 0.0]
    assert empty.ceiling == 0.0
    assert empty.points().tolist() == [0]
    assert empty.knee() is None
    assert empty.reuse_distance(0.5) is None
    assert empty.capacity_for(prefix_hit_ratio=0.0) == 0
    assert empty.capacity_for(prefix_hit_ratio=0.1) is None
    assert json.dumps([empty.miss_ratio(3), empty.prefix_hit_ratio(3)], allow_nan=False)


def test_one_point_and_references_without_hits() -> None:
    one = curve({1: 100})
    assert one.points().tolist() == [0, 1]
    assert one.knee() == one.reuse_distance(0.5) == 1
    flat = curve({})
    assert flat.miss_ratio(10**12) == 1.0
    assert flat.points().tolist() == [0]


def test_capacity_for_a_target() -> None:
    known = curve({5: 20, 9: 30})
    assert known.capacity_for(prefix_hit_ratio=0.16) == 5
    assert known.capacity_for(prefix_hit_ratio=0.16001) == 9
    assert known.capacity_for(prefix_hit_ratio=known.ceiling) == 9
    assert known.capacity_for(prefix_hit_ratio=0.41) is None
    assert known.capacity_for(prefix_hit_ratio=-0.5) == 0
    assert known.capacity_for(prefix_hit_ratio=float("nan")) is None


@pytest.mark.parametrize(
    ("histogram", "knee"),
    [
        ({1000: 50}, 1000),  # a cliff
        ({3: 1, 1000: 999}, 1000),  # a cliff behind a few hits that cost nothing
        ({100: 90, 10_000: 10}, 100),  # a step and a long tail
        (dict.fromkeys(range(1, 101), 1), 100),  # a straight line
        ({d: d for d in range(1, 101)}, 100),  # bent the other way
        ({d: 1000 // d for d in range(1, 1001)}, 130),  # smooth: 1000/d falls to the mean, 7
    ],
)
def test_knee(histogram: dict[int, int], knee: int) -> None:
    assert curve(histogram).knee() == pytest.approx(knee, rel=0.1)


def test_points_hold_both_ends_of_each_cliff() -> None:
    steps = {100 * 3**i: 10 + i for i in range(10)}
    steps[7] = 1
    steps[10**6] = 10**6  # beside which a step of one hit cannot be seen
    points = set(curve(steps).points(200).tolist())
    assert {0, *steps, *(d - 1 for d in steps)} <= points


def test_points_find_cliffs_among_many_corners() -> None:
    rng = np.random.default_rng(1)
    noise = dict.fromkeys(rng.integers(1, 10**6, 20_000).tolist(), 1)
    cliffs = {20_000: 8_000, 300_000: 30_000}
    points = curve(noise | cliffs).points(50)
    first = min(noise)
    assert {0, first - 1, first} <= set(points.tolist())
    assert {d - e for d in cliffs for e in (0, 1)} <= set(points.tolist())
    assert points.size <= 50


def test_points_of_a_limit() -> None:
    known = curve({d * d: 1 for d in range(1, 200)})
    assert known.points(1).tolist() == [0]
    assert known.points(2).tolist() == [0, 199 * 199]
    with pytest.raises(InputError, match="0 points"):
        known.points(0)


def test_bytes_of_a_model() -> None:
    known = curve({1: 1})
    assert known.to_bytes(10, 1000.5) == 160_080
    assert known.to_bytes(1, 0.03) == 1
    assert known.from_bytes(160_079, 1000.5) == 9
    assert known.from_bytes(160_080, 1000.5) == 10


def test_merge_says_what_differs() -> None:
    exact = curve({5: 20})
    sampled = curve({5: 20}, sampling={"rate": 0.1, "seed": 1, "expected_error": 0.02})
    both = MissRatioCurve.merge([exact, sampled])
    assert both.engine == "chunk"
    assert both.sampling == {"rate": None, "samples": None, "seed": None, "expected_error": 0.01}
    assert MissRatioCurve.merge([exact, exact]).sampling is None
    assert MissRatioCurve.merge([exact, curve({}, engine="path")]).engine == "mixed"
    with pytest.raises(InputError, match="16, 64"):
        MissRatioCurve.merge([exact, curve({}, chunk_tokens=64)])
    with pytest.raises(InputError, match="no curve"):
        MissRatioCurve.merge([])


def test_parquet_holds_the_whole_curve(tmp_path: Path) -> None:
    written = curve({5: 20, 9: 30}, {7: 3, 9: 40}, sampling={"rate": 0.5})
    written.to_parquet(tmp_path / "c.parquet")
    read = MissRatioCurve.from_parquet(tmp_path / "c.parquet")
    for name in ("chunk_hits", "prefix_hits"):
        assert getattr(read, name).x.tolist() == getattr(written, name).x.tolist()
        assert getattr(read, name).y.tolist() == getattr(written, name).y.tolist()
    for name in ("chunk_tokens", "calls", "prompt_tokens", "references", "unique_chunks"):
        assert getattr(read, name) == getattr(written, name)
    assert (read.engine, read.order, read.sampling) == ("chunk", "tail-first", {"rate": 0.5})
    table = pq.read_table(tmp_path / "c.parquet").to_pydict()
    assert table["capacity_chunks"] == [0, 4, 5, 6, 7, 8, 9]
    assert table["miss_ratio"] == [1.0, 1.0, 0.8, 0.8, 0.8, 0.8, 0.5]


def test_parquet_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(InputError, match=r"x\.parquet"):
        MissRatioCurve.from_parquet(path)
    path.write_bytes(b"no parquet")
    with pytest.raises(InputError, match=r"x\.parquet"):
        MissRatioCurve.from_parquet(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="no curve"):
        MissRatioCurve.from_parquet(path)
    meta = {b"agentkv_trace": json.dumps({"schema": "agentkv-trace/curve/2"})}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(meta), path)
    with pytest.raises(InputError, match="curve/2"):
        MissRatioCurve.from_parquet(path)


@pytest.mark.parametrize("bad", [-1, [3, -1], 1.5, [0.5], "ten"])
def test_capacities_are_whole_chunks(bad: Any) -> None:
    with pytest.raises(InputError, match="capacit"):
        curve({1: 1}).miss_ratio(bad)
    with pytest.raises(InputError, match="capacit"):
        curve({1: 1}).prefix_hit_ratio(bad)


def test_distances_are_checked() -> None:
    for bad in ({0: 1}, {1: -1}):
        with pytest.raises(InputError, match="at least"):
            curve(bad)
    totals: dict[str, Any] = {"chunk_tokens": 1, "calls": 1, "prompt_tokens": 1, "references": 1}
    with pytest.raises(InputError, match="integers"):
        MissRatioCurve.from_distances([1.5], **totals, unique_chunks=1)
    with pytest.raises(InputError, match="differ"):
        MissRatioCurve.from_distances([1, 2], [1], **totals, unique_chunks=1)
    with pytest.raises(InputError, match="share"):
        curve({1: 1}).reuse_distance(1.5)


def test_time_windows_group_calls() -> None:
    codes = window_codes(np.array([1_000, 1_500, 4_000]), 1_000)
    assert codes.tolist() == [0, 0, 3]
    assert window_codes(np.empty(0, np.int64), 5).size == 0
    with pytest.raises(InputError, match="window"):
        window_codes(np.array([1]), 0)
    # Calls of 10, 10 and 12 chunks, each on top of the last.
    ten = np.array([10, 10, 12])
    runs = path_runs([-1, 0, 1], [0, 10, 10], ten, ten)
    columns = {"prompt_tokens": ten * 16, "prompt_chunks": ten, "new_chunks": np.array([10, 0, 2])}
    curves = curves_by(runs, codes, chunk_tokens=16, **columns)
    assert [c.calls for c in curves] == [2, 0, 0, 1]
    assert [c.unique_chunks for c in curves] == [10, 0, 0, 2]
    assert [c.prefix_hit_ratio(10) for c in curves] == [0.5, 0.0, 0.0, pytest.approx(10 / 12)]
    with pytest.raises(InputError, match="length"):
        curves_by(runs, codes[:2], chunk_tokens=16, **columns)
