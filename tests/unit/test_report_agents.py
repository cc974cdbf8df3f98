"""The advice on a workload of known size: 16 agents at 33k tokens a call, Qwen3-Coder-30B, TP 8.

Figures are printed (`pytest -s`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report import explain, terminal
from agentkv_trace.report.build import build_report
from agentkv_trace.report.model import Report, ReportOptions
from agentkv_trace.report.workload import TraceWorkload
from workload_agents import make_agents

GIB = 2**30
MODEL = "qwen3-coder-30b"
POOLS = (65_536, 131_072, 262_144, 524_288)
THREE = ("rtx3090", "h20", "h800-sxm")


@cache
def workload() -> TraceWorkload:
    return TraceWorkload(make_agents())


@cache
def report(*names: str, per_rank: int | None = None, **options: object) -> Report:
    sizes = (8 * per_rank * GIB,) if per_rank else ()
    gpus = [find_gpu(name) for name in names or THREE]
    chosen = ReportOptions(**{"tp": 8, "host_bytes": sizes, **options})  # type: ignore[arg-type]
    return build_report(workload(), find_model(MODEL), gpus, chosen)


def show(text: str) -> None:
    sys.stdout.write(f"\n  {text}")


def test_the_workload_is_what_it_says() -> None:
    work = report().workload
    assert work.mean_prompt_tokens == pytest.approx(33_228, rel=0.001)
    assert work.agents == 16
    assert work.reuse_rank_bytes / GIB == pytest.approx(11.4, abs=0.05)
    measured = work.recover_working_set_tokens * 24_576 / GIB
    show(
        f"working set per rank: scale {work.reuse_rank_bytes / GIB:.1f} GiB, measured for 95% of "
        f"hits {measured:.1f} GiB, {100 * work.best_hit_ratio:.1f}% processed before"
    )
    assert 8 < measured < work.reuse_rank_bytes / GIB


def test_a_pool_that_holds_the_working_set_is_neutral() -> None:
    for finding in report().gpus:
        assert finding.pool is not None
        show(f"{finding.name}: pool {finding.pool.tokens:,} tokens: {finding.verdict}")
    assert report("h20").gpus[0].pool.tokens > 3_000_000
    held = [f for f in report().gpus if f.pool.tokens >= report().workload.working_set_tokens]
    assert len(held) == 3
    assert {f.verdict for f in held} == {"neutral"}
    (given,) = report("b200-sxm", gpu_kv_tokens=524_288).gpus
    assert given.verdict == "neutral"
    assert "holds the whole working set" in given.summary


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("backend", "connector"), [("vllm", None), ("lmcache", "lmcache-0.3")])
def test_sweep_of_pools(pool: int, backend: str, connector: str | None) -> None:
    """5 GiB per rank do nothing, 20 GiB hold the working set."""
    same = {"gpu_kv_tokens": pool, "backend": backend, "connector": connector}
    small, large = report(per_rank=5, **same), report(per_rank=20, **same)
    for low, high in zip(small.gpus, large.gpus, strict=True):
        gain = low.judged.hit_ratio - low.gpu_hit_ratio
        show(
            f"{backend} {connector or ''} pool {pool:,}, {low.name}: 5 GiB/rank {low.verdict}, "
            f"hits {100 * gain:+.1f} points, "
            f"lost unused {100 * (low.judged.evicted_share or 0):.0f}%; "
            f"20 GiB/rank {high.verdict}, {high.economics.gain_s[0] / 60:.1f} to "
            f"{high.economics.gain_s[2] / 60:.1f} of {high.economics.prefill_s[1] / 60:.1f} min"
        )
        if pool >= report().workload.working_set_tokens:
            assert {low.verdict, high.verdict} <= {"neutral", "costs"}
            continue
        assert low.thrash.predicted
        assert low.judged.evicted_share > 0.9
        assert gain < 0.06
        assert not high.thrash.predicted
        assert high.judged.hit_ratio > 0.94
        if connector is None:
            assert high.verdict == "pays"
        elif high.gpu == "h800-sxm":
            assert high.verdict in ("costs", "depends")
            assert low.verdict == "costs"
        else:
            assert high.verdict == "pays"


def test_one_gpu_and_one_backend_in_every_verdict() -> None:
    """The same H800 pays, costs, depends or is neutral: never by FLOP per byte alone."""
    verdicts = {
        "vllm, 20 GiB": report("h800", per_rank=20, gpu_kv_tokens=131_072, backend="vllm"),
        "lmcache 0.3, 5 GiB": report(
            "h800", per_rank=5, gpu_kv_tokens=131_072, backend="lmcache", connector="lmcache-0.3"
        ),
        "lmcache 0.3, 20 GiB": report(
            "h800", per_rank=20, gpu_kv_tokens=131_072, backend="lmcache", connector="lmcache-0.3"
        ),
        "the whole pool": report("h800", backend="vllm"),
    }
    found = {name: result.gpus[0] for name, result in verdicts.items()}
    for name, finding in found.items():
        show(f"H800, {name}: {finding.summary}")
    assert [finding.verdict for finding in found.values()] == [
        "pays", "costs", "depends", "neutral",
    ]  # fmt: skip
    assert found["lmcache 0.3, 20 GiB"].depends_on is not None


def test_a_tier_not_larger_than_the_pool_is_useless_if_inclusive() -> None:
    for backend in ("ideal", "vllm", "sglang"):
        (found,) = report("h20", per_rank=4, gpu_kv_tokens=262_144, backend=backend).gpus
        assert found.verdict == "neutral"
        assert "no more than the GPU's KV pool" in found.reason
        assert "inclusive" in found.summary
    (lazy,) = report("h20", per_rank=4, gpu_kv_tokens=262_144, backend="vllm-lazy").gpus
    assert lazy.judged.hit_ratio > lazy.gpu_hit_ratio + 0.1


def test_the_recommended_size_is_enough_and_the_next_smaller_is_not() -> None:
    for backend in ("ideal", "vllm", "vllm-lazy", "lmcache", "lmcache-server", "sglang"):
        (found,) = report("h20", gpu_kv_tokens=131_072, backend=backend).gpus
        gain = found.best_hit_ratio - found.gpu_hit_ratio
        show(
            f"{backend}: buy {found.host.per_rank_bytes / GIB:.0f} GiB per rank, need "
            f"{found.need_bytes / 8 / GIB:.1f}, recovers {100 * found.host.recovered:.1f}%"
        )
        assert found.host.recovered >= 0.95
        assert found.need_bytes * 1.25 <= found.host.total_bytes * 1.001
        assert gain > 0.7
    # The watermark keeps a fifth free.
    needs = {
        backend: report("h20", gpu_kv_tokens=131_072, backend=backend).gpus[0].need_bytes
        for backend in ("ideal", "lmcache-server")
    }
    assert needs["lmcache-server"] > needs["ideal"] / 0.8


def test_fixes_come_with_their_gain_and_in_their_order() -> None:
    (found,) = report("h20", per_rank=5, gpu_kv_tokens=131_072).gpus
    thrash = found.thrash
    assert thrash.begins_at_agents == int(5 * GIB // 24_576 / 33_231) + 2
    assert thrash.gamma_host == pytest.approx(11.4 / 5, rel=0.01)
    assert thrash.gamma_gpu == pytest.approx(16 * 33_231 / 131_072, rel=0.01)
    gains = [fix.saved_share for fix in thrash.fixes]
    show("; ".join(f"{fix.action}: {100 * fix.saved_share:.0f}%" for fix in thrash.fixes))
    assert gains == sorted(gains, reverse=True)
    assert len(gains) == 3
    assert [fix.bound for fix in thrash.fixes] == [False, False, True]
    assert thrash.restored_per_written < 0.5


def test_more_gpu_memory_is_a_fix_where_the_pool_is_computed() -> None:
    (found,) = build_report(
        workload(), find_model("qwen3-32b"), [find_gpu("a100-80-sxm")], ReportOptions(tp=1)
    ).gpus
    assert "--gpu-memory-utilization 0.95" in {fix.action for fix in found.thrash.fixes}


def test_measured_values_change_the_verdict() -> None:
    same = {"per_rank": 20, "gpu_kv_tokens": 131_072, "backend": "lmcache"}
    (guess,) = report("h800", **same).gpus
    (fast,) = report("h800", **same, store_sync_ms=0.0).gpus
    (slow,) = report("h800", **same, store_sync_ms=250.0).gpus
    assert [guess.verdict, fast.verdict, slow.verdict] == ["depends", "pays", "costs"]


def test_replicas_share_what_one_would_hold() -> None:
    (one,) = report("h20", gpu_kv_tokens=131_072).gpus
    (two,) = report("h20", gpu_kv_tokens=65_536, dp=2).gpus
    assert one.gpu_hit_ratio == two.gpu_hit_ratio
    assert one.need_bytes == two.need_bytes
    assert two.host.per_rank_bytes == one.host.per_rank_bytes // 2
    assert two.summary.startswith("16 x H20: ")
    (staged,) = report("h20", gpu_kv_tokens=131_072, pp=2).gpus
    assert staged.need_bytes == one.need_bytes
    assert staged.host.per_rank_bytes == one.host.per_rank_bytes // 2


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_arithmetic_is_shown_step_by_step(width: int) -> None:
    found = report(per_rank=20, gpu_kv_tokens=131_072)
    plain = terminal.render(found, width=width)
    text = terminal.render(found, width=width, explained=True)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for said in ("1. KV pool", "2. Hits", "3. One prompt", "4. Time over the trace", "benefit = 1"):
        assert said in words
        assert said not in plain
    steps = dict(explain.arithmetic(found))
    assert all(steps.values())


def test_no_times_are_said() -> None:
    trace = make_agents(4, mean_tokens=3000, calls_per_task=6, head_tokens=640)
    column = trace.table.schema.get_field_index("time_source")
    words = pa.array(["order_only"] * len(trace)).dictionary_encode()
    table = trace.table.set_column(column, trace.table.schema.field(column), words)
    timeless = TraceWorkload(replace(trace, table=table))
    result = build_report(timeless, find_model("qwen3-8b"), [find_gpu("h20")])
    assert any("no times" in said for said in result.assumptions)
    assert not any("no times" in said for said in report().assumptions)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("llama-3.1-405b", {}, "does not fit"),
        (MODEL, {"tp": 3}, "--tp 3 does not divide"),
        ("qwen3.5-27b", {"backend": "vllm"}, "20|65536 for the layers that keep every token"),
        ("gpt-oss-120b", {}, "if windowed layers are kept whole too"),
        (MODEL, {"agents": 0}, "--agents 0"),
        (MODEL, {"gpus_per_link": 0}, "--gpus-per-link 0"),
        (MODEL, {"backend": "redis"}, "unknown backend"),
        (MODEL, {"connector": "redis"}, "unknown connector"),
        (MODEL, {"prefill_tokens_per_s": 1e9}, "the peak of these GPUs"),
        (MODEL, {"gpu_kv_tokens": 20_000, "backend": "vllm"}, "smaller than the longest call"),
    ],
)
def test_bad_input_is_an_error_and_no_number(model: str, options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_report(workload(), find_model(model), [find_gpu("h20")], ReportOptions(**options))


def test_an_empty_trace() -> None:
    from agentkv_trace.trace.ids import trace_from_ids

    empty = trace_from_ids(
        session=[], t_start_us=[], prompt_tokens=[], output_tokens=[], ids=[], offsets=[0],
        chunk_tokens=16,
    )  # fmt: skip
    for backend in ("ideal", "vllm", "sglang"):
        result = build_report(
            TraceWorkload(empty), find_model("qwen3-8b"), [find_gpu("h20")],
            ReportOptions(backend=backend),
        )  # fmt: skip
        assert result.gpus[0].verdict == "neutral"
        terminal.render(result, explained=True)
