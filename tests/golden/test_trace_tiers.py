"""A trace of the fixed lists behind vLLM's tiers: the engine's own hits, call by call.

This is the way the report takes: trace, backend, pool and host size in tokens.
"""

from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report.build import build_report
from agentkv_trace.report.model import ReportOptions
from agentkv_trace.report.workload import TraceWorkload
from agentkv_trace.tiers.backends import BACKENDS
from agentkv_trace.tiers.trace_tiers import TraceTiers
from agentkv_trace.trace.ids import trace_from_ids
from golden.lists import first_calls, read, report, results
from golden.test_vllm_offload import runs_at

FILES = results("vllm_offload")


def trace_of(part):
    stream = part.stream
    return trace_from_ids(
        session=["one"] * stream.calls,
        t_start_us=np.arange(stream.calls) * 1000,
        prompt_tokens=stream.prompt_tokens,
        output_tokens=np.ones(stream.calls, np.int64),
        ids=stream.ids.astype(np.uint64),
        offsets=stream.offsets,
        chunk_tokens=stream.chunk_tokens,
    )


@pytest.mark.parametrize("file", FILES)
def test_both_tiers_call_by_call(file):
    calls, result = read(file)
    chunk = result["block_tokens"]
    compared = 0
    for (gpu, count, outputs), runs in runs_at(result, wanted=True):
        assert not outputs
        tiers = TraceTiers(trace_of(first_calls(calls, count)))
        uses = tiers.use(BACKENDS["vllm"], (gpu + 1) * chunk, [run["cpu_blocks"] for run in runs])
        for use, run in zip(uses, runs, strict=True):
            np.testing.assert_array_equal(use.gpu, run["per_request_prefix_hits"])
            np.testing.assert_array_equal(use.restored, run["per_request_external_hits"])
            compared += 1
    assert compared


@pytest.mark.parametrize("file", [f for f in FILES if f.id == "synthetic_agents"])
def test_a_larger_tier_with_fewer_hits_is_reported_as_such(file):
    calls, result = read(file)
    chunk = result["block_tokens"]
    model = find_model("qwen3-8b")
    block = chunk * model.kv_bytes_per_token(2)
    options = ReportOptions(
        backend="vllm", gpu_kv_tokens=2001 * chunk, host_bytes=(500 * block, 1500 * block)
    )
    workload = TraceWorkload(trace_of(calls))
    (found,) = build_report(workload, model, [find_gpu("h20")], options).gpus
    asked = [size for size in found.host_sizes if size.total_bytes in options.host_bytes]
    report(
        "GPU 2000 chunks",
        [
            f"  {s.holds_tokens // chunk} chunks: {s.restored_tokens} tokens from host"
            for s in asked
        ],
    )
    assert [size.restored_tokens for size in asked] == [13_552, 0]
    assert found.host.restored_tokens > 13_552
