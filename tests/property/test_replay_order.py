"""The order in which N agents make the calls of a trace, against slow twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.engine.mrc import miss_ratio_curve
from agentkv_trace.engine.prefix_tree import reordered, tree_columns
from agentkv_trace.errors import InputError
from agentkv_trace.replay.order import replayed_trace
from agentkv_trace.replay.setting import ideal
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline, plan
from agentkv_trace.trace.paths import Paths
from naive import chunks_of, closed_loop_starts
from replays import CHUNK, trace_of, trace_of_columns
from strategies import Calls, calls


@given(calls(), st.randoms())
def test_a_base_is_the_longest_prefix_among_the_rows_before(made: Calls, random) -> None:
    tree = made.tree()
    base, shared, _, path = tree_columns(*tree.values())
    order = list(range(len(made.paths)))
    random.shuffle(order)
    kept = order[: random.randint(0, len(order))]
    found, found_chunks = reordered(base, shared, path, np.array(kept, np.int64))
    for row, call in enumerate(kept):
        mine = chunks_of(made.paths[call])
        common = [
            sum(a == b for a, b in zip(mine, chunks_of(made.paths[other]), strict=False))
            for other in kept[:row]
        ]
        longest = max(common, default=0)
        assert found_chunks[row] == longest
        if longest:
            assert common[found[row]] == longest
        else:
            assert found[row] == -1


@given(calls(), st.integers(1, 6), st.data())
def test_calls_start_when_their_agent_comes_to_them(made: Calls, agents: int, data) -> None:
    trace = trace_of_columns(made.tree(), made.sessions)
    if not len(trace):
        with pytest.raises(InputError, match="no calls"):
            replayed_trace(trace, agents)
        return
    found, _ = replayed_trace(trace, agents)
    laid = plan(trace, Timeline(agents=agents))
    lasts = (trace.array("t_end_us") - trace.array("t_start_us"))[laid.call] / 1e6
    expected = sorted(closed_loop_starts(laid, lasts, min(agents, len(laid.release))))
    assert found.array("t_start_us").tolist() == pytest.approx([1e6 * s for s in expected], abs=2)


@given(calls(), st.integers(1, 6))
def test_no_chunk_is_lost_or_shared_anew(made: Calls, agents: int) -> None:
    trace = trace_of_columns(made.tree(), made.sessions)
    if not len(trace):
        return
    found, _ = replayed_trace(trace, agents)
    shared = np.minimum(found.array("base_chunks"), found.array("prompt_chunks"))
    computed = found.array("prompt_tokens").sum() - shared.sum() * CHUNK
    unlimited = ideal(None)
    timeline = Timeline(agents=agents)
    whole = miss_ratio_curve(found)
    if agents <= int(max(made.sessions)) + 1 and len(found) == len(trace):
        assert whole.unique_chunks == miss_ratio_curve(trace).unique_chunks
    # Prompts alone decide what an unlimited server computes; outputs may be resent before.
    if (found.array("prompt_chunks") == found.array("path_chunks")).all():
        assert Load(trace, timeline).run(unlimited).computed_tokens == computed
    assert whole.prompt_tokens == trace.array("prompt_tokens")[plan(trace, timeline).call].sum()


def test_one_agent_keeps_each_session_together_and_all_else() -> None:
    one, two = [1, 2, 3], [1, 2, 3, 4]
    trace = trace_of([one, [9], two, [9, 8]], sessions=["a", "b", "a", "b"])
    found, notes = replayed_trace(trace, 1)
    assert found.codes("session")[0].tolist() == [0, 0, 1, 1]
    assert found.array("base_chunks").tolist() == [0, 3, 0, 1]
    assert not notes
    numbers = [block.chunks.tolist() for block in Paths(found).blocks()]
    assert numbers == [[0, 1, 2, 0, 1, 2, 3, 4, 4, 5]]


def test_copies_are_sessions_of_their_own_and_share_the_common_head() -> None:
    trace = trace_of([[1, 2], [1, 3]], sessions=["a", "b"])
    found, notes = replayed_trace(trace, 3)
    names = found.codes("session")[1]
    assert len(names) == 3
    assert sum("(copy 2)" in name for name in names) == 1
    assert notes == ("1 of 3 sessions are copies: the trace has 2",)
    assert found.array("base_chunks").tolist() == [0, 1, 1]


def test_two_agents_take_turns() -> None:
    paths = [[1], [1, 2], [7], [7, 8]]
    # Session a: 0-1 s, 4-5 s; session b an hour later: 0-2 s, 3-4 s.
    trace = trace_of(
        paths,
        sessions=["a", "a", "b", "b"],
        starts=[0, 4, 3600, 3603],
        ends=[1, 5, 3602, 3604],
    )
    found, _ = replayed_trace(trace, 2)
    assert found.array("t_start_us").tolist() == [0, 0, 3_000_000, 4_000_000]
    codes, names = found.codes("session")
    assert [names[code] for code in codes] == ["a", "b", "b", "a"]


@pytest.mark.parametrize("agents", [0, -3])
def test_a_number_of_agents_below_one_is_refused(agents: int) -> None:
    with pytest.raises(InputError, match="--agents"):
        replayed_trace(trace_of([[1]]), agents)
