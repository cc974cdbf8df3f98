"""The path engine against explicit LRU stacks and caches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.path_stack import Runs, next_call_reuse, path_runs
from agentkv_trace.engine.reuse import hits_at, writes_at
from strategies import Calls, calls

TIMINGS = ["sequential", "overlap"]


def runs_of(drawn: Calls, timing: str) -> Runs:
    times = drawn.times() if timing == "overlap" else {}
    return path_runs(**drawn.tree(), timing=timing, **times)


def spread(runs: Runs, calls: int) -> list[list[tuple[int, int]]]:
    """Return (distance, owner) per call and chunk; asserts that rows follow each other."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(calls)]
    columns = (runs.call, runs.owner, runs.depth, runs.first_distance, runs.length)
    last = -1
    for call, owner, depth, first, length in zip(*(c.tolist() for c in columns), strict=True):
        assert call >= last
        assert depth == len(found[call])
        assert length > 0
        found[call].extend((first + i, owner) for i in range(length))
        last = call
    return found


@pytest.mark.parametrize("timing", TIMINGS)
@settings(max_examples=250)
@given(drawn=calls())
def test_distances_equal_the_stack(timing: str, drawn: Calls) -> None:
    expected = [[chunk for chunk in call if chunk] for call in naive.path_distances(drawn, timing)]
    assert spread(runs_of(drawn, timing), len(drawn.paths)) == expected


@pytest.mark.parametrize("timing", TIMINGS)
@settings(max_examples=200)
@given(drawn=calls(), capacity=st.integers(0, 30))
def test_hits_equal_a_replay(timing: str, drawn: Calls, capacity: int) -> None:
    hits = hits_at(runs_of(drawn, timing), capacity)
    assert hits.tolist() == naive.lru_replay(drawn, capacity, timing)


@pytest.mark.parametrize("timing", TIMINGS)
@settings(max_examples=250)
@given(drawn=calls(), capacity=st.integers(0, 30))
def test_writes_equal_a_replay(timing: str, drawn: Calls, capacity: int) -> None:
    writes = writes_at(runs_of(drawn, timing), capacity)
    expected = naive.lru_writes(drawn, capacity, timing)
    assert (writes.written, writes.reused, writes.evicted, writes.resident) == expected


@settings(max_examples=150)
@given(drawn=calls())
def test_next_call_reuse_equals_sets(drawn: Calls) -> None:
    found = next_call_reuse(np.array(drawn.sessions, np.int64), **drawn.tree())
    assert found == naive.next_call_reuse(drawn)


@settings(max_examples=100)
@given(drawn=calls(), scale=st.integers(2, 1000))
def test_scaling_all_lengths_scales_all_runs(drawn: Calls, scale: int) -> None:
    tree = drawn.tree()
    small = path_runs(**tree)
    large = path_runs(**{k: v if k == "base" else v * scale for k, v in tree.items()})
    assert large.call.tolist() == small.call.tolist()
    assert large.length.tolist() == (small.length * scale).tolist()
    assert large.first_distance.tolist() == ((small.first_distance - 1) * scale + 1).tolist()


@settings(max_examples=50)
@given(drawn=calls())
def test_calls_that_end_at_once_overlap_nothing(drawn: Calls) -> None:
    alone = Calls(drawn.paths, drawn.prompts, drawn.sessions, drawn.starts, drawn.starts)
    overlap, sequential = runs_of(alone, "overlap"), runs_of(alone, "sequential")
    assert spread(overlap, len(drawn.paths)) == spread(sequential, len(drawn.paths))
