"""`replay` from the command line."""

from __future__ import annotations

import csv
import json
from io import StringIO
from typing import TYPE_CHECKING

import polars as pl
import pytest

import json_schema
from agentkv_trace.cli.app import main
from agentkv_trace.cli.replay import _host_bytes
from agentkv_trace.errors import InputError
from agentkv_trace.trace.store import write_trace
from replays import trace_of
from workload_agents import make_agents

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
SCHEMA = json_schema.load("agentkv_trace.report", "replay.schema.json")
SMALL = ["--model", "qwen3-8b", "--gpu", "h20", "--gpu-kv-tokens", "8192"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "agents.parquet"
    write_trace(make_agents(6, mean_tokens=3000, calls_per_task=12, head_tokens=640), path)
    return path


def test_a_sweep_from_the_command_line(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "--agents", "1,4", "--host-size", "0,2,4GiB", "--onset", "--best-cap"]
    assert main(["replay", str(stored), *words, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    json_schema.check(result, SCHEMA, SCHEMA)
    places = [(run["agents"], run["host_bytes"]) for run in result["runs"]]
    assert places == [(agents, size * GIB) for size in (0, 2, 4) for agents in (1, 4)]
    assert len(result["onsets"]) == len(result["caps"]) == 3
    alone, *tiers = (run for run in result["runs"] if run["agents"] == 4)
    assert all(run["hit_ratio"] > alone["hit_ratio"] for run in tiers)
    assert all(run["computed_tokens"] < alone["computed_tokens"] for run in tiers)
    onsets = [onset["agents"] or 99 for onset in result["onsets"]]
    assert onsets[0] < onsets[1] <= onsets[2]


def test_every_format(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(stored), *SMALL, "--agents", "1..3", "--format"]
    assert main([*words, "csv"]) == 0
    lines = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert [line["agents"] for line in lines] == ["1", "2", "3"]
    assert main([*words, "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Replay\n")
    assert main([*words, "table"]) == 0
    assert "Timeline: closed-loop, " in capsys.readouterr().out
    assert main([*words, "parquet"]) == 2
    assert "add -o FILE" in capsys.readouterr().err
    out = tmp_path / "sweep.parquet"
    assert main([*words, "parquet", "-o", str(out), "--quiet"]) == 0
    table = pl.read_parquet(out)
    assert table["agents"].to_list() == [1, 2, 3]
    assert table["makespan_s"].to_list() == pytest.approx([float(x["makespan_s"]) for x in lines])
    assert main([*words, "parquet", "-o", str(out), "--force", "--series"]) == 0
    assert "time_s" in pl.read_parquet(out).columns


@pytest.mark.parametrize(
    "words",
    [
        ["--timeline", "recorded"],
        ["--timeline", "open-loop", "--rate", "6", "--sessions", "20"],
        ["--order", "longest", "--agents", "6", "--max-agents", "2"],
        ["--dp", "2", "--routing", "round-robin", "--agents", "4"],
        ["--dp", "2", "--routing", "longest-prefix", "--agents", "4"],
        ["--host-size", "1GiB", "--write-filter", "fixed", "--kappa", "1"],
        ["--host-size", "1GiB", "--write-filter", "conditioned"],
        ["--max-num-seqs", "1", "--max-num-batched-tokens", "512", "--max-gap", "0"],
        ["--tp", "4", "--pp", "2", "--weight-dtype", "fp8", "--kv-bytes-per-token", "9000"],
    ],
)
def test_every_option(words: list[str], stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(stored), *SMALL, *words, "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["calls"] > 0
    assert (
        run["gpu_tokens"] + run["restored_tokens"] + run["computed_tokens"]
        == (run["prompt_tokens"])
    )


@pytest.mark.parametrize("backend", ["ideal", "vllm-lazy", "lmcache", "lmcache-server", "sglang"])
def test_every_kind_of_backend(
    backend: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "--backend", backend, "--host-size", "2GiB", "--format", "json"]
    assert main(["replay", str(stored), *words]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["backend"] == backend
    assert run["restored_tokens"] > 0


def test_fewer_bits_hold_more(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pools = {}
    for kind in ("bf16", "fp8", "int4", "int2"):
        words = ["--model", "qwen3-8b", "--gpu", "rtx3090", "--kv-dtype", kind, "--format", "json"]
        assert main(["replay", str(stored), *words]) == 0
        pools[kind] = json.loads(capsys.readouterr().out)["runs"][0]["pool_tokens"]
    # Scales take half a bit per element.
    for kind, bits in (("fp8", 8), ("int4", 4.5), ("int2", 2.5)):
        assert pools[kind] / pools["bf16"] == pytest.approx(16 / bits, rel=1e-3)


def test_a_trace_of_longer_chunks_and_one_without_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "mooncake.jsonl"
    calls = [
        {
            "timestamp": 1000 * n,
            "input_length": 1200,
            "output_length": 20,
            "hash_ids": [1, 2, 3 + n],
        }
        for n in range(4)
    ]
    log.write_text("".join(json.dumps(call) + "\n" for call in calls), encoding="utf-8")
    path = tmp_path / "foreign.parquet"
    assert main(["ingest", f"mooncake:{log}", "-o", str(path), "-q"]) == 0
    assert main(["replay", str(path), "-m", "qwen3-8b", "--agents", "2", "-f", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["trace"]["chunk_tokens"] == 512
    assert result["runs"][0]["gpu_tokens"] == 3 * 1024
    assert main(["replay", str(path), "-m", "qwen3-8b", "--host-chunk-tokens", "256"]) == 2
    assert "must be a multiple of the trace's 512" in capsys.readouterr().err


def test_one_call_and_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, none = tmp_path / "one.parquet", tmp_path / "none.parquet"
    write_trace(trace_of([[1, 2, 3]]), one)
    write_trace(trace_of([]), none)
    assert main(["replay", str(one), "-m", "qwen3-8b", "--onset", "--best-cap", "--series"]) == 0
    assert "Trace: 1 call in 1 session" in capsys.readouterr().out
    assert main(["replay", str(none), "-m", "qwen3-8b"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--agents", "0"], "--agents '0': must rise from 1 or more"),
        (["--agents", "1..0"], "--agents '1..0': must rise"),
        (["--agents", "some"], "write it like 16, 4,8,16 or 1..64"),
        (["--agents", "1..99999999"], "must be at most 100000"),
        (["--host-size", "5"], "--host-size '5': write it like 64GiB or 8GiB/rank"),
        (["--host-size", "5Mtok"], "write it like 64GiB"),
        (["--host-size", "5GiB/node"], "write it like 64GiB"),
        (["--host-size", "-5GiB"], "write it like 64GiB"),
        (["--rate", "3"], "--rate is for --timeline open-loop"),
        (["--timeline", "open-loop"], "needs --rate"),
        (["--timeline", "open-loop", "--rate", "nan"], "needs --rate"),
        (["--timeline", "recorded", "--agents", "4"], "--agents is for --timeline closed-loop"),
        (["--timeline", "looped"], "'looped' is not one of"),
        (["--gpu", "abacus"], "unknown GPU 'abacus'"),
        (["--backend", "abacus"], "unknown backend 'abacus'"),
        (["--routing", "fair"], "'fair' is not one of"),
        (["--write-filter", "most"], "'most' is not one of"),
        (["--kv-dtype", "int3"], "--kv-dtype int3"),
        (["--max-gap", "-1"], "--max-gap -1"),
        (["--gap-median", "0"], "--gap-median 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--kappa", "-1"], "--kappa -1: must be 0 or more"),
        (["--dp", "0"], "--dp 0"),
        (["--max-num-seqs", "0"], "--max-num-seqs 0"),
        (["--gpu", "dgx-spark", "--host-size", "5GiB"], "unified memory"),
        (["--model", "abacus"], "unknown model 'abacus'"),
        (["--session", "nobody"], "no call is left"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(stored), "--model", "qwen3-8b", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_sizes_of_host_memory() -> None:
    assert _host_bytes("0,5,10,20,40GiB", 1) == tuple(n * GIB for n in (0, 5, 10, 20, 40))
    assert _host_bytes("8GiB/rank", 4) == (32 * GIB,)
    assert _host_bytes("1,2GiB/rank", 4) == (4 * GIB, 8 * GIB)
    assert _host_bytes("512MiB,1GiB,512MiB", 1) == (GIB // 2, GIB)
    for text in ("", "GiB", "1,", "5chunks"):
        with pytest.raises(InputError, match="write it like"):
            _host_bytes(text, 1)


def test_the_report_replays_agents(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", str(stored), *SMALL, "--format", "json", "--agents"]
    ratios = []
    for agents in ("1", "6"):
        assert main([*words, agents]) == 0
        result = json.loads(capsys.readouterr().out)
        (found,) = result["gpus"]
        ratios.append(found["gpu_hit_ratio"])
        assert result["workload"]["agents"] == int(agents)
        assert any(f"as {agents} agents would" in said for said in result["assumptions"])
        alone = found["onsets"][0]
        assert alone["host_bytes"] == 0
        assert [point["agents"] for point in alone["points"]] == sorted(
            {point["agents"] for point in alone["points"]} | {1, 4, 16}
        )
    assert ratios[0] > ratios[1]
    assert main([*words, "0"]) == 2
    assert "--agents 0: must be at least 1" in capsys.readouterr().err
