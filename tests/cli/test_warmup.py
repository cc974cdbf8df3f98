from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from agentkv_trace import __version__, _jit
from agentkv_trace.cli.progress import say_if_compiling
from conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_no_command_meets_a_kernel_that_warmup_left_out(tmp_path: Path) -> None:
    (tmp_path / "sample_traces").symlink_to(REPO / "sample_traces")
    words = [sys.executable, str(REPO / "tests" / "kernels_met.py"), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_a_first_run_says_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_jit, "_CACHE", str(tmp_path))
    say_if_compiling(quiet=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    say_if_compiling(quiet=True)
    assert capsys.readouterr().err == ""
    say_if_compiling(quiet=False)
    assert "Compiling kernels" in capsys.readouterr().err
    kept = tmp_path / "replay_0" / "loop._run-1.py311.1.nbc"
    kept.parent.mkdir()
    kept.touch()
    say_if_compiling(quiet=False)
    assert capsys.readouterr().err == ""


def test_kernels_are_kept_below_the_users_cache(tmp_path: Path) -> None:
    # The module whose kernels take longest, imported before any other of the package.
    code = "from agentkv_trace.replay.loop import _run; print(_run._cache.cache_path)"
    env = {**os.environ, "NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.startswith(f"{tmp_path}/agentkv-trace/{__version__}/replay_")
