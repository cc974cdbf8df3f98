"""vLLM with its CPU tier at concurrency 1, call by call against the engine's own code."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.tiers import lru, vllm_offload
from golden.lists import first_calls, points_off, read, report, results


def runs_at(result, wanted):
    """Yield GPU size, calls, whether outputs ran, and the runs of all host sizes."""
    groups: dict = {}
    for run in result["runs"]:
        if run["concurrency"] == 1 and ("per_request_prefix_hits" in run) == wanted:
            outputs = run["outputs"] != "one token per request"
            groups.setdefault((run["gpu_usable_blocks"], run["requests"], outputs), []).append(run)
    return groups.items()


def replay(calls, result, key, runs):
    gpu, count, outputs = key
    part = first_calls(calls, count)
    model = vllm_offload.offload_hits(
        part.stream,
        gpu,
        [run["cpu_blocks"] for run in runs],
        part.output_tokens if outputs else None,
        result["max_num_batched_tokens"],
    )
    return part, model


@pytest.mark.parametrize("file", results("vllm_offload"))
def test_both_tiers_call_by_call(file):
    calls, result = read(file)
    chunk = result["block_tokens"]
    compared = 0
    for key, runs in runs_at(result, wanted=True):
        part, model = replay(calls, result, key, runs)
        for row, run in enumerate(runs):
            np.testing.assert_array_equal(model.gpu * chunk, run["per_request_prefix_hits"])
            host = np.array(run["per_request_external_hits"])
            np.testing.assert_array_equal(model.host[row] * chunk, host)
            compared += 1
            total = (np.array(run["per_request_prefix_hits"]) + host) // chunk
            larger = max(run["cpu_blocks"], key[0])
            off = points_off(part, lru.stack_hits(part.stream, [larger])[0], total)
            report(
                f"{result['list']}, GPU {key[0]}, host {run['cpu_blocks']} chunks",
                [f"  from host {host.sum()} tokens; plain stack, points off in all: {off:+.2f}"],
            )
    assert compared


@pytest.mark.parametrize("file", results("vllm_offload"))
def test_sums_with_outputs(file):
    calls, result = read(file)
    chunk = result["block_tokens"]
    for key, runs in runs_at(result, wanted=False):
        _, model = replay(calls, result, key, runs)
        for row, run in enumerate(runs):
            assert model.gpu.sum() * chunk == run["prefix_hits"]
            assert model.host[row].sum() * chunk == run["external_hits"]


@pytest.mark.parametrize("file", results("vllm_offload"))
def test_hits_that_fall_in_a_larger_tier_fall_here_too(file):
    calls, result = read(file)
    chunk = result["block_tokens"]
    for key, runs in runs_at(result, wanted=True):
        order = sorted(runs, key=lambda run: run["cpu_blocks"])
        _, model = replay(calls, result, key, order)
        real = np.array([run["external_hits"] for run in order])
        falls = np.diff(real) < 0
        np.testing.assert_array_equal(np.diff(model.host.sum(axis=1) * chunk) < 0, falls)
        for i in np.flatnonzero(falls):
            report(
                f"{result['list']}, GPU {key[0]}: a larger tier hits less",
                [f"  {order[k]['cpu_blocks']} chunks: {real[k]} tokens" for k in (i, i + 1)],
            )
