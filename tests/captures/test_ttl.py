"""Hits by time to live against the cache reads that real agents logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import main
from agentkv_trace.engine.mrc import trace_runs
from agentkv_trace.engine.ttl import ttl_hits
from agentkv_trace.trace.store import read_trace
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from agentkv_trace.trace.store import Trace

GROUPS = ("claude", "codex", "mini-swe", "opencode", "openhands")
"""Captures of several versions are left out: their usage is made up, half of it "cached"."""

STEP_TOKENS = {"codex": 128, "opencode": 128, "openhands": 128}
"""Servers that read every shared prefix, in steps of so many tokens; others go by marks or less."""

BYTES_POINTS = 4.0
"""How far shares by bytes are off those by tokens at most, as measured by prompt."""

NEXT_DAY = "resume-next-day"
MINUTE_US, DAY_US = 60_000_000, 86_400_000_000
NEVER_US = 10 * DAY_US
CAPTURES = sorted(
    wire.parent for group in GROUPS for wire in (SHARED / "captures" / group).glob("*/wire*")
)
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)


@pytest.mark.parametrize("folder", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_server_reads_more_than_a_cache_that_keeps_all(folder: Path, tmp_path: Path) -> None:
    assert main(["ingest", str(folder / "logs"), "-o", str(tmp_path / "t.parquet"), "-q"]) == 0
    trace = read_trace(tmp_path / "t.parquet")
    logged, read = trace.array("logged_prompt_tokens"), trace.array("logged_cached_tokens")
    # What first calls share with other sessions is partly in their heads, which no log holds.
    later = (logged > 0) & (read >= 0) & (trace.array("index") > 0)
    of_server = read[later].sum() / logged[later].sum()
    at_once, minutes, day, never = ratios(trace, later, [1, 5 * MINUTE_US, 2 * DAY_US, NEVER_US])
    print(f"{of_server:.2%} logged, {minutes:.2%} in 5 min, {never:.2%} for ever")  # noqa: T201
    assert at_once < minutes <= day == never
    # The servers never forgot, though one agent's clock went on by a day.
    assert (minutes < never) == (folder.name == NEXT_DAY)
    # Bytes stand for tokens to within points per prompt; over a capture that cancels.
    assert of_server <= never
    step = STEP_TOKENS.get(folder.parent.name)
    if step:
        (stepped,) = ratios(trace.coarsen(step), later, [NEVER_US])
        # Outputs hit before they are resent, which these servers do not count.
        assert abs(of_server - stepped) <= BYTES_POINTS / 100


def ratios(trace: Trace, among: np.ndarray, lifetimes_us: list[int]) -> list[float]:
    """Return hit tokens / prompt tokens of some calls (bool[calls]) for each time to live."""
    hits = ttl_hits(trace_runs(trace), trace.array("t_start_us"), lifetimes_us)
    tokens = trace.array("prompt_tokens")[among].sum()
    return [float(row[among].sum() * trace.meta.chunk_tokens / tokens) for row in hits]
