from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import main
from conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = REPO / "sample_traces" / "codex"
LOG = min(SAMPLES.rglob("*.jsonl"), key=lambda path: path.stat().st_size)


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_it_writes_a_folder_and_says_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["scrub", str(SAMPLES), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Wrote 8 files to ")
    assert said.err.endswith(f"Next: agentkv-trace ingest {out} -o trace.parquet\n")
    assert len(content(out)) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert main(["ingest", str(out), "-o", str(tmp_path / "t.parquet"), "-q", "--verify"]) == 0


def test_a_seed_makes_it_again_and_without_one_it_is_another(tmp_path: Path) -> None:
    for name, more in (("a", ["--seed", "x"]), ("b", ["--seed", "x"]), ("c", []), ("d", [])):
        assert main(["scrub", str(LOG), "-o", str(tmp_path / name), "-q", *more]) == 0
    a, b, c, d = (content(tmp_path / name) for name in "abcd")
    assert a == b
    assert c != d
    assert a != c


def test_it_writes_into_an_empty_folder_but_into_a_full_one_by_force_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert main(["scrub", str(LOG), "-o", str(out), "--seed", "x"]) == 0
    first = content(out)
    (out / "mine").write_text("mine")
    capsys.readouterr()
    assert main(["scrub", str(LOG), "-o", str(out)]) == 2
    assert capsys.readouterr().err.endswith("is not empty; choose another -o or add --force\n")
    assert main(["scrub", str(LOG), "-o", str(out), "--seed", "y", "--force", "-q"]) == 0
    later = content(out)
    assert later.pop("mine") == b"mine"
    assert first != later


@pytest.mark.parametrize("case", ["a file", "no parent", "no log", "nothing", "no -o"])
def test_what_cannot_be_done_is_said_in_one_line_and_writes_nothing(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    given = {
        "a file": [str(LOG), "-o", str(tmp_path / "file")],
        "no parent": [str(LOG), "-o", str(tmp_path / "none" / "out")],
        "no log": [str(tmp_path / "file"), "-o", str(tmp_path / "out")],
        "nothing": [str(tmp_path / "none"), "-o", str(tmp_path / "out")],
        "no -o": [str(LOG)],
    }
    assert main(["scrub", *given[case]]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("agentkv-trace: ")
    assert said.err.count("\n") == 1
    assert content(tmp_path) == {"file": b"mine"}


def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentkv_trace.ingest.scrub.run.scrub_file", interrupted)
    assert main(["scrub", str(LOG), "-o", str(tmp_path / "out"), "-q"]) == 130
    assert list(tmp_path.iterdir()) == []
