"""SHARDS beside a bare hash filter and the exact engine; its error over many seeds.

Ten million references to a million chunks; CPU seconds of the fastest of some interleaved
rounds, kernels warm, from the keys to the curve with its error.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from agentkv_trace.engine.keys import select
from agentkv_trace.engine.shards import PIECE, Shards
from benchmarks.test_chunk_engine import CHUNKS, REFERENCES, STREAMS, fastest, histogram

SEEDS = 100

MEMORY = """
import sys
from pathlib import Path
import numpy as np
from agentkv_trace.engine.shards import Shards

def resident(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))

warm = Shards(samples=9)
warm.feed(np.arange(1000, dtype=np.uint64))
warm.result()
before, random = resident("VmRSS"), np.random.default_rng(1)
shards = Shards(samples=int(sys.argv[1]))
for part in range(200):
    shards.feed(random.integers(0, 1_000_000 * (part + 1), 500_000, np.uint64))
shards.result()
print(resident("VmHWM") - before)
"""


def curve(keys: Any, unique: int | None = None, **options: Any) -> Any:
    shards = Shards(**options)
    shards.feed(keys)
    return shards.result(unique)


def bare_filter(keys: Any) -> int:
    return sum(
        select(keys[begin : begin + PIECE], 1, 2**64 // 100).size
        for begin in range(0, keys.size, PIECE)
    )


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("options", [{"rate": 0.01}, {"rate": 0.1}, {"samples": 8192}], ids=str)
def test_references_per_second(benchmark: Any, name: str, options: dict[str, Any]) -> None:
    keys = STREAMS[name](REFERENCES, CHUNKS)
    curve(keys, **options)
    bare_filter(keys)
    histogram(keys)
    shards, bare, exact = fastest(
        lambda: curve(keys, **options), lambda: bare_filter(keys), lambda: histogram(keys)
    )
    benchmark.extra_info.update(
        references_per_second=REFERENCES / shards,
        bare_filter_references_per_second=REFERENCES / bare,
        times_faster_than_exact=exact / shards,
    )
    benchmark.pedantic(curve, (keys,), options, rounds=1)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("known", [True, False], ids=["distinct known", "distinct unknown"])
@pytest.mark.parametrize("options", [{"rate": 0.01}, {"samples": 8192}], ids=str)
def test_error(benchmark: Any, name: str, known: bool, options: dict[str, Any]) -> None:
    keys = STREAMS[name](REFERENCES, CHUNKS)
    exact = histogram(keys)
    unique = exact.size - 1
    grid = np.arange(1, 1001) * unique // 1000
    true = 1 - (np.cumsum(exact) - exact[0])[grid] / REFERENCES
    off, expected, bound, adjusted = [], [], [], []
    for seed in range(SEEDS):
        given = unique if known else None
        found = curve(keys, given, seed=seed, **options)
        off.append(np.abs(found.miss_ratio(grid) - true).mean())
        expected.append(found.expected_error)
        bound.append(found.error_bound)
        if seed < 20:
            plain = curve(keys, given, seed=seed, correction="adjusted", **options)
            adjusted.append(np.abs(plain.miss_ratio(grid) - true).mean())
    benchmark.extra_info.update(
        error_median_of_20=float(np.median(off[:20])),
        error_median_of_100=float(np.median(off)),
        error_mean=float(np.mean(off)),
        expected_error_mean=float(np.mean(expected)),
        bound_median=float(np.median(bound)),
        seeds_below_bound=int((np.array(off) <= bound).sum()),
        shards_adj_error_median_of_20=float(np.median(adjusted)),
    )
    benchmark.pedantic(curve, (keys,), options, rounds=1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("samples", [8192, 65536])
def test_memory_of_a_fixed_size(benchmark: Any, samples: int) -> None:
    """100 million references over ever more chunks: what comes on top of the interpreter."""
    path = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", MEMORY, str(samples)]

    def run() -> str:
        return subprocess.run(command, capture_output=True, check=True, text=True, env=path).stdout

    benchmark.extra_info["bytes_above"] = int(benchmark.pedantic(run, rounds=1)) * 1024
