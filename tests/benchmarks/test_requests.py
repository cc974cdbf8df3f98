"""Megabytes per second, on one core, of reading a request log; beside it, of only parsing it.

    pytest tests/benchmarks/test_requests.py --benchmark-only

`extra_info` has MB/s of processor time. The log is made by `request_logs.py`; REQUEST_LOG_MB
sets its size (100, or 1000 for the size that counts).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.requests import calls
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from benchmarks.request_logs import make

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

MEGABYTES = int(os.environ.get("REQUEST_LOG_MB", "100"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("requests") / "log.jsonl"
    make(path, MEGABYTES * 1_000_000)
    return path


def measured(benchmark: BenchmarkFixture, log: Path, run: Callable[[Path], int]) -> int:
    seconds = []

    def timed() -> int:
        began = time.process_time()
        found = run(log)
        seconds.append(time.process_time() - began)
        return found

    result = benchmark.pedantic(timed, rounds=3)
    benchmark.extra_info["MB/s"] = round(log.stat().st_size / 1e6 / min(seconds))
    return result


def parse(log: Path) -> int:
    """Look for the end of each record's one value, and do nothing with it."""
    decoder = msgspec.json.Decoder(msgspec.Raw)
    return sum(1 for _, line in reading.lines(log, Notes()) if decoder.decode(line))


def read(log: Path) -> int:
    return sum(1 for _ in calls.read([log], Notes(strict=True)))


def ingest(log: Path) -> int:
    """Read the log and make its trace, keys of chunks and bases included."""
    with TraceBuilder() as builder:
        for call in calls.read([log], Notes(strict=True)):
            builder.add(call)
        return len(builder.finish({}))


@pytest.mark.parametrize("run", [parse, read, ingest], ids=lambda run: run.__name__)
def test_a_request_log(benchmark: BenchmarkFixture, log: Path, run: Callable[[Path], int]) -> None:
    assert measured(benchmark, log, run) > 0
