"""What a report shows beside its advice, on traces small enough to count by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report import json as json_report
from agentkv_trace.report import markdown
from agentkv_trace.report.build import build_report
from agentkv_trace.report.detail_model import BUCKETS, POINTS, ROWS
from agentkv_trace.report.model import ReportOptions
from agentkv_trace.report.workload import TraceWorkload
from json_schema import check, load
from replays import CHUNK, trace_of, trace_of_columns
from workload_agents import make_agents


def detailed(trace, *gpus: str, **options):
    return build_report(
        TraceWorkload(trace),
        find_model("qwen3-8b"),
        [find_gpu(name) for name in gpus or ("h100-sxm",)],
        ReportOptions(**options),
        detailed=True,
    )


def two_sessions():
    """Return a session of 2, 4 and (folded) 3 chunks and one of 2 with the same head."""
    return trace_of(
        [[1, 2], [1, 5], [1, 2, 3, 4], [1, 9, 8]],
        sessions=["a", "b", "a", "a"],
        starts=[0, 10, 20, 30],
        ends=[5, 12, 25, 40],
        outputs=7,
        kind=["turn", "turn", "turn", "fold"],
    )


def test_sessions_and_their_sums() -> None:
    detail = detailed(two_sessions()).detail
    a, b = detail.sessions.rows
    assert (a.name, a.calls, a.prompt_tokens, a.output_tokens, a.folds) == ("a", 3, 144, 21, 1)
    assert (b.name, b.calls, b.prompt_tokens, b.folds) == ("b", 1, 32, 0)
    # Of 9 chunks session a had 2 and 1 before, b its head.
    assert a.hit_ratio == pytest.approx(3 / 9)
    assert b.hit_ratio == pytest.approx(1 / 2)
    assert (detail.sessions.total, detail.sessions.others) == (2, None)


def test_context_over_time() -> None:
    line = detailed(two_sessions()).detail.timeline
    # Four calls make one bucket: a holds 4 chunks at most, b 2 while a holds 2.
    assert line.by == "time"
    assert line.end_s == 40
    assert line.live_tokens == (4 * CHUNK,)
    assert line.agents == (2,)
    assert line.prompt_tokens == (11 * CHUNK,)


def test_distances_and_the_curve_add_up() -> None:
    detail = detailed(two_sessions()).detail
    assert detail.cold_share == pytest.approx(7 / 11)
    assert sum(each.share for each in detail.distances) + detail.cold_share == pytest.approx(1)
    assert detail.curve[-1].miss_ratio == pytest.approx(detail.cold_share)


def test_long_pauses_are_cut_and_said() -> None:
    year = 365 * 86_400
    trace = trace_of([[1]] * 3, sessions=["a", "b", "c"], starts=[0, year, 2 * year])
    line = detailed(trace).detail.timeline
    assert line.end_s == 1200
    assert line.longest_pause_s == 600


def test_a_log_without_times_counts_calls() -> None:
    trace = trace_of([[1]] * 3, time_source="order_only")
    line = detailed(trace).detail.timeline
    assert (line.by, line.end_s) == ("call", 3)


@pytest.mark.parametrize("calls", [1, 12])
def test_calls_at_one_instant_are_counted_too(calls: int) -> None:
    trace = trace_of([[1, 2, 3]] * calls, starts=[7] * calls)
    line = detailed(trace).detail.timeline
    assert (line.by, line.end_s) == ("call", calls)
    one = trace_of([[1, 2, 3]], starts=[7], ends=[9])
    assert detailed(one).detail.timeline.by == "time"


def test_a_session_that_overlaps_its_parent_is_live_beside_it() -> None:
    # The sub-agent's 5 chunks come and go while the parent's first call of 3 runs.
    trace = trace_of(
        [[1, 2, 3], [7, 8, 9, 10, 11], [1, 2, 3, 4]],
        sessions=["parent", "child", "parent"],
        parents=[None, "parent", None],
        starts=[0, 10, 100],
        ends=[50, 20, 110],
    )
    line = detailed(trace).detail.timeline
    assert (line.agents, line.live_tokens) == ((2,), (8 * CHUNK,))


def test_written_tokens_over_time_are_those_of_the_judged_tier() -> None:
    trace = make_agents(8, mean_tokens=2_000, calls_per_task=10, tasks=2, head_tokens=320)
    result = detailed(trace, "rtx3090", gpu_kv_tokens=8_000, host_bytes=(2 << 30,))
    alone, judged = result.detail.timeline.gpus
    assert set(alone.written_tokens) == {0}
    assert len(judged.written_tokens) > 1
    assert sum(judged.written_tokens) == result.gpus[0].judged.written_tokens > 0


def test_kinds_models_and_sources() -> None:
    trace = trace_of(
        [[1, 2], [1, 2, 3], [1, 2, 3, 4]],
        sessions=["a", "b", "a"],
        kind=["turn", "fork", "fold"],
        model=["m", None, "m"],
        source="codex",
        agent="x",
    )
    detail = detailed(trace).detail
    # A session is of the kind of its first call.
    assert [(row.name, row.kind) for row in detail.sessions.rows] == [("a", "turn"), ("b", "fork")]
    models = [(row.name, row.calls, row.kind, row.agent) for row in detail.models.rows]
    assert models == [("m", 2, None, None), ("none", 1, None, None)]
    (source,) = detail.sources.rows
    assert (source.name, source.calls, source.prompt_tokens) == ("codex", 3, 9 * CHUNK)
    assert source.hit_ratio == pytest.approx(5 / 9)


def test_the_rest_of_the_sessions_is_summed() -> None:
    sizes = [ROWS + 5 - n for n in range(ROWS + 3)]
    trace = trace_of(
        [[1000 * n + at for at in range(size)] for n, size in enumerate(sizes)],
        sessions=[f"s{n:02}" for n in range(len(sizes))],
    )
    sessions = detailed(trace).detail.sessions
    assert [row.name for row in sessions.rows] == [f"s{n:02}" for n in range(ROWS)]
    assert (sessions.total, sessions.others.calls) == (ROWS + 3, 3)
    assert sessions.others.prompt_tokens == (5 + 4 + 3) * CHUNK


def test_names_of_sessions_are_no_markup_in_markdown() -> None:
    name = "<b>`|[a](b)\n\x1b" + "x" * 100
    text = markdown.render(detailed(trace_of([[1, 2]] * 8, sessions=[name] * 8)))
    line = next(each for each in text.splitlines() if "[a](b)" in each)
    assert line.startswith("| `&lt;b&gt;\ufffd\\|[a](b)\ufffd\ufffdxx")
    assert line.count("`") == 2
    assert "x...` | 8 | 256 | 87.5% | 87.5% | 0 |" in line
    assert "x" * 60 not in line


def test_thrashing_needs_both_tiers_too_small_and_prefill_twice_what_is_needed() -> None:
    # Two sessions of 20 chunks and more take turns: a pool of 32 chunks never holds both.
    paths = [[1000 * (turn % 2) + i for i in range(20 + turn // 2)] for turn in range(20)]
    trace = trace_of(paths, sessions=[f"s{turn % 2}" for turn in range(20)])
    tight = detailed(trace, gpu_kv_tokens=32 * CHUNK).detail.timeline.gpus
    roomy = detailed(trace, gpu_kv_tokens=100 * CHUNK).detail.timeline.gpus[0]
    # The first bucket has the first calls, which nobody could have computed before.
    assert tight[0].thrashes == (False, True, True, True)
    # The tier it is told to buy holds both.
    assert tight[1].host_bytes > 0
    assert tight[1].thrashes == (False,) * 4
    assert roomy.thrashes == (False,) * 4


@pytest.mark.parametrize("calls", [1, 3, 400])
def test_what_is_shown_is_bounded_and_fits_the_schema(calls: int) -> None:
    trace = make_agents(60, mean_tokens=2_000, calls_per_task=6, tasks=2, head_tokens=320)
    if calls < 400:
        trace = trace_of([[1, 2, 3]] * calls)
    result = detailed(trace, "rtx3090", "h100-sxm")
    detail = result.detail
    assert len(detail.curve) <= POINTS
    assert len(detail.timeline.live_tokens) <= BUCKETS
    assert len(detail.sessions.rows) <= ROWS
    shown = sum(row.prompt_tokens for row in detail.sessions.rows)
    rest = detail.sessions.others.prompt_tokens if detail.sessions.others else 0
    assert shown + rest == result.workload.prompt_tokens
    schema = load("agentkv_trace.report", "report.schema.json")
    check(json.loads(json_report.render(result)), schema, schema)


def test_an_empty_trace_has_an_empty_detail() -> None:
    none = np.zeros(0, np.int32)
    names = ("base", "base_chunks", "prompt_chunks", "path_chunks")
    detail = detailed(trace_of_columns(dict.fromkeys(names, none), [])).detail
    assert [point.capacity_tokens for point in detail.curve] == [0]
    assert detail.sessions.rows == ()
    assert detail.timeline.live_tokens == (0,)
