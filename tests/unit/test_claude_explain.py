"""Breaks in Claude Code's traces are told by what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.claude import calls
from agentkv_trace.notes import Notes
from agentkv_trace.report.breaks.build import build_explanation
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.tokenizers import load
from claude_logs import Transcript, said, used

if TYPE_CHECKING:
    from pathlib import Path


def kinds(log: Transcript, folder: Path) -> list[str]:
    """Return the classes of breaks in a trace with the parts of its prompts."""
    with TraceBuilder(load("bytes"), layout=True) as builder:
        for call in calls.read([log.write(folder)], Notes()):
            builder.add(call)
        return [one.break_class for one in build_explanation(builder.finish({})).breaks]


def begun() -> Transcript:
    log = Transcript()
    log.user("tie it to the pier " * 40)
    log.response("m1", said("so be it " * 40), usage=used(0, 20_200, 0))
    log.user("and now " * 40)
    log.response("m2", said("so be it again " * 40), usage=used(0, 300, 20_200))
    return log


def test_a_session_that_goes_on_has_no_break(tmp_path: Path) -> None:
    assert kinds(begun(), tmp_path) == []


def test_a_new_process_with_another_head(tmp_path: Path) -> None:
    log = begun()
    log.books(type="mode", mode="normal")
    log.user("more")
    log.response("m3", usage=used(0, 20_700, 0))
    assert kinds(log, tmp_path) == ["head_changed"]


def test_a_compaction_folds_the_history(tmp_path: Path) -> None:
    log = begun()
    log.compact([], "so far " * 40)
    log.user("more")
    log.response("m3", usage=used(0, 500, 20_000))
    assert set(kinds(log, tmp_path)) == {"history_folded"}
