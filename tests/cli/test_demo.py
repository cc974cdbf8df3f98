from __future__ import annotations

import shlex
import tempfile
from typing import TYPE_CHECKING

from agentkv_trace.cli.app import main
from agentkv_trace.trace.demo import AGENTS, demo_trace
from agentkv_trace.trace.store import read_trace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

VERDICTS = (
    "RTX 3090: pays: buy 96 GiB host memory",
    "H800 SXM: costs: buy no host memory: 128 GiB host memory",
    "H20: neutral: buy no host memory",
)
"""As README.md has them."""


def test_one_tier_pays_costs_and_idles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["demo"]) == 0
    said = capsys.readouterr()
    assert [verdict for verdict in VERDICTS if f"\n{verdict}" in said.out] == list(VERDICTS)
    assert "Miss ratio of prompt chunks" in said.out
    assert "agentkv-trace demo -o demo" in said.err
    assert str(tmp_path) not in said.out + said.err
    assert list(tmp_path.iterdir()) == []


def test_the_commands_it_shows_give_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "-o", "a folder"]) == 0
    said = capsys.readouterr()
    lines = [line[2:] for line in said.err.splitlines() if line.startswith("$ ")]
    assert len(lines) == 2
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out == said.out
    assert main(["demo", "-o", "other", "-q"]) == 0
    assert capsys.readouterr() == (said.out, "")


def test_the_trace_is_one_like_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", str(tmp_path), "-q"]) == 0
    trace = read_trace(tmp_path / "trace.parquet")
    sessions, names = trace.codes("session")
    assert len(names) == AGENTS
    # They work at the same time, and fold long contexts.
    starts = trace.array("t_start_us")
    first = [starts[sessions == code][0] for code in range(AGENTS)]
    last = [starts[sessions == code][-1] for code in range(AGENTS)]
    assert max(first) < min(last)
    assert {"turn", "fold"} <= set(trace.codes("kind")[1])
    assert demo_trace().table.equals(trace.table)
    assert not demo_trace(seed=8).table.equals(trace.table)


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "trace.parquet"
    kept.write_text("mine")
    for folder, message in ((tmp_path, "exists already"), (kept, "is no folder")):
        assert main(["demo", "-o", str(folder)]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert message in said.err
    assert main(["demo", "-o", str(kept / "below")]) == 2
    assert "cannot be made" in capsys.readouterr().err
    assert kept.read_text() == "mine"
    assert main(["demo", "-o", str(tmp_path), "--force", "-q"]) == 0
    assert len(read_trace(kept)) > 0
