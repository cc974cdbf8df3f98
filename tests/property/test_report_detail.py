"""What a report shows beside its advice against slow twins: distances, sums of sessions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.engine.mrc import curve_of_runs, trace_runs
from agentkv_trace.report import detail
from naive import distance_bins, path_distances, session_sums
from replays import CHUNK, trace_of_columns
from strategies import Calls, calls


def drawn_distances(made: Calls) -> list[list[int | None]]:
    return [[None if each is None else each[0] for each in call] for call in path_distances(made)]


@given(calls())
def test_bins_hold_the_share_of_references_between_powers_of_two(made: Calls) -> None:
    trace = trace_of_columns(made.tree(), made.sessions)
    bins, cold = detail._distances(curve_of_runs(trace, trace_runs(trace)))
    expected, expected_cold = distance_bins(drawn_distances(made))
    found = {(b.above_tokens, b.to_tokens): b.share for b in bins if b.share}
    assert found == pytest.approx(
        {(low * CHUNK, high * CHUNK): share for (low, high), share in expected.items()}
    )
    assert cold == pytest.approx(expected_cold)
    assert all(one.to_tokens == next_.above_tokens for one, next_ in itertools.pairwise(bins))


@given(calls(), st.data())
def test_sums_of_sessions(made: Calls, data) -> None:
    trace = trace_of_columns(made.tree(), made.sessions)
    hits = data.draw(
        st.lists(st.integers(0, 100), min_size=len(made.paths), max_size=len(made.paths))
    )
    groups = detail._groups(trace, "session", np.array(hits, np.int64))
    looked_up = [
        (name, call) for name, call in zip(made.sessions, drawn_distances(made), strict=True)
    ]
    expected = session_sums(looked_up, hits)
    found = {
        row.name: (row.calls, row.prompt_tokens, row.hit_ratio, row.gpu_hit_ratio)
        for row in groups.rows
    }
    assert set(found) == {f"session {name}" for name in expected}
    for name, (count, chunks, hit_chunks, gpu) in expected.items():
        tokens = chunks * CHUNK
        assert found[f"session {name}"] == (
            count,
            tokens,
            pytest.approx(hit_chunks * CHUNK / max(tokens, 1)),
            pytest.approx(gpu / max(tokens, 1)),
        )
