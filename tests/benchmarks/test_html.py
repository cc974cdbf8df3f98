"""How long the page of 100,000 calls takes, from the command's start to the file written."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from agentkv_trace.trace.store import Trace, write_trace
from benchmarks.workloads import agent_calls
from replays import trace_of_columns

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

CALLS = 100_000


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree, session = agent_calls(CALLS, head=300, grow=16, fold_at=2_000, fold_to=400)
    trace = trace_of_columns(tree, session)
    counts = tree["path_chunks"].astype(np.int64) - tree["base_chunks"]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    keys = offsets, np.arange(offsets[-1], dtype=np.uint64)
    path = tmp_path_factory.mktemp("page") / "trace.parquet"
    write_trace(Trace(trace.table, trace.meta, keys=keys), path)
    return path


@pytest.mark.parametrize("form", ["html", "json", "csv"])
def test_report_of_100_000_calls(stored: Path, form: str, benchmark: BenchmarkFixture) -> None:
    """The reference is csv, which needs none of what the page shows beside the advice."""
    out = stored.with_name(f"report.{form}")
    command = [sys.executable, "-m", "agentkv_trace", "report", str(stored), "--force", "-q"]
    options = ["--model", "qwen3-8b", "--gpu", "rtx3090", "--format", form, "-o", str(out)]

    def run() -> None:
        subprocess.run([*command, *options], check=True)

    benchmark.group = "report of 100,000 calls, whole process"
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    benchmark.extra_info["bytes"] = out.stat().st_size
    if form == "html":
        assert out.stat().st_size < 1_000_000
