"""The report from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import main
from agentkv_trace.trace.store import write_trace
from replays import trace_of
from workload_agents import make_agents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "agents.parquet"
    write_trace(make_agents(6, mean_tokens=3000, calls_per_task=12, head_tokens=640), path)
    return path


@pytest.mark.parametrize(
    "backend", ["ideal", "vllm", "vllm-simple", "vllm-lazy", "lmcache", "lmcache-server", "sglang"]
)
def test_every_backend_reports(
    backend: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "qwen3-8b", "--gpu", "h20", "--gpu-kv-tokens", "8192"]
    assert main(["report", str(stored), *words, "--backend", backend, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["backend"]["backend"] == backend
    assert result["gpus"][0]["host"]["hit_ratio"] > result["gpus"][0]["gpu_hit_ratio"]
    assert result["assumptions"][0].startswith(f"Hits: {result['backend']['model']}")


def test_sizes_per_rank_and_in_total(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "qwen3-8b", "--gpu", "h20", "--gpu-kv-tokens", "8192", "--tp", "4"]
    sizes = ["--host-size", "1GiB/rank,6GiB", "--format", "json"]
    assert main(["report", str(stored), *words, *sizes]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["options"]["host_bytes"] == [4 * 2**30, 6 * 2**30]
    assert result["gpus"][0]["judged"]["per_rank_bytes"] == 2**30
    shown = {size["total_bytes"] for size in result["gpus"][0]["host_sizes"]}
    assert {4 * 2**30, 6 * 2**30} <= shown


def test_a_config_stands_for_a_model(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine" / "config.json"
    config.parent.mkdir()
    config.write_text(
        json.dumps(
            {
                "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
                "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8,
                "intermediate_size": 14336,
            }
        ),
        encoding="utf-8",
    )  # fmt: skip
    same = ["--gpu", "h20", "--gpu-kv-tokens", "8192", "--format", "json"]
    results = []
    for model in (str(config), "llama-3.1-8b"):
        assert main(["report", str(stored), "--model", model, *same]) == 0
        results.append(json.loads(capsys.readouterr().out))
    mine, known = results
    assert mine["model"]["name"] == "mine"
    assert str(tmp_path) not in json.dumps(mine)
    for gpu, other in zip(mine["gpus"], known["gpus"], strict=True):
        assert gpu["judged"] == other["judged"]


def test_explained(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", str(stored), "--model", "qwen3-8b", "--gpu", "h20", "--explain"]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert main([*words, "--format", "markdown"]) == 0
    page = capsys.readouterr().out
    assert "1. KV pool" in table
    assert "## 1. KV pool" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host-size", "64"], "write it like"),
        (["--host-size", "4096chunks"], "64GiB or 8GiB/rank"),
        (["--host-size", "4GiB/gpu"], "64GiB or 8GiB/rank"),
        (["--backend", "redis"], "unknown backend 'redis'"),
        (["--connector", "redis"], "unknown connector 'redis'"),
        (["--prefill-tokens-per-s", "0"], "--prefill-tokens-per-s 0"),
        (["--h2d-gbps", "-1"], "--h2d-gbps -1"),
        (["--pp", "0"], "--pp 0: must be at least 1"),
        (["--dp", "0"], "--dp 0: must be at least 1"),
        (["--tp", "3"], "--tp 3 does not divide the 32 attention heads"),
        (["--model", "{tmp}/none.json"], "no such file"),
        (["--model", "{tmp}/broken.json"], "broken.json:1: is not JSON"),
        (["--model", "qwen3.5-27b", "--backend", "vllm"], "--kv-bytes-per-token"),
        (["--model", "llama-3.1-405b"], "does not fit"),
        (["--gpu", "h100"], "could mean h100-pcie or h100-sxm"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str], said: str, stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    filled = [word.format(tmp=tmp_path) for word in words]
    model = [] if "--model" in filled else ["--model", "qwen3-8b"]
    gpu = [] if "--gpu" in filled else ["--gpu", "h20"]
    assert main(["report", str(stored), *model, *gpu, *filled]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.count("\n") == 1
    assert said in out.err


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_the_trace_is_drawn_over_time(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.parquet"
    write_trace(trace_of([[1, 2], [1, 2, 3]] * 10, sessions=["a", "b"] * 10), path)
    asked = ["report", str(path), "--model", "qwen3-8b", "--gpu", "h20", "--format", form]
    assert main(asked) == 0
    assert "Live context" in capsys.readouterr().out
