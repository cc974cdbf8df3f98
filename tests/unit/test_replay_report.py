"""The renderings of replays: figures that can be checked by hand, in every format and width."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

import json_schema
from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.report import replay, replay_data, replay_rows
from agentkv_trace.report.replay_build import ReplayOptions, build_replay
from agentkv_trace.report.replay_rows import duration
from agentkv_trace.tiers.capacity import Deployment
from replays import CHUNK, trace_of

if TYPE_CHECKING:
    from agentkv_trace.report.replay_model import ReplayReport
    from agentkv_trace.trace.store import Trace

SCHEMA = json_schema.load("agentkv_trace.report", "replay.schema.json")
WIDTHS = (40, 60, 80, 160)


def talks() -> Trace:
    """Return two sessions of two calls, of 2 and 4 chunks and 10 output tokens, a minute apart."""
    one, two = [1, 2, 3, 4], [7, 8, 9, 10]
    return trace_of(
        [one[:2], one, two[:2], two],
        sessions=["a", "a", "b", "b"],
        starts=[0, 60, 1000, 1060],
        outputs=10,
    )


def replayed(trace: Trace | None = None, *gpus: str, **changed: Any) -> ReplayReport:
    deployment = Deployment(gpu_kv_tokens=changed.pop("pool", 100 * CHUNK), dp=changed.pop("dp", 1))
    options = ReplayOptions(deployment=deployment, timeline=Timeline())
    rules = {"routing": "sticky", "write_filter": changed.pop("write_filter", "off"), "kappa": 8}
    return build_replay(
        talks() if trace is None else trace,
        find_model("qwen3-8b"),
        [find_gpu(name) for name in gpus or ("h20",)],
        replace(options, **changed),
        rules,
    )


ONE = replayed()
SWEEP = replayed(
    None, "h20", "rtx3090", agents=(1, 2, 3), host_bytes=(0, 2**30), onset=True, cap=True
)
REPORTS = {
    "one": ONE,
    "sweep": SWEEP,
    "series": replayed(agents=(1, 2), host_bytes=(2**30,), series=True),
    "rejected": replayed(pool=3 * CHUNK, backend="ideal"),
    "recorded": replayed(timeline=Timeline(kind="recorded")),
    "open": replayed(timeline=Timeline(kind="open-loop", rate=6.0, sessions=3), dp=2),
    "one call": replayed(trace_of([[1, 2, 3]]), series=True, onset=True, cap=True),
}


def test_figures_of_one_replay() -> None:
    (run,) = ONE.runs
    assert (run["calls"], run["rejected"], run["sessions"]) == (4, 0, 2)
    assert run["prompt_tokens"] == 12 * CHUNK
    # The second call of a session resends the first one's two chunks.
    assert run["gpu_tokens"] == 4 * CHUNK
    assert run["computed_tokens"] == 8 * CHUNK
    assert run["gpu_hit_ratio"] == pytest.approx(1 / 3)
    assert run["calls_per_s"] == pytest.approx(4 / run["makespan_s"])
    # One agent waits a minute inside each of two sessions.
    assert 120 < run["makespan_s"] < 125
    assert run["ttft_s_p50"] < run["latency_s_p50"] < 1


def test_a_few_replays_stand_side_by_side_with_all_figures() -> None:
    first, *columns = replay_rows.by_figure(ONE)
    assert first.title == "GPU"
    assert [column.title for column in columns] == ["H20"]
    shown = dict(zip(first.cells, columns[0].cells, strict=True))
    assert shown["agents"] == "1"
    assert (shown["computed"], shown["GPU hits"]) == ("128", "33.3%")
    assert (shown["preempted"], shown["rejected"], shown["calls"]) == ("0", "0", "4")
    for name in ("makespan", "calls/min", "prompt tok/s", "output tok/s", "pool filled", "queue"):
        assert name in shown
    for what in ("TTFT", "latency"):
        assert {f"{what} {part}" for part in ("mean", "p50", "p95", "p99")} <= set(shown)
    assert "host hits" not in shown


def test_more_replays_get_a_line_each() -> None:
    columns = {column.title: column for column in replay_rows.by_run(SWEEP)}
    assert len(SWEEP.runs) == 12
    assert columns["GPU"].cells == ("H20",) * 6 + ("RTX 3090",) * 6
    assert columns["agents"].cells[:3] == ("1", "2", "3")
    assert columns["host"].cells[:6] == ("none",) * 3 + ("1 GiB",) * 3
    assert columns["host evicted unused"].cells[0] == "-"
    # All numbers of agents serve the same sessions.
    assert {run["sessions"] for run in SWEEP.runs} == {3}
    assert "1 of 3 sessions are copies: the trace has 2" in SWEEP.notes


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_fits_its_width(name: str, width: int) -> None:
    text = replay.to_table(REPORTS[name], width)
    assert max(map(len, text.splitlines())) <= width
    assert text.endswith("\n")
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_narrow_table_says_that_there_is_more() -> None:
    narrow, wide = replay.to_table(SWEEP, 80), replay.to_table(SWEEP, 300)
    assert "More figures in a wider terminal, all with --format csv." in narrow
    assert "More figures" not in wide
    assert "p99" in wide
    assert "p99" not in narrow


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_what_its_schema_says_and_the_same_again(name: str) -> None:
    text = replay_data.to_json(REPORTS[name])
    json_schema.check(json.loads(text), SCHEMA, SCHEMA)
    assert text == replay_data.to_json(REPORTS[name])


def test_the_schema_refuses_what_is_missing_or_new() -> None:
    value = json.loads(replay_data.to_json(ONE))
    for broken in (
        {key: part for key, part in value.items() if key != "runs"},
        value | {"new": 1},
        value | {"runs": [value["runs"][0] | {"gpu_hit_ratio": 1.5}]},
    ):
        with pytest.raises(AssertionError):
            json_schema.check(broken, SCHEMA, SCHEMA)


def test_two_builds_give_the_same_bytes() -> None:
    again = replayed(
        None, "h20", "rtx3090", agents=(1, 2, 3), host_bytes=(0, 2**30), onset=True, cap=True
    )
    assert replay_data.to_json(again) == replay_data.to_json(SWEEP)


def test_csv_has_a_line_per_replay() -> None:
    lines = list(csv.DictReader(StringIO(replay_data.to_csv(SWEEP))))
    assert len(lines) == 12
    assert set(lines[0]) == set(SCHEMA["$defs"]["run"]["required"])
    assert [line["agents"] for line in lines[:3]] == ["1", "2", "3"]
    assert float(lines[0]["gpu_hit_ratio"]) == pytest.approx(
        SWEEP.runs[0]["gpu_hit_ratio"], abs=1e-8
    )


def test_samples_over_time_take_the_place_of_sums_in_flat_forms() -> None:
    report = REPORTS["series"]
    lines = replay_data.flat(report)
    assert [line["agents"] for line in lines] == sorted(line["agents"] for line in lines)
    assert len(lines) == sum(len(series["time_s"]) for series in report.series)
    for name in ("live_tokens", "resident_chunks", "gpu_hit_ratio", "queue"):
        assert name in lines[0]
    last = [line for line in lines if line["agents"] == 1][-1]
    assert last["prompt_tokens"] == report.runs[0]["prompt_tokens"]


def test_a_table_over_time_adds_up() -> None:
    columns = {column.title: column for column in replay_rows.over_time(REPORTS["series"], 0)}
    assert set(columns) == {
        "time", "running", "queue", "live context", "pool held", "pool filled", "host filled",
        "GPU hits", "host hits",
    }  # fmt: skip
    assert 1 <= len(columns["time"].cells) <= replay_rows.MOMENTS
    # Each row is what held until a call ended.
    assert columns["live context"].cells[-1] != "0"
    assert columns["running"].cells[-1] == "1"
    assert "Over time: H20, agents 1, host 1 GiB" in replay.to_table(REPORTS["series"], 80)
    assert "## Over time: H20, agents 2, host 1 GiB" in replay.to_markdown(REPORTS["series"])


def test_calls_larger_than_the_pool_are_counted_and_said() -> None:
    report = REPORTS["rejected"]
    assert (report.runs[0]["calls"], report.runs[0]["rejected"]) == (2, 2)
    (note,) = (note for note in report.notes if "larger" in note)
    assert note.startswith("H20: 2 of 4 calls (50.0%) are larger than its pool of 48 tokens")
    assert f"Mind: {note}" in replay.to_table(report, 400)


def test_timelines_and_settings_are_said() -> None:
    assert "Timeline: recorded, as in the log; seed 0\n" in replay.to_table(REPORTS["recorded"])
    open_loop = replay.to_table(REPORTS["open"])
    assert "Timeline: open-loop, 3 sessions, 6 begin a minute; seed 0\n" in open_loop
    assert "Model: Qwen3-8B, bf16 KV, DP 2, sticky routing\n" in open_loop
    assert "a replica" in open_loop
    longest = replayed(timeline=Timeline(order="longest", max_agents=2, seed=3), agents=(4,))
    text = replay.to_table(longest, 200)
    assert "Timeline: closed-loop, 4 sessions, longest first, at most 2 active; seed 3\n" in text
    filtered = replay.to_table(replayed(write_filter="fixed"), 200)
    assert "write filter fixed (kappa 8)" in filtered


def test_findings_are_said() -> None:
    text = replay.to_table(SWEEP, 200)
    assert "Onset: H20 alone: no thrashing up to 64 agents" in text
    assert "Cap: H20 with 1 GiB host memory: fastest with 3 active agents, " in text
    assert "a cap gains nothing" in text
    assert "## Found" in replay.to_markdown(SWEEP)
    assert len(SWEEP.onsets) == len(SWEEP.caps) == 4


def test_assumptions_are_said() -> None:
    said = " ".join(ONE.assumptions)
    assert "70% of the memory bandwidth" in said
    assert "step costs 5 ms" in said
    assert "kept as tool time, up to 600 s" in said
    untimed = replayed(trace_of([[1], [1, 2]], time_source="order_only"))
    assert any("tool times drawn, lognormal with median 4 s" in note for note in untimed.notes)


def test_a_gpu_that_is_too_small_is_left_out_or_refused() -> None:
    trace, model, options = talks(), find_model("llama-3.1-70b"), ReplayOptions(
        deployment=Deployment(), timeline=Timeline()
    )  # fmt: skip
    small, large = find_gpu("rtx3090"), find_gpu("b200-sxm")
    report = build_replay(trace, model, [small, large], options, {})
    assert list(report.gpus) == ["b200-sxm"]
    assert report.notes[0].startswith("RTX 3090 left out: ")
    for gpus in ([small], [small, find_gpu("l4")]):
        with pytest.raises(InputError):
            build_replay(trace, model, gpus, options, {})


def test_a_gpu_with_unified_memory_is_replayed_alone() -> None:
    report = replayed(None, "h20", "dgx-spark", host_bytes=(0, 2**30))
    places = [(run["gpu"], run["host_bytes"]) for run in report.runs]
    assert places == [("h20", 0), ("h20", 2**30), ("dgx-spark", 0)]
    assert "DGX Spark has unified memory: no host tier is replayed on it" in report.notes
    with pytest.raises(InputError, match="unified memory"):
        replayed(None, "dgx-spark", host_bytes=(2**30,))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kv_dtype": "int3"}, "--kv-dtype int3: use one of bf16, fp8, int4, int2"),
        ({"gpus_per_link": 0}, "--gpus-per-link 0"),
        ({"host_chunk_tokens": 0}, "--host-chunk-tokens 0"),
        ({"agents": (100_001,)}, "--agents 100001: must be at most 100000"),
        ({"timeline": Timeline(sessions=200_000)}, "--sessions 200000"),
        ({"timeline": Timeline(rate=3.0)}, "--rate is for --timeline open-loop"),
        ({"timeline": Timeline(kind="recorded", sessions=3)}, "--sessions: --timeline recorded"),
        ({"timeline": Timeline(kind="recorded", order="longest")}, "--order longest"),
        ({"timeline": Timeline(kind="open-loop")}, "needs --rate"),
        ({"timeline": Timeline(seed=-1)}, "--seed -1"),
    ],
)
def test_options_that_cannot_be_meant(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replayed(**changed)


def test_an_empty_trace() -> None:
    with pytest.raises(InputError, match="no calls to replay"):
        replayed(trace_of([]))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 ms"), (0.34, "340 ms"), (0.9996, "1.0 s"), (12.34, "12.3 s"), (99.96, "1.7 min"),
     (504, "8.4 min"), (11_520, "3.2 h")],
)  # fmt: skip
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
