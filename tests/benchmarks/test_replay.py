"""A million calls of coding agents through the simulator, beside one pass of the path engine.

CPU seconds of the fastest of some interleaved rounds, kernels warm; the load is laid out before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from time import perf_counter
from typing import Any

import pytest

from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.replay.setting import Setting, setting_for
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.sweep import Run, sweep
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.tiers.backends import BACKENDS
from agentkv_trace.tiers.capacity import Deployment
from benchmarks import workloads
from benchmarks.test_path_engine import fastest, references
from replays import trace_of_columns

CALLS = 1_000_000
AGENTS = 64
POOL = 2_000_000

MEMORY = """
import re, sys
from pathlib import Path
from benchmarks.test_replay import load, setting

peaks = []
for calls in (1000, int(sys.argv[1])):
    load(calls).run(setting("vllm", 400))
    status = Path("/proc/self/status").read_text()
    peaks.append(int(re.search("VmHWM: *(.*) kB", status)[1]) * 1024)
print(*peaks)
"""


@cache
def tree(calls: int) -> tuple[dict[str, Any], Any]:
    return workloads.agent_calls(calls, agents=AGENTS)


def load(calls: int, agents: int = AGENTS) -> Load:
    return Load(trace_of_columns(*tree(calls), output=200), Timeline(agents=agents))


def setting(backend: str, host_gib: int, **rules: Any) -> Setting:
    return setting_for(
        find_model("qwen3-coder-30b"),
        find_gpu("h20"),
        Deployment(gpu_kv_tokens=POOL),
        backend=backend,
        host_bytes=host_gib << 30,
        **rules,
    )


def peak_memory(calls: int) -> dict[str, float]:
    """Return what a load and its replay take in a process of their own, the trace included."""
    if sys.platform != "linux":
        return {}
    command = [sys.executable, "-c", MEMORY, str(calls)]
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    before, peak = map(int, run.stdout.split())
    return {"peak_bytes": peak, "peak_bytes_per_call": (peak - before) / calls}


# Far too small for the working set of some 12M tokens, and large enough for most of it.
@pytest.mark.parametrize("host_gib", [400, 1600])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_million_calls_at_one_setting(benchmark: Any, backend: str, host_gib: int) -> None:
    made, rules = load(CALLS), setting(backend, host_gib)
    load(1000).run(rules)
    result = made.run(rules)
    engine, replay = fastest(lambda: path_runs(**tree(CALLS)[0]), lambda: made.run(rules))
    benchmark.extra_info.update(
        references=references(tree(CALLS)[0]),
        hit_ratio=result.summary()["hit_ratio"],
        seconds=replay,
        calls_per_second=CALLS / replay,
        times_path_engine=replay / engine,
    )
    benchmark.pedantic(made.run, (rules,), rounds=1)


@pytest.mark.parametrize("calls", [100_000, 1_000_000])
def test_memory_of_calls(benchmark: Any, calls: int) -> None:
    made, rules = load(calls), setting("vllm", 400)
    benchmark.extra_info.update(**peak_memory(calls))
    benchmark.pedantic(made.run, (rules,), rounds=1)


def test_a_sweep_on_all_cores(benchmark: Any) -> None:
    trace = trace_of_columns(*tree(CALLS // 4), output=200)
    runs = [
        Run({"host": gib}, Timeline(agents=AGENTS), setting("vllm", gib))
        for gib in range(200, 1000, 100)
    ]
    sweep(trace, runs[:1])

    def seconds(workers: int) -> float:
        start = perf_counter()
        sweep(trace, runs, workers=workers)
        return perf_counter() - start

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    one = seconds(1)
    benchmark.extra_info.update(cores=cores, one_worker_over_all=one / seconds(cores or 1))
    benchmark.pedantic(sweep, (trace, runs), rounds=1)
