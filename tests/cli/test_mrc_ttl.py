from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import json_schema
from agentkv_trace.cli.app import main
from agentkv_trace.trace.ids import trace_from_ids
from agentkv_trace.trace.store import Trace, write_trace
from conftest import REPO

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MINUTE = 60_000_000
SCHEMA = json_schema.load("agentkv_trace.report", "mrc.schema.json")


def store(
    path: Path,
    minutes: Sequence[float],
    cached: Sequence[int | None],
    *,
    agents: Sequence[str] = (),
    timed: Sequence[bool] = (),
    lasts: float = 0,
) -> Path:
    """Write calls of one conversation that repeat four chunks of 16 tokens and half a chunk."""
    count = len(minutes)
    start = np.array([round(at * MINUTE) for at in minutes], np.int64)
    made = trace_from_ids(
        session=["one"] * count,
        agent=list(agents) or "made",
        t_start_us=start,
        t_end_us=start + round(lasts * MINUTE),
        time_source=[["order_only", "logged"][each] for each in timed or [True] * count],
        prompt_tokens=[72] * count,
        output_tokens=[1] * count,
        ids=np.tile(np.arange(4, dtype=np.uint64), count),
        offsets=np.arange(count + 1) * 4,
        chunk_tokens=16,
    )
    columns = {
        "logged_prompt_tokens": [None if each is None else 80 for each in cached],
        "logged_cached_tokens": list(cached),
    }
    table = made.table
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, pa.int32()))
    write_trace(Trace(table, made.meta, keys=made.keys), path)
    return path


def run(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["mrc", str(path), *words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    json_schema.check(found, SCHEMA, SCHEMA)
    return found


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return store(tmp_path / "t.parquet", [0, 4, 10, 75], [0, 64, None, 16])


def test_json_holds_what_was_asked_for(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ttl" not in run(stored, capsys)
    found = run(stored, capsys, "--ttl", "5m, 1H,90s,0.5d")["ttl"]
    assert (found["calls"], found["untimed_calls"]) == (4, 0)
    assert found["logged"] == {
        "calls": 3,
        "prompt_tokens": 240,
        "cached_tokens": 80,
        "hit_ratio": round(1 / 3, 9),
    }
    seconds = [point["ttl_seconds"] for point in found["points"]]
    assert seconds == [300, 3600, 90, 43200, None]
    # Calls that hit four chunks of 16 in prompts of 72 tokens: of all, of those logged.
    for point, (hit, logged_hit) in zip(
        found["points"], [(1, 1), (2, 1), (0, 0), (3, 2), (3, 2)], strict=True
    ):
        assert point["miss_ratio"] == round(1 - hit / 4, 9)
        assert point["prefix_hit_ratio"] == round(64 * hit / (72 * 4), 9)
        assert point["logged_calls_prefix_hit_ratio"] == round(64 * logged_hit / (72 * 3), 9)


def test_the_table_shows_it_unasked_where_a_provider_logged_reads(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("table", "markdown"):
        assert main(["mrc", str(stored), "--format", form]) == 0
        shown = capsys.readouterr().out
        for words in ("5 min", "1 h", "unlimited", "logged as cached", "of 3 logged calls"):
            assert words in shown
        assert "33.33%" in shown
        assert "explicit" in shown
        assert max(map(len, shown.splitlines())) <= (80 if form == "table" else 200)
    assert main(["mrc", str(stored), "--format", "csv"]) == 0
    assert "ttl" not in capsys.readouterr().out
    for path in (
        store(tmp_path / "none.parquet", [0, 4], [None, None]),
        store(tmp_path / "zero.parquet", [0, 4], [0, 0]),
        store(tmp_path / "untimed.parquet", [0, 4], [0, 64], timed=[False, False]),
    ):
        assert main(["mrc", str(path)]) == 0
        assert "time to live" not in capsys.readouterr().out
    for words in (["--engine", "chunk"], ["--backend", "vllm"]):
        assert main(["mrc", str(stored), *words]) == 0
        assert "time to live" not in capsys.readouterr().out


def test_without_logged_reads_a_table_has_times_to_live_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store(tmp_path / "t.parquet", [0, 4], [None, None])
    assert main(["mrc", str(path), "--ttl", "5m"]) == 0
    shown = capsys.readouterr().out
    assert "5 min       44.44%" in shown
    assert "logged as cached" not in shown
    assert run(path, capsys, "--ttl", "5m")["ttl"]["logged"] is None


def test_csv_has_a_line_for_each(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mrc", str(stored), "--capacity", "4chunks", "--ttl", "5m,1h", "--format", "csv"]
    assert main(words) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["capacity_chunks"], row["ttl_seconds"]) for row in rows] == [
        ("4", ""),
        ("", "300"),
        ("", "3600"),
    ]
    assert [row["miss_ratio"] for row in rows] == ["0.25", "0.75", "0.5"]
    assert main([*words, "--by", "agent"]) == 0
    assert capsys.readouterr().out.count("made,,,,") == 2


def test_groups_share_one_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agents = ["a", "b", "a", "c"]
    path = store(
        tmp_path / "t.parquet",
        [0, 4, 10, 11],
        [0, 64, None, 0],
        agents=agents,
        timed=[True, True, True, False],
    )
    found = run(path, capsys, "--ttl", "5m", "--by", "agent")
    assert (found["ttl"]["calls"], found["ttl"]["untimed_calls"]) == (3, 1)
    groups = {group["name"]: group.get("ttl") for group in found["groups"]}
    assert groups["c"] is None
    hits = {name: groups[name]["points"] for name in "ab"}
    assert [point["miss_ratio"] for point in hits["a"]] == [1.0, 0.5]
    assert [point["miss_ratio"] for point in hits["b"]] == [0.0, 0.0]
    assert [groups[name]["logged"]["calls"] for name in "ab"] == [1, 1]
    assert main(["mrc", str(path), "--ttl", "5m", "--by", "agent"]) == 0
    shown = capsys.readouterr().out
    assert "1 calls without times are left out" in shown
    assert "agent  5 min  unlimited  logged  logged calls" in shown


def test_an_overlapping_call_lives_on_from_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Five minutes after the end of the first call, nine after its start.
    path = store(tmp_path / "t.parquet", [0, 9], [None, None], lasts=4)
    for timing, missed in (("sequential", 1.0), ("overlap", 0.5)):
        found = run(path, capsys, "--ttl", "5m", "--timing", timing)["ttl"]
        assert found["points"][0]["miss_ratio"] == missed


def test_times_that_are_an_order_only_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store(tmp_path / "t.parquet", [0, 4], [0, 64], timed=[False, False])
    assert main(["mrc", str(path), "--ttl", "5m"]) == 2
    assert "no times in their logs, only an order" in capsys.readouterr().err


def test_the_sample_server_forgets_after_five_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.parquet"
    assert main(["ingest", str(REPO / "sample_traces/codex"), "-o", str(path), "-q"]) == 0
    words = ["--ttl", "5m,1h", "--chunk-tokens", "128"]
    found = run(path, capsys, *words)["ttl"]
    assert found["logged"]["calls"] == found["calls"] == 220
    short, long, unlimited = (point["prefix_hit_ratio"] for point in found["points"])
    assert found["logged"]["hit_ratio"] < short < long == unlimited
    # A session without a break, and one that goes on after 12 minutes: its server had forgotten.
    for session, forgot in (("01a10b14-9260*", False), ("01a10b14-4440*", True)):
        part = run(path, capsys, *words, "--session", session)["ttl"]
        short, long, _ = (point["prefix_hit_ratio"] for point in part["points"])
        logged = part["logged"]["hit_ratio"]
        assert (short < long) == forgot
        assert abs(logged - short) <= abs(logged - long)
