"""The path engine on ten million calls, beside a plain LRU replay of one capacity."""

from __future__ import annotations

import subprocess
import sys
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agentkv_trace.engine.cumulative import Cumulative
from agentkv_trace.engine.path_stack import path_runs
from benchmarks import workloads

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 10_000_000
REPLAYED = 4_000
"""Calls of the same kind that the replay gets: it cannot hold ten million."""
ROUNDS = 3

MEMORY = """
import re, sys
from pathlib import Path
from benchmarks import workloads
from benchmarks.test_path_engine import curve

peaks = []
for calls in (1000, int(sys.argv[1])):
    curve(workloads.agent_calls(calls, agents=int(sys.argv[2]))[0])
    status = Path("/proc/self/status").read_text()
    peaks.append(int(re.search("VmHWM: *(.*) kB", status)[1]) * 1024)
print(*peaks)
"""


def curve(tree: dict[str, Any]) -> Cumulative:
    runs = path_runs(**tree)
    return Cumulative.of_runs(runs.first_distance, runs.length)


def replay(tree: dict[str, Any], capacity: int) -> Callable[[], int]:
    ids, ends, unique = workloads.flatten(tree)
    return lambda: workloads.lru_hits(ids, ends, tree["prompt_chunks"], unique, capacity)


def fastest(*runs: Callable[[], Any]) -> list[float]:
    """Return the CPU seconds of the fastest of some interleaved rounds; the kernels are warm."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, mine in zip(runs, times, strict=True):
            start = process_time()
            run()
            mine.append(process_time() - start)
    return [min(mine) for mine in times]


def references(tree: dict[str, Any]) -> int:
    return int(tree["prompt_chunks"].sum(dtype=np.int64))


def peak_memory(agents: int) -> dict[str, float]:
    """Return what the engine takes in a process of its own, columns of the trace included."""
    if sys.platform != "linux":
        return {}
    command = [sys.executable, "-c", MEMORY, str(CALLS), str(agents)]
    path = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(command, capture_output=True, check=True, text=True, env=path)
    before, peak = map(int, run.stdout.split())
    return {"peak_bytes": peak, "peak_bytes_per_call": (peak - before) / CALLS}


# Agents that take turns: with more of them each pauses longer and distances grow.
@pytest.mark.parametrize("agents", [64, 2_000, 20_000])
def test_all_capacities_of_ten_million_calls(benchmark: Any, agents: int) -> None:
    tree, _ = workloads.agent_calls(CALLS, agents=agents)
    small, _ = workloads.agent_calls(REPLAYED, agents=64)
    capacity = 200_000
    one = replay(small, capacity)
    assert one() == curve(small).at(np.array(capacity))
    hits = curve(tree)
    engine, lru = fastest(lambda: curve(tree), one)
    benchmark.extra_info.update(
        references=references(tree),
        corners=hits.x.size,
        largest_distance=int(hits.x[-1]),
        references_per_second=references(tree) / engine,
        lru_references_per_second=references(small) / lru,
        times_one_lru_replay=references(tree) / engine / (references(small) / lru),
        **peak_memory(agents),
    )
    benchmark.pedantic(curve, (tree,), rounds=1)


# The engine's cost does not depend on the length of calls; a replay's does.
@pytest.mark.parametrize("chunks", [20, 200, 2_000])
def test_calls_of_one_length(benchmark: Any, chunks: int) -> None:
    tree, _ = workloads.agent_calls(
        40_000_000 // chunks,
        head=chunks // 4,
        first=chunks // 20,
        grow=max(chunks // 50, 8),
        fold_at=chunks * 3 // 2,
        fold_to=chunks // 2,
    )
    one = replay(tree, 30 * chunks)
    assert one() == curve(tree).at(np.array(30 * chunks))
    engine, lru = fastest(lambda: curve(tree), one)
    benchmark.extra_info.update(
        calls=tree["base"].size,
        chunks_a_call=references(tree) / tree["base"].size,
        references_per_second=references(tree) / engine,
        lru_references_per_second=references(tree) / lru,
        times_one_lru_replay=lru / engine,
    )
    benchmark.pedantic(curve, (tree,), rounds=1)


def test_calls_that_overlap(benchmark: Any) -> None:
    tree, _ = workloads.agent_calls(CALLS // 5)
    start = np.arange(CALLS // 5) * 1000
    end = start + np.random.default_rng(1).integers(500, 30_000, start.size)
    times = {"timing": "overlap", "t_start_us": start, "t_end_us": end}
    path_runs(**tree, **times)
    overlap, sequential = fastest(
        lambda: path_runs(**tree, **times),
        lambda: path_runs(**tree),
    )
    benchmark.extra_info.update(
        references_per_second=references(tree) / overlap, times_sequential=overlap / sequential
    )
    benchmark.pedantic(path_runs, (), tree | times, rounds=1)
