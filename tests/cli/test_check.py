from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import broken_prompts
from agentkv_trace.advise.break_words import CAUSES, CLASSES
from agentkv_trace.cli.app import main
from broken_prompts import VARIANTS, made
from conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = '[check]\nbaseline = "base.json"\nmax-regression = {lost-share = "0.1pp"}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a configuration and the unbroken prompts, where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "agentkv-trace.toml").write_text(CONFIG)
    broken_prompts.write(made(), tmp_path / "good.jsonl")
    return tmp_path


@pytest.fixture
def with_baseline(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["check", "good.jsonl", "--update-baseline"]) == 0
    assert capsys.readouterr().err == "Wrote base.json\n"
    return here


def test_a_baseline_passes_on_itself(
    with_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "good.jsonl"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.endswith("all 6 gates passed on 72 calls of 3 sessions\n")


@pytest.mark.parametrize("name", VARIANTS)
def test_it_fails_on_each_broken_variant_and_names_the_cause(
    name: str, with_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken_prompts.write(made(name), with_baseline / "bad.jsonl")
    assert main(["check", "bad.jsonl"]) == 1
    words = " ".join(capsys.readouterr().out.split())
    _, kind, cause = VARIANTS[name]
    blamed = f"cause: {CLASSES[kind]}" + (f": {CAUSES[cause].words}" if cause else "")
    assert blamed in words
    assert "next: agentkv-trace explain bad.jsonl" in words


def test_it_passes_within_the_allowed_regression(
    with_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message of one call changes near the end of the prompt: less than is allowed."""
    requests = made()
    last = [request for request in requests if request["session"] == "s0"][-1]
    items = last["body"]["input"]
    at = max(n for n, item in enumerate(items[:-4]) if "output" in item)
    items[at] = items[at] | {"output": items[at]["output"] + " "}
    broken_prompts.write(requests, with_baseline / "near.jsonl")
    assert main(["check", "near.jsonl", "-f", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (lost,) = [one for one in result["findings"] if one["figure"] == "lost_share"]
    assert 0 == lost["baseline"] < lost["value"] <= lost["limit"]
    assert main(["check", "near.jsonl", "--max-regression", "0pp", "-q"]) == 1


def test_a_trace_and_its_logs_give_the_same_verdict(
    with_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ingest", "good.jsonl", "--with-layout", "-o", "t.parquet", "-q"]
    assert main([*words, "--bytes-per-token", "4"]) == 0
    outs = []
    for source in ("good.jsonl", "t.parquet"):
        assert main(["check", source, "-f", "json"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]


def test_exit_zero_and_quiet_files(with_baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken_prompts.write(made("shuffled tools"), with_baseline / "bad.jsonl")
    assert main(["check", "bad.jsonl", "--exit-zero", "-f", "junit", "-o", "out.xml"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "gates failed" in said.err
    assert (with_baseline / "out.xml").read_text().startswith("<?xml")
    assert main(["check", "bad.jsonl", "-o", "out.xml"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_github_appends_to_the_summary_page(
    with_baseline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = with_baseline / "summary.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    broken_prompts.write(made("model switched"), with_baseline / "bad.jsonl")
    assert main(["check", "bad.jsonl", "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error title=agentkv-trace%3A baseline::")
    assert page.read_text().startswith("before\n## agentkv-trace check: failed\n")


def test_the_configuration_in_force_is_shown(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--show-config", "--model", "qwen3-8b"]) == 0
    out = capsys.readouterr().out
    assert 'baseline = "base.json"\nprofile = "qwen3-8b"\n' in out
    assert 'lost-share = "0.1pp"' in out


@pytest.mark.parametrize(
    ("config", "words", "message"),
    [
        ("", ["good.jsonl"], "nothing to check: set gates"),
        ("min-hit-ratio = 0.9\n", [], "name a trace or logs"),
        ("min-hit-ration = 0.9\n", ["good.jsonl"], "did you mean min-hit-ratio?"),
        ("min-hit-ratio = 0.9\n", ["none.jsonl"], "none.jsonl: no such file"),
        ('baseline = "none.json"\n', ["good.jsonl"], "none.json: no such baseline"),
    ],
)
def test_what_cannot_be_checked_is_one_line_and_exit_2(
    config: str, words: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "agentkv-trace.toml").write_text("[check]\n" + config)
    assert main(["check", *words]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert message in said.err


def test_sources_and_baseline_are_beside_the_configuration(
    with_baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG + 'sources = ["requests:good.jsonl"]\n'
    (with_baseline / "agentkv-trace.toml").write_text(config.replace("max-reg", "#max-reg"))
    inner = with_baseline / "deep" / "down"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert main(["check"]) == 0


def test_this_project_checks_its_own_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPO)
    assert main(["check", "--config", "sample_traces/agentkv-trace.toml"]) == 0
    assert "gates passed on 294 calls of 13 sessions" in capsys.readouterr().out
