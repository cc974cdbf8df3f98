from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import VERBS, main
from agentkv_trace.trace.store import write_trace
from made import trace

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {"numba", "polars", "pyarrow", "numpy"}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    write_trace(trace([1, 2], [1, 2, 3], [1, 9], [1, 2, 3], sessions=["a", "a", "b", "a"]), path)
    return path


def run(*words: str, env: dict[str, str] | None = None, **options):
    return subprocess.run(
        [sys.executable, "-m", "agentkv_trace", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        check=False,
        **options,
    )


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name, _ in VERBS)])
def test_help_is_answered_without_the_heavy_packages(words: list[str]) -> None:
    code = (
        "import sys; from agentkv_trace.cli.app import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert "Usage: agentkv-trace" in done.stdout
    assert HEAVY.isdisjoint(done.stderr.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, agentkv_trace; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_every_help_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"agentkv-trace {verb}" in capsys.readouterr().out.split("Usage:")[1].split("Example")[1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from agentkv_trace import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"agentkv-trace {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mrc"], "Missing argument 'TRACE'. See `agentkv-trace mrc --help`."),
        (["mrc", "x", "--nope"], "No such option: --nope"),
        (["stroll"], "No such command 'stroll'."),
        (["mrc", "/none.parquet"], "/none.parquet: no such file"),
        (["mrc", "{trace}", "--capacity", "40"], "capacity '40': write it like 4096chunks"),
        (["mrc", "{trace}", "--capacity", "-4chunks"], "capacity '-4chunks'"),
        (["mrc", "{trace}", "--capacity", "1GiB"], "a capacity in bytes needs --model"),
        (["mrc", "{trace}", "--chunk-tokens", "24"], "must be a multiple of the trace's 16"),
        (["mrc", "{trace}", "--model", "qwen9"], "qwen9"),
        (["report", "{trace}", "--model", "qwen3-8b", "--gpu", "h8x"], "h8x"),
        (["report", "{trace}", "--model", "qwen3-8b", "--tp", "0"], "--tp 0: must be at least 1"),
        (["ingest", "/none", "-o", "{tmp}/x.parquet"], "/none: no such file"),
        (["ingest", "{tmp}/*.none", "-o", "{tmp}/x.parquet"], "no file matches"),
        (["ingest", "{trace}", "-o", "{trace}"], "exists already"),
        (["mrc", "{trace}", "-o", "{tmp}"], "is a folder"),
        (["mrc", "{trace}", "-o", "{tmp}/no/x.txt"], "no such folder"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str], message: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [word.format(trace=stored, tmp=stored.parent) for word in words]
    before = sorted(stored.parent.iterdir())
    assert main(filled) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err
    assert sorted(stored.parent.iterdir()) == before


def test_an_unknown_gpu_lists_the_nearest(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(stored), "--model", "qwen3-8b", "--gpu", "h10"]) == 2
    assert "h100-sxm" in capsys.readouterr().err


def test_mrc_json_has_exactly_the_points_asked_for(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--capacity", "0chunks,2chunks,1Mtok", "--format", "json"]
    assert main(["mrc", str(stored), *words]) == 0
    result = json.loads(capsys.readouterr().out)
    points = result.pop("points")
    assert result == {
        "schema": "agentkv-trace/mrc/1",
        "engine": "path",
        "order": "tail-first",
        "chunk_tokens": 16,
        "calls": 4,
        "prompt_tokens": 160,
        "references": 10,
        "unique_chunks": 4,
        "cold_references": 4,
        "next_call_reuse": 1.0,
        "sampling": None,
    }
    # Stack before each call, most recent first: [], [1 2], [1 2 3], [1 9 2 3].
    assert [list(point.values()) for point in points] == [
        [0, 0, None, 1.0, 0.0],
        [2, 32, None, 0.6, 0.4],
        [62500, 1_000_000, None, 0.4, 0.6],
    ]
    assert list(points[0]) == [
        "capacity_chunks",
        "capacity_tokens",
        "capacity_bytes",
        "miss_ratio",
        "prefix_hit_ratio",
    ]


def test_capacities_in_bytes_are_those_of_the_model(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "qwen3-8b", "--capacity", "1GiB", "--format", "json"]
    assert main(["mrc", str(stored), *words]) == 0
    point = json.loads(capsys.readouterr().out)["points"][0]
    # 2 (K and V) x 36 layers x 8 heads x 128 x 2 bytes = 147,456 bytes a token.
    assert point["capacity_chunks"] == 2**30 // (16 * 147_456)
    assert point["capacity_bytes"] == point["capacity_chunks"] * 16 * 147_456


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
@pytest.mark.parametrize("verb", ["mrc", "report"])
def test_every_form_goes_to_a_file_as_to_the_screen(
    verb: str, form: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [verb, str(stored), "--model", "qwen3-8b", "--format", form]
    assert main(words) == 0
    shown = capsys.readouterr().out
    out = stored.with_name("out.txt")
    assert main([*words, "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"Wrote {out}\n")
    assert out.read_text(encoding="utf-8") == shown
    assert main([*words, "-o", str(out)]) == 2
    assert main([*words, "-o", str(out), "--force", "-q"]) == 0


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_nothing_is_wider_than_the_terminal(
    columns: int, stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["mrc", str(stored), "--plot", "--model", "qwen3-8b"]) == 0
    assert main(["report", str(stored), "--model", "qwen3-8b"]) == 0
    assert max(map(len, capsys.readouterr().out.split("\n"))) <= columns


def test_without_utf8_the_plot_is_ascii(stored: Path) -> None:
    done = run("mrc", str(stored), "--plot", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_a_closed_pipe_ends_quietly(stored: Path) -> None:
    command = f"{sys.executable} -m agentkv_trace mrc {stored} --format csv | head -1"
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("capacity_chunks,")


def test_an_internal_error_asks_for_debug_and_debug_shows_it(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("agentkv_trace.trace.store.read_trace", broken)
    assert main(["mrc", str(stored)]) == 2
    assert "internal error (ZeroDivisionError: boom)" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        main(["mrc", str(stored), "--debug"])


def test_an_interrupt_is_130(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentkv_trace.trace.store.read_trace", interrupted)
    assert main(["mrc", str(stored)]) == 130


def test_without_logs_the_bare_command_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "none"))
    assert main([]) == 0
    assert "Usage: agentkv-trace" in capsys.readouterr().out
