"""Progress bars that count: on a terminal only, and only for what takes long."""

from __future__ import annotations

import sys
import time
from io import StringIO

import pytest

from agentkv_trace.cli import progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, *, lasts_s: float, quiet: bool = False) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_DELAY_S", 0.05)
    with progress.counted("Replaying", quiet=quiet, total=3) as advance:
        advance(2)
        time.sleep(lasts_s)
    return terminal.getvalue()


def test_a_bar_counts_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, lasts_s=0.5)
    assert "Replaying" in text
    assert "2/3" in text


def test_what_is_soon_done_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Replaying" not in shown(monkeypatch, lasts_s=0)


def test_a_quiet_command_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, lasts_s=0.2, quiet=True) == ""


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.counted("Replaying", quiet=False) as advance:
        advance(1)
    assert stream.getvalue() == ""


def test_an_error_inside_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with (
        pytest.raises(ValueError, match="broken"),
        progress.counted("Replaying", quiet=False, total=1),
    ):
        raise ValueError("broken")
