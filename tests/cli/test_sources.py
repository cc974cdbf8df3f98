from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import main
from conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CODEX_HOME", "OPENCODE_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("words", [[], ["sources"]])
def test_what_is_here_and_what_to_type_next(
    words: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".codex").symlink_to(REPO / "sample_traces" / "codex")
    assert main(words) == 0
    assert capsys.readouterr().out == (
        "Codex CLI: 8 sessions, 220 calls, 2.4 MiB, 2026-10-05 to 2026-10-05\n"
        "Next: agentkv-trace ingest -o trace.parquet\n"
    )


def test_nothing_is_said_to_be_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sources"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("No agents' logs on this machine (looked for: Codex CLI, ")
    assert "Next: agentkv-trace demo" in said.err
