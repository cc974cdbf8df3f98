"""Curves against plain counting and against caches of every capacity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.cumulative import Cumulative
from agentkv_trace.engine.curve import MissRatioCurve
from agentkv_trace.engine.groups import curves_by
from agentkv_trace.engine.path_stack import path_runs
from strategies import Calls, calls

CHUNK = 16
run_lists = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), max_size=12)
histograms = st.dictionaries(st.integers(1, 60), st.integers(0, 9), max_size=15)


def counted(distances: list[int], capacity: int) -> int:
    return sum(distance <= capacity for distance in distances)


def of_runs(runs: list[tuple[int, int]], spread: int = 1) -> Cumulative:
    first = np.array([(first - 1) * spread + 1 for first, _ in runs], np.int64)
    return Cumulative.of_runs(first, np.array([length for _, length in runs], np.int32))


def curve_of(hits: Cumulative, prefix: Cumulative | None = None, **totals: Any) -> MissRatioCurve:
    values = {"calls": 1, "prompt_tokens": 997, "references": 60, "unique_chunks": 60} | totals
    return MissRatioCurve(
        chunk_tokens=CHUNK, chunk_hits=hits, prefix_hits=prefix or hits, engine="path", **values
    )


def whole(drawn: Calls, partial: int = 3) -> tuple[MissRatioCurve, dict[str, Any]]:
    """Return the curve of drawn calls whose prompts end in partial chunks, and their columns."""
    tree = drawn.tree()
    new = tree["path_chunks"] - tree["base_chunks"]
    tokens = tree["prompt_chunks"] * CHUNK + partial
    curve = MissRatioCurve.from_runs(
        path_runs(**tree),
        chunk_tokens=CHUNK,
        calls=new.size,
        prompt_tokens=int(tokens.sum()),
        references=int(tree["prompt_chunks"].sum()),
        unique_chunks=int(new.sum()),
    )
    columns = {"prompt_tokens": tokens, "prompt_chunks": tree["prompt_chunks"], "new_chunks": new}
    return curve, columns


@settings(max_examples=150)
@given(runs=run_lists, spread=st.sampled_from([1, 10**6]))
def test_runs_count_like_their_distances(runs: list[tuple[int, int]], spread: int) -> None:
    hits = of_runs(runs, spread)
    distances = [(first - 1) * spread + 1 + i for first, length in runs for i in range(length)]
    capacities = sorted({0, *(d + e for d in distances for e in (-1, 0, 1))})
    assert hits.at(np.array(capacities)).tolist() == [counted(distances, c) for c in capacities]
    assert_minimal(hits)


@settings(max_examples=150)
@given(histogram=histograms, data=st.data())
def test_distances_count_like_a_list(histogram: dict[int, int], data: st.DataObject) -> None:
    distances = [d for d, count in histogram.items() for _ in range(count)]
    distances = data.draw(st.permutations(distances))
    from_list = Cumulative.of_distances(
        np.array(distances, np.int64), np.ones(len(distances), np.int64)
    )
    from_counts = Cumulative.of_distances(
        np.array(list(histogram), np.int64), np.array(list(histogram.values()), np.int64)
    )
    for hits in (from_list, from_counts):
        assert hits.at(np.arange(70)).tolist() == [counted(distances, c) for c in range(70)]
        assert_minimal(hits)


def assert_minimal(hits: Cumulative) -> None:
    """Every corner turns, the last onto the level, and the first is the origin."""
    slopes = np.diff(hits.y) / np.diff(hits.x)
    assert hits.x[0] == hits.y[0] == 0
    assert np.all(np.diff(slopes, append=0) != 0)


@settings(max_examples=100)
@given(runs=run_lists, spread=st.sampled_from([1, 3]))
def test_reach_is_the_first_capacity(runs: list[tuple[int, int]], spread: int) -> None:
    hits = of_runs(runs, spread)
    wanted = np.arange(hits.total + 1)
    here = hits.reach(wanted)
    assert np.all(hits.at(here) >= wanted)
    assert np.all((here == 0) | (hits.at(np.maximum(here - 1, 0)) < wanted))


@settings(max_examples=50)
@given(parts=st.lists(run_lists, max_size=4))
def test_sums_add_up(parts: list[list[tuple[int, int]]]) -> None:
    functions = [of_runs(part) for part in parts]
    total = Cumulative.sum_of(functions)
    grid = np.arange(60)
    assert total.at(grid).tolist() == sum((f.at(grid) for f in functions), 0 * grid).tolist()
    assert_minimal(total)


@settings(max_examples=100)
@given(drawn=calls())
def test_curve_equals_a_cache_of_every_capacity(drawn: Calls) -> None:
    curve, _ = whole(drawn)
    capacities = np.arange(curve.unique_chunks + 2)
    hits = np.array([sum(naive.lru_replay(drawn, int(c))) for c in capacities])
    references, tokens = sum(drawn.prompts), max(curve.prompt_tokens, 1)
    assert curve.prefix_hit_ratio(capacities) == pytest.approx(hits * CHUNK / tokens)
    assert curve.miss_ratio(capacities) == pytest.approx(1 - hits / max(references, 1))
    assert curve.cold_references == references - hits[-1]
    assert curve.ceiling == pytest.approx(hits[-1] * CHUNK / tokens)


@settings(max_examples=150)
@given(runs=run_lists, capacity=st.integers(0, 45), nudge=st.sampled_from([-1e-9, 0.0, 1e-9]))
def test_capacity_for_is_the_smallest(
    runs: list[tuple[int, int]], capacity: int, nudge: float
) -> None:
    curve = curve_of(of_runs(runs))
    target = curve.prefix_hit_ratio(capacity) + nudge
    ratios = curve.prefix_hit_ratio(np.arange(46))
    enough = np.flatnonzero(ratios >= target)
    found = curve.capacity_for(prefix_hit_ratio=target)
    assert found == (int(enough[0]) if enough.size else None)


@settings(max_examples=60)
@given(runs=run_lists, share=st.floats(0, 1))
def test_reuse_distance_is_a_percentile(runs: list[tuple[int, int]], share: float) -> None:
    distances = sorted(first + i for first, length in runs for i in range(length))
    found = curve_of(of_runs(runs)).reuse_distance(share)
    if not distances:
        assert found is None
        return
    expected = next(
        d for d in distances if counted(distances, d) >= np.ceil(share * len(distances))
    )
    assert found == expected


@settings(max_examples=60)
@given(runs=run_lists, other=run_lists, limit=st.integers(1, 40))
def test_points_ascend_and_hold_the_ends(
    runs: list[tuple[int, int]], other: list[tuple[int, int]], limit: int
) -> None:
    curve = curve_of(of_runs(runs, 1000), of_runs(other, 1000))
    points = curve.points(limit).tolist()
    last = max(curve.chunk_hits.x[-1], curve.prefix_hits.x[-1])
    assert points == sorted(set(points))
    assert points[0] == 0
    assert len(points) <= limit
    assert limit == 1 or last in points


@settings(max_examples=30)
@given(
    runs=st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 3000)), min_size=1, max_size=60)
)
def test_points_draw_the_curve_on_both_axes(runs: list[tuple[int, int]]) -> None:
    hits = of_runs(runs)
    points = curve_of(hits).points(200)
    assume(points.size < 200)
    grid = np.arange(hits.x[-1] + 1)
    share = hits.at(grid) / hits.total
    for scale in (lambda x: x, np.log1p):
        drawn = np.interp(scale(grid), scale(points), hits.at(points) / hits.total)
        # Half a thousandth by choice, one more level between candidates.
        assert np.abs(drawn - share).max() < 0.0005 + 1 / 1024


@settings(max_examples=60)
@given(drawn=calls(), data=st.data())
def test_groups_share_one_cache(drawn: Calls, data: st.DataObject) -> None:
    size = len(drawn.paths)
    group = data.draw(st.lists(st.integers(-1, 2), min_size=size, max_size=size))
    _, columns = whole(drawn)
    runs = path_runs(**drawn.tree())
    curves = curves_by(runs, np.array(group, np.int64), chunk_tokens=CHUNK, **columns)
    assert len(curves) == max(group, default=-1) + 1
    for capacity in (0, 3, 9):
        hits = naive.lru_replay(drawn, capacity)
        for code, curve in enumerate(curves):
            mine = [call for call in range(size) if group[call] == code]
            assert curve.calls == len(mine)
            assert curve.references == sum(drawn.prompts[call] for call in mine)
            assert curve.chunk_hits.at(np.array(capacity)) == sum(hits[call] for call in mine)


@settings(max_examples=40)
@given(parts=st.lists(st.tuples(run_lists, run_lists), min_size=1, max_size=3))
def test_merged_caches_add_up(parts: list[tuple[Any, Any]]) -> None:
    curves = [curve_of(of_runs(a), of_runs(b)) for a, b in parts]
    merged = MissRatioCurve.merge(curves)
    grid = np.arange(60)
    missed = sum(curve.miss_ratio(grid) * curve.references for curve in curves)
    hit = sum(curve.prefix_hit_ratio(grid) * curve.prompt_tokens for curve in curves)
    assert merged.miss_ratio(grid) == pytest.approx(missed / merged.references)
    assert merged.prefix_hit_ratio(grid) == pytest.approx(hit / merged.prompt_tokens)
