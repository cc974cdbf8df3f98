"""How long `check` takes on 100,000 calls: reading, all figures, causes and verdicts."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.check.config import parse_config
from agentkv_trace.check.figures import measure
from agentkv_trace.check.judge import judge
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import Node
from agentkv_trace.trace.store import read_trace, write_trace
from made import call

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

SESSIONS, CALLS = 10_000, 10
LIMIT_S = 5.0
GATES = {
    "min-hit-ratio": 0.99,
    "max-head-change-tokens": 0,
    "max-working-set": "1Mtok",
    "min-next-call-reuse": 0.99,
}


def item(role: str, words: str) -> bytes:
    return json.dumps({"role": role, "content": words}).encode()


@pytest.fixture(scope="module", params=["whole", "every head dated"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace of 100,000 calls with its layout; dated ones lose their prefix every time."""
    chance = random.Random(0)
    builder = TraceBuilder(layout=True)
    dated = request.param != "whole"
    for session in range(SESSIONS):
        messages: list[bytes] = []
        for number in range(CALLS):
            stamp = f"at 08:{number:02}:00 " if dated else ""
            prompt = Node.head("h").text(item("system", stamp + "rules " * 100))
            messages.append(item("tool", chance.randbytes(200).hex()))
            for each in messages:
                prompt = prompt.text(each)
            made = call(f"s{session}", prompt, number * SESSIONS + session, model="m")
            builder.add(made)
            messages.append(item("assistant", chance.randbytes(60).hex()))
    path = tmp_path_factory.mktemp("check") / "trace.parquet"
    write_trace(builder.finish({}, fixed_bytes_per_token=4.0), path)
    return path


def test_check_of_100_000_calls(stored: Path, benchmark: BenchmarkFixture) -> None:
    from pathlib import Path as Where

    config = parse_config(dict(GATES), Where("agentkv-trace.toml"))

    def run() -> int:
        trace = read_trace(stored)
        return judge(trace, measure(trace, config), config, None).calls

    assert benchmark.pedantic(run, rounds=3, warmup_rounds=1) == SESSIONS * CALLS
    assert benchmark.stats.stats.min < LIMIT_S
