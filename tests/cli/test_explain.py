from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import broken_prompts
from agentkv_trace.cli.app import main
from broken_prompts import made

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return broken_prompts.write(made("date in the system prompt"), tmp_path / "bad.jsonl")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv_trace.cli.explain._on_screen", lambda: True)


def test_a_trace_with_a_layout_says_what_its_logs_say(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(tmp_path / "t.parquet")
    assert main(["ingest", str(logs), "--with-layout", "-o", trace, "-q"]) == 0
    outs = []
    for source in (str(logs), trace):
        assert main(["explain", source, "-f", "json", "--limit", "5"]) == 0
        outs.append(json.loads(capsys.readouterr().out))
    assert outs[0] == outs[1]
    assert len(outs[0]["breaks"]) == 5
    assert outs[0]["causes"][0]["cause"] == "date"


def test_filters(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(logs), "--session", "s1", "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sessions"], {row["session"] for row in found["breaks"]}) == (1, {"s1"})


def test_text_is_shown_on_a_screen(
    logs: Path, screen: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(logs), "--show-text", "-n", "1"]) == 0
    old, new = capsys.readouterr().out.rstrip().rpartition(" call 23:\n")[2].split("\n+ ")
    assert old.startswith("- ")
    assert "It is 2026-10-05T08:00:22Z" in " ".join(old.split())
    assert "It is 2026-10-05T08:00:23Z" in " ".join(new.split())


def test_text_never_goes_to_a_file(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["-o", str(tmp_path / "out.txt")], ["-f", "json"]):
        assert main(["explain", str(logs), "--show-text", *more]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "on a terminal only" in said.err
    assert not (tmp_path / "out.txt").exists()


def test_a_trace_has_no_text_to_show(
    logs: Path, tmp_path: Path, screen: None, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(tmp_path / "t.parquet")
    assert main(["ingest", str(logs), "--with-layout", "-o", trace, "-q"]) == 0
    assert main(["explain", trace, "--show-text"]) == 2
    assert "a trace holds no text" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--gpu", "h100-sxm"], ["--model", "qwen3-8b"], ["-n", "0"]])
def test_options_that_cannot_be_meant(
    words: list[str], logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(logs), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
