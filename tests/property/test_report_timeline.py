"""The trace over time against slow twins: live context, sessions and working sets by bucket."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.engine.mrc import trace_runs
from agentkv_trace.report import timeline
from naive import bucket_working_sets, live_peaks, path_distances
from replays import trace_of, trace_of_columns
from strategies import Calls, calls


@st.composite
def sessions(draw):
    """Draw calls as (session, start, end, chunks), no two events at one time."""
    count = draw(st.integers(1, 8))
    times = draw(st.lists(st.integers(0, 400), min_size=2 * count, max_size=2 * count, unique=True))
    made = []
    for at in range(count):
        start, end = sorted(times[2 * at : 2 * at + 2])
        made.append((draw(st.integers(0, 2)), start, end, draw(st.integers(0, 5))))
    return sorted(made, key=lambda call: call[1])


@given(sessions(), st.integers(1, 7))
def test_peaks_are_the_most_that_is_live_at_any_moment(made, count) -> None:
    trace = trace_of(
        [list(range(chunks)) for *_, chunks in made],
        sessions=[f"s{name}" for name, *_ in made],
        starts=[start for _, start, _, _ in made],
        ends=[end for _, _, end, _ in made],
    )
    start, end, _ = timeline._clock(trace, timed=True)
    tokens, agents = timeline._live(trace, start, end, float(end.max()), count)
    expected = live_peaks([(n, s, e, 16 * chunks) for n, s, e, chunks in made], count)
    assert (tokens.tolist(), agents.tolist()) == expected


@given(calls(), st.integers(1, 4), st.sampled_from([0.5, 0.8, 0.95, 1.0]), st.data())
def test_a_working_set_is_the_smallest_cache_with_its_share(made: Calls, count, recover, data):
    size = len(made.paths)
    buckets = sorted(data.draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size)))
    trace = trace_of_columns(made.tree(), made.sessions)
    distances = [
        [None if each is None else each[0] for each in call] for call in path_distances(made)
    ]
    found = timeline._working_sets(trace_runs(trace), np.array(buckets, np.int64), count, recover)
    assert found == bucket_working_sets(distances, buckets, count, recover)
