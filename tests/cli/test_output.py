from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.app import main
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.store import write_trace
from made import call, node, trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    write_trace(trace([1, 2], [1, 2, 3], [1, 9]), path)
    return path


def test_what_is_no_regular_file_is_never_replaced(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = stored.with_name("pipe")
    os.mkfifo(pipe)
    assert main(["mrc", str(stored), "-o", str(pipe), "--force"]) == 2
    assert "is no regular file" in capsys.readouterr().err
    assert pipe.is_fifo()
    assert main(["mrc", str(stored), "-o", "-"]) == 2
    assert "leave -o out" in capsys.readouterr().err


def test_a_link_keeps_pointing_and_a_file_keeps_its_mode(stored: Path) -> None:
    target, link = stored.with_name("target.csv"), stored.with_name("link.csv")
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    words = ["mrc", str(stored), "--format", "csv", "-o", str(link), "-q"]
    assert main(words) == 2
    assert main([*words, "--force"]) == 0
    assert link.is_symlink()
    assert target.read_text().startswith("capacity_chunks")
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_dangling_link_is_not_replaced_unasked(stored: Path) -> None:
    link = stored.with_name("link.csv")
    link.symlink_to(stored.with_name("nowhere.csv"))
    assert main(["mrc", str(stored), "--format", "csv", "-o", str(link)]) == 2
    assert link.is_symlink()


def test_names_from_logs_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TraceBuilder() as builder:
        for number, model in enumerate(["\x1b[31mred\nline", "a|b", None]):
            builder.add(call(f"s{number}", node([1, number]), number, model=model))
        path = tmp_path / "t.parquet"
        write_trace(builder.finish({}), path)
    for form in ("table", "markdown"):
        assert main(["mrc", str(path), "--by", "model", "--format", form]) == 0
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert "?[31mred?line" in shown
    assert "a\\|b" in shown


def test_characters_that_the_terminal_lacks_are_replaced(tmp_path: Path) -> None:
    with TraceBuilder() as builder:
        builder.add(call("s", node([1]), model="modéle☃"))
        path = tmp_path / "t.parquet"
        write_trace(builder.finish({}), path)
    done = subprocess.run(
        [sys.executable, "-m", "agentkv_trace", "mrc", str(path), "--by", "model"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "mod?le?" in done.stdout


def test_closed_output_is_no_error(stored: Path) -> None:
    command = f"{sys.executable} -m agentkv_trace mrc {stored} >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_with_a_word_and_130(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, threading; from agentkv_trace.cli.app import main;"
        "threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start();"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["ingest", "-", "-o", str(tmp_path / "t.parquet")]
    # Reading standard input, which stays open, is where it waits.
    with subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, said) == (130, "agentkv-trace: interrupted\n")
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize("verb", ["mrc", "report"])
def test_a_trace_without_calls_is_said(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.parquet"
    write_trace(trace(), path)
    assert main([verb, str(path), "--model", "qwen3-8b"]) == 2
    assert "holds no call" in capsys.readouterr().err
