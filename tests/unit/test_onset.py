"""From how many agents on tiers thrash: numbers that can be checked by hand."""

from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.replay.onset import Loads, thrash_onset
from agentkv_trace.replay.setting import ideal
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.report import csv as csv_report
from agentkv_trace.report import markdown, terminal
from agentkv_trace.report.build import build_report
from agentkv_trace.report.model import GpuFinding, Report, ReportOptions
from agentkv_trace.report.workload import TraceWorkload
from replays import CHUNK, pool, trace_of

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace

SESSIONS, CALLS, LONG = 6, 4, 4
COMPULSORY = SESSIONS * LONG * CHUNK


def round_robin(sessions: int = SESSIONS, calls: int = CALLS) -> Trace:
    """Return sessions that send the same four chunks of their own every ten seconds."""
    paths = [
        [100 * session + chunk for chunk in range(LONG)]
        for session in range(sessions)
        for _ in range(calls)
    ]
    names = [f"s{session:02}" for session in range(sessions) for _ in range(calls)]
    starts = [1000 * s + 10 * n for s in range(sessions) for n in range(calls)]
    return trace_of(paths, sessions=names, starts=starts)


def test_agents_whose_contexts_do_not_fit_take_them_from_each_other() -> None:
    loads = Loads(round_robin(), max_agents=6)
    # Two contexts of four chunks fit; of three that take turns each returns to none of its own.
    found = thrash_onset(loads, pool(2 * LONG))
    assert (found.agents, found.max_agents, found.calls) == (3, 6, SESSIONS * CALLS)
    assert found.compulsory_tokens == COMPULSORY
    assert found.before_tokens == COMPULSORY
    assert found.computed_tokens == CALLS * COMPULSORY
    by_agents = {point.agents: point for point in found.points}
    assert by_agents[2].gpu_hit_ratio == by_agents[2].hit_ratio == (CALLS - 1) / CALLS
    assert by_agents[3].hit_ratio == 0
    assert "from 3 agents on: prefill is 4.0 times" in found.in_words()


def test_what_fits_never_thrashes() -> None:
    found = thrash_onset(Loads(round_robin(), max_agents=6), pool(6 * LONG))
    assert found.agents is None
    assert found.computed_tokens == COMPULSORY
    assert [point.agents for point in found.points] == [6]
    assert "no thrashing up to 6 agents: prefill stays at 1.0 times" in found.in_words()


def test_further_numbers_of_agents_are_points_of_the_curve() -> None:
    found = thrash_onset(Loads(round_robin(), max_agents=6), pool(6 * LONG), also=(1, 4, 16))
    assert [point.agents for point in found.points] == [1, 4, 6]


def test_the_limit_is_more_than_the_factor() -> None:
    loads = Loads(round_robin(), max_agents=6)
    assert thrash_onset(loads, pool(2 * LONG), factor=CALLS).agents is None
    assert thrash_onset(loads, pool(2 * LONG), factor=CALLS - 0.5).agents == 3


def test_a_host_tier_moves_the_onset() -> None:
    loads = Loads(round_robin(), max_agents=6)
    tiers = replace(ideal(2 * LONG * CHUNK, 4 * LONG * CHUNK, CHUNK), host_chunk_tokens=CHUNK)
    alone, with_it = thrash_onset(loads, pool(2 * LONG)), thrash_onset(loads, tiers, also=(4,))
    assert alone.agents == 3
    # All hit while four contexts fit; calls at equal times may be served in any order.
    assert with_it.agents in (5, 6)
    four = next(point for point in with_it.points if point.agents == 4)
    assert four.hit_ratio == (CALLS - 1) / CALLS
    assert four.gpu_hit_ratio < four.hit_ratio


def test_a_load_of_some_agents_is_what_a_load_made_for_them_is() -> None:
    trace = round_robin()
    loads = Loads(trace, max_agents=6)
    for agents in (1, 3, 6):
        made = Load(trace, Timeline(agents=agents, sessions=6)).run(pool(2 * LONG))
        found = loads[agents].run(pool(2 * LONG))
        assert found.done.ended.tolist() == made.done.ended.tolist()
        assert found.agents == made.agents == agents


def test_calls_larger_than_the_pool_count_nowhere() -> None:
    paths = [[1, 2], [1, 2], [10, 11, 12, 13, 14, 15], [20, 21], [20, 21]]
    trace = trace_of(paths, sessions=["a", "a", "big", "b", "b"])
    found = thrash_onset(Loads(trace, max_agents=2), pool(4))
    assert (found.calls, found.rejected) == (5, 1)
    assert found.compulsory_tokens == found.computed_tokens == 4 * CHUNK
    assert found.agents is None


def test_a_bounded_load_takes_whole_sessions() -> None:
    trace = round_robin(sessions=10)
    assert len(Loads(trace, max_agents=2)[2]) == 40
    assert len(Loads(trace, max_agents=2, max_calls=14)[2]) == 3 * CALLS
    # 16 agents would run 64 calls, more than three times 20.
    most = Loads(trace, max_agents=16, max_calls=20, least_agents=2)
    assert most.max_agents == 15
    assert len(most[1]) == 15 * CALLS
    assert "5 of 15 sessions are copies" in most.notes[0]
    assert Loads(trace, max_agents=16, max_calls=2, least_agents=5).max_agents == 5


def test_bad_numbers() -> None:
    with pytest.raises(InputError, match="--max-agents 0: must be at least 1"):
        Loads(round_robin(), max_agents=0)
    with pytest.raises(InputError, match="no calls"):
        Loads(trace_of([]))


# The onset in the report


def reported(trace: Trace, **options: object) -> Report:
    return build_report(
        TraceWorkload(trace, options.get("agents")),  # type: ignore[arg-type]
        find_model("qwen3-8b"),
        [find_gpu("h20")],
        ReportOptions(**options),  # type: ignore[arg-type]
    )


def finding(trace: Trace, **options: object) -> tuple[GpuFinding, str, str]:
    report = reported(trace, **options)
    return report.gpus[0], terminal.render(report, width=300), markdown.render(report)


def test_the_report_says_the_onset_alone_and_with_the_judged_tier() -> None:
    # Tiers of 8 and 16 chunks; bytes of a token as given.
    host = 4 * LONG * CHUNK * 1024
    found, text, marked = finding(
        round_robin(),
        gpu_kv_tokens=2 * LONG * CHUNK,
        kv_bytes_per_token=1024,
        host_bytes=(host,),
    )
    alone, with_it = found.onsets
    assert (alone.host_bytes, alone.agents) == (0, 3)
    assert with_it.host_bytes == host
    assert with_it.agents is not None
    assert with_it.agents > 3
    assert (alone.calls, alone.rejected_calls, alone.max_agents) == (64 * CALLS, 0, 64)
    said = f"H20: alone from 3 agents on; with 256 KiB host memory from {with_it.agents} agents on"
    assert f"Prefill doubles: {said}" in text
    assert "## Prefill doubles" in marked
    assert "Onset: 256 calls in 64 sessions, replayed as 1 to 64 agents" in text
    assert "Onset: 58 of 64 sessions are copies: the trace has 6." in text


def test_csv_has_the_onsets_beside_their_sizes() -> None:
    tiers = {"gpu_kv_tokens": 2 * LONG * CHUNK, "kv_bytes_per_token": 1024}
    report = reported(round_robin(), host_bytes=(4 * LONG * CHUNK * 1024,), **tiers)
    alone, judged = csv.DictReader(StringIO(csv_report.render(report)))
    assert (alone["host_total_bytes"], alone["onset_agents"]) == ("0", "3")
    assert judged["onset_agents"] == str(report.gpus[0].onsets[1].agents)
    assert alone["onset_max_agents"] == judged["onset_max_agents"] == "64"
    fits = reported(round_robin(), gpu_kv_tokens=100 * LONG * CHUNK, host_bytes=(2**30,))
    rows = list(csv.DictReader(StringIO(csv_report.render(fits))))
    assert [row["onset_agents"] for row in rows] == ["", ""]


def test_sessions_replayed_as_agents_thrash_from_the_onset_on() -> None:
    tiers = {"gpu_kv_tokens": 2 * LONG * CHUNK, "kv_bytes_per_token": 1024}
    two, _, _ = finding(round_robin(), agents=2, **tiers)
    assert two.gpu_hit_ratio == (CALLS - 1) / CALLS
    three, text, _ = finding(round_robin(), agents=3, **tiers)
    assert three.gpu_hit_ratio == 0
    assert three.thrash is not None
    assert three.thrash.predicted
    assert "it begins at 3 agents\n" in text
    assert "at most 2 agents at once (replayed): 75.0% less prefill" in text
    assert "Order: as 3 agents would make the calls" in text


def test_more_agents_than_are_tried_by_default() -> None:
    found, text, _ = finding(round_robin(), agents=70, gpu_kv_tokens=100 * LONG * CHUNK)
    assert found.onsets[0].max_agents == 70
    assert "alone not up to 70 agents" in text


def test_a_pool_without_room_for_a_chunk_has_no_onset() -> None:
    found, text, _ = finding(round_robin(), gpu_kv_tokens=CHUNK - 1)
    assert found.onsets == ()
    assert "Prefill doubles" not in text


def test_without_times_the_report_says_what_was_drawn() -> None:
    trace = trace_of([[1], [1, 2], [1, 2, 3]], time_source="order_only")
    _, text, _ = finding(trace)
    assert "Onset: 2 calls have no times in the log: tool times drawn" in text


def test_a_report_may_leave_the_onset_out() -> None:
    workload = TraceWorkload(round_robin())
    made = build_report(workload, find_model("qwen3-8b"), [find_gpu("h20")], onset=False)
    assert made.gpus[0].onsets == ()
    assert not any(said.startswith("Onset") for said in made.assumptions)
