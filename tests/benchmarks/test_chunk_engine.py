"""The chunk engine, all capacities at once, beside replays of one capacity.

Ten million references to a million chunks; CPU seconds of the fastest of some interleaved
rounds, kernels warm. Dense ids and the histogram are part of the time.
"""

from __future__ import annotations

import subprocess
import sys
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agentkv_trace.engine.chunk_stack import ORDERS, CallStack, ChunkStack
from benchmarks import streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REFERENCES = 10_000_000
CHUNKS = 1_000_000
CAPACITY = 100_000
ROUNDS = 7
STREAMS = {"zipf": streams.zipf, "uniform": streams.uniform}

MEMORY = """
import re
from pathlib import Path
import numpy as np
from agentkv_trace.engine.chunk_stack import ChunkStack

random, stack = np.random.default_rng(1), ChunkStack()
for _ in range(200):
    stack.feed_histogram(random.integers(0, 10_000_000, 500_000, np.uint64))
assert stack.histogram.sum() == 100_000_000
print(stack.unique_chunks, re.search("VmHWM: *(.*) kB", Path("/proc/self/status").read_text())[1])
"""


def histogram(keys: Any) -> Any:
    stack = ChunkStack()
    stack.feed_histogram(keys)
    return stack.histogram


def prefixes(keys: Any, offsets: Any, order: Any) -> Any:
    stack = CallStack(order)
    stack.feed_histogram(keys, offsets)
    return stack.result().prefix_histogram


def fastest(*runs: Callable[[], Any]) -> list[float]:
    """Return the CPU seconds of the fastest of some interleaved rounds."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, mine in zip(runs, times, strict=True):
            start = process_time()
            run()
            mine.append(process_time() - start)
    return [min(mine) for mine in times]


@pytest.mark.parametrize("name", STREAMS)
def test_flat_streams(benchmark: Any, name: str) -> None:
    keys = STREAMS[name](REFERENCES, CHUNKS)
    hits = streams.lru_hits(keys, CHUNKS, CAPACITY)
    assert hits == histogram(keys)[1 : CAPACITY + 1].sum()
    engine, replay = fastest(
        lambda: histogram(keys), lambda: streams.lru_hits(keys, CHUNKS, CAPACITY)
    )
    benchmark.extra_info.update(
        references_per_second=REFERENCES / engine,
        lru_references_per_second=REFERENCES / replay,
        replays_in_its_time=engine / replay,
    )
    benchmark.pedantic(histogram, (keys,), rounds=1)


@pytest.mark.parametrize("name", STREAMS)
def test_beside_libcachesim(benchmark: Any, name: str, tmp_path: Path) -> None:
    peer = pytest.importorskip("libcachesim")
    keys = STREAMS[name](REFERENCES, CHUNKS)
    file = tmp_path / "stream"
    streams.write_oracle_general(keys, file)

    def process_trace() -> float:
        reader = peer.TraceReader(str(file), peer.TraceType.ORACLE_GENERAL_TRACE)
        return float(peer.LRU(cache_size=CAPACITY).process_trace(reader)[0])

    hits = histogram(keys)[1 : CAPACITY + 1].sum()
    assert process_trace() == pytest.approx(1 - hits / REFERENCES, abs=1e-6)
    engine, one_size = fastest(lambda: histogram(keys), process_trace)
    benchmark.extra_info.update(
        references_per_second=REFERENCES / engine,
        libcachesim_references_per_second=REFERENCES / one_size,
        times_faster_than_one_size=one_size / engine,
    )
    benchmark.pedantic(histogram, (keys,), rounds=1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("chunks", [20, 2_000])
def test_calls(benchmark: Any, order: Any, chunks: int) -> None:
    keys = streams.zipf(REFERENCES, CHUNKS)
    offsets = np.arange(0, REFERENCES + 1, chunks)
    prefixes(keys, offsets, order)
    calls, flat = fastest(lambda: prefixes(keys, offsets, order), lambda: histogram(keys))
    benchmark.extra_info.update(
        references_per_second=REFERENCES / calls, times_a_flat_stream=calls / flat
    )
    benchmark.pedantic(prefixes, (keys, offsets, order), rounds=1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_ten_million_chunks(benchmark: Any) -> None:
    """A whole process: 100 million references over ten million chunks."""
    path = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", MEMORY]

    def run() -> str:
        return subprocess.run(command, capture_output=True, check=True, text=True, env=path).stdout

    unique, peak = map(int, benchmark.pedantic(run, rounds=1).split())
    benchmark.extra_info.update(unique_chunks=unique, peak_bytes=peak * 1024)
