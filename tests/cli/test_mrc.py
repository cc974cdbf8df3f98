from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import main
from conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mrc") / "trace.parquet"
    assert main(["ingest", str(REPO / "sample_traces" / "codex"), "-o", str(path), "-q"]) == 0
    return path


def run(stored: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["mrc", str(stored), *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_both_exact_engines_give_the_same_curve(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(stored, capsys, "--capacity", "100chunks,1000chunks,9000chunks")
    chunk = run(
        stored, capsys, "--capacity", "100chunks,1000chunks,9000chunks", "--engine", "chunk"
    )
    assert path.pop("engine") == "path"
    assert chunk.pop("engine") == "chunk"
    assert path == chunk


def test_head_first_loses_prefixes(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--capacity", "1000chunks", "--engine", "chunk", "--order"]
    tail = run(stored, capsys, *words, "tail-first")
    head = run(stored, capsys, *words, "head-first")
    assert head["order"] == "head-first"
    assert head["cold_references"] == tail["cold_references"]
    assert head["points"][0]["prefix_hit_ratio"] < tail["points"][0]["prefix_hit_ratio"]


def test_overlap_changes_distances_but_not_what_is_cold_for_good(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--capacity", "1000chunks,90000chunks"]
    one, two = run(stored, capsys, *words), run(stored, capsys, *words, "--timing", "overlap")
    assert one["points"][0] != two["points"][0]
    assert two["points"][1]["miss_ratio"] >= one["points"][1]["miss_ratio"]


def test_groups_add_up_to_the_whole(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for column, count in (("session", 8), ("agent", 2), ("source", 1), ("model", 1)):
        result = run(stored, capsys, "--by", column, "--capacity", "1000chunks")
        groups = result["groups"]
        assert (result["by"], len(groups)) == (column, count)
        for what in ("calls", "prompt_tokens", "references", "unique_chunks", "cold_references"):
            assert sum(group[what] for group in groups) == result[what]
        missed = [group["points"][0]["miss_ratio"] * group["references"] for group in groups]
        whole = result["points"][0]["miss_ratio"] * result["references"]
        assert sum(missed) == pytest.approx(whole, abs=1e-3)


def test_groups_in_the_other_forms(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mrc", str(stored), "--by", "agent", "--capacity", "10chunks,1000chunks"]
    assert main([*words, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["agent"] for row in rows] == ["codex", "codex", "codex:subagent", "codex:subagent"]
    assert main([*words, "--format", "markdown"]) == 0
    assert "| codex:subagent |" in capsys.readouterr().out
    assert main(words) == 0
    assert "codex:subagent" in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["vllm", "sglang", "lmcache", "lmcache-server"])
def test_no_backend_beats_the_plain_stack(
    backend: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--capacity", "6000chunks,12000chunks"]
    plain = run(stored, capsys, *words)["points"]
    real = run(stored, capsys, *words, "--backend", backend)
    assert real["engine"] == backend
    for one, two in zip(real["points"], plain, strict=True):
        assert 0.3 < one["prefix_hit_ratio"] <= two["prefix_hit_ratio"]
    assert main(["mrc", str(stored), "--backend", backend, "--plot"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--order", "head-first"], "only --engine chunk has it"),
        (["--engine", "chunk", "--timing", "overlap"], "only --engine path has it"),
        (["--backend", "vllm", "--engine", "chunk"], "has an order and timing of its own"),
        (["--backend", "vllm", "--timing", "overlap"], "has an order and timing of its own"),
        (["--backend", "sglang", "--capacity", "5chunks"], "the largest call takes"),
        (["--by", "agent", "--engine", "chunk"], "only --engine path splits"),
        (["--by", "agent", "--backend", "vllm"], "only --engine path splits"),
        (["--engine", "shards"], "it needs one"),
        (["--rate", "0.1"], "go with --engine shards"),
        (["--engine", "shards", "--rate", "0.1", "--samples", "9"], "give one of them"),
        (["--engine", "shards", "--rate", "0"], "above 0 and at most 1, not 0"),
        (["--engine", "shards", "--rate", "1.5"], "above 0 and at most 1, not 1.5"),
        (["--engine", "shards", "--samples", "0"], "a sample holds at least one chunk, not 0"),
        (["--ttl", "5m", "--engine", "chunk"], "goes with --engine path only"),
        (["--ttl", "5m", "--backend", "vllm"], "goes with --engine path only"),
        (["--ttl", "5m", "--format", "svg"], "is in no picture"),
        (["--ttl", "5"], "--ttl '5': write it like 5m or 1h"),
        (["--ttl", "5m,"], "write it like"),
        (["--ttl", "0s"], "write it like"),
        (["--ttl", "-1m"], "write it like"),
        (["--ttl", "99999999d"], "write it like"),
        (["--session", "none*"], "no call is left by the filters given"),
        (["--since", "soon"], "write it like"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], message: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mrc", str(stored), *words]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert message in said.err


def test_filters_leave_a_smaller_trace(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = run(stored, capsys)
    part = run(stored, capsys, "--agent", "codex:*")
    assert part["calls"] == 23
    assert part["prompt_tokens"] < whole["prompt_tokens"]
    late = run(stored, capsys, "--since", "2026-10-05T08:05")
    early = run(stored, capsys, "--until", "2026-10-05T08:05")
    assert late["calls"] + early["calls"] == whole["calls"]


@pytest.mark.parametrize("words", [["--rate", "0.2"], ["--samples", "4000"]])
def test_a_sampled_curve_says_how_far_off_it_may_be(
    words: list[str], stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capacities = ["--capacity", ",".join(f"{size}chunks" for size in range(500, 23000, 500))]
    exact = run(stored, capsys, *capacities)
    sampled = run(stored, capsys, *capacities, "--engine", "shards", *words, "--seed", "7")
    again = run(stored, capsys, *capacities, "--engine", "shards", *words, "--seed", "7")
    assert sampled == again
    sampling = sampled["sampling"]
    assert (sampled["engine"], sampling["seed"]) == ("shards", 7)
    for what in ("references", "unique_chunks", "cold_references", "prompt_tokens"):
        assert sampled[what] == exact[what]
    off = [
        abs(one["miss_ratio"] - two["miss_ratio"])
        for one, two in zip(exact["points"], sampled["points"], strict=True)
    ]
    assert 0 < sum(off) / len(off) <= sampling["error_bound"]
    assert main(["mrc", str(stored), "--engine", "shards", *words]) == 0
    assert "in 95% of seeds" in capsys.readouterr().out
