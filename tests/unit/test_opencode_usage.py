"""OpenCode's counts and stamps, version by version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.opencode.records import id_ms, version_of
from agentkv_trace.ingest.opencode.usage import usage_of
from agentkv_trace.notes import Notes
from opencode_logs import START_MS, Log, begin, database, ident, read, said, tokens, tool

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = (1, 2, 27), (1, 18, 33)


def counted(fresh: int, output: int, reasoning: int, read: int, write: int = 0, **more: int) -> Any:
    cache = {"read": read, "write": write}
    return {"input": fresh, "output": output, "reasoning": reasoning, "cache": cache, **more}


@pytest.mark.parametrize(
    ("data", "version", "expected"),
    [
        # The total tells whether output includes reasoning, whatever the version.
        (counted(100, 50, 10, 900, total=1050), NEW, (1000, 900, 50, 10)),
        (counted(100, 40, 10, 900, total=1050), OLD, (1000, 900, 50, 10)),
        (counted(100, 40, 10, 900, 20, total=1070), OLD, (1020, 900, 50, 10)),
        # Before caches were written to, the total left them out.
        (counted(100, 50, 10, 900, 20, total=1050), OLD, (1020, 900, 50, 10)),
        # Without a total, the version does.
        (counted(100, 50, 10, 900), OLD, (1000, 900, 50, 10)),
        (counted(100, 40, 10, 900), NEW, (1000, 900, 50, 10)),
        # A total that fits neither way tells nothing.
        (counted(100, 40, 10, 900, total=5), NEW, (1000, 900, 50, 10)),
        # Input is without the cached part: nothing is subtracted again.
        (counted(3, 5, 0, 900), NEW, (903, 900, 5, 0)),
        (counted(-20, 5, 0, 900), NEW, (900, 900, 5, 0)),
    ],
)
def test_tokens(data: Any, version: Any, expected: tuple[int, ...]) -> None:
    assert usage_of(data, version) == expected


@pytest.mark.parametrize(
    "data",
    [counted(0, 0, 0, 0), {}, None, "x", {"input": float("nan")}, {"input": True, "cache": [1]}],
)
def test_nothing_counted_is_no_usage(data: Any) -> None:
    assert usage_of(data, NEW) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1.2.27", (1, 2, 27)),
        ("0.0.0-dev-2026", NEW),
        ("local", NEW),
        (None, NEW),
        ("1.18", (1, 18)),
    ],
)
def test_versions(name: str | None, expected: tuple[int, ...]) -> None:
    assert version_of(name) == expected


@pytest.mark.parametrize("kind", ["msg", "prt", "ses", "evt"])
def test_times_inside_ids(kind: str) -> None:
    day = 24 * 3600 * 1000
    for ms in (START_MS, START_MS + 17, START_MS + 900 * day):
        # Any time within a year of the true one will do to tell which cycle it is.
        assert id_ms(ident(kind, ms), ms - 300 * day) == ms
        assert id_ms(ident(kind, ms), ms + 300 * day) == ms
    assert id_ms("msg_not-hex", START_MS) is None
    assert id_ms("", START_MS) is None


def only(tmp_path: Path, log: Log, notes: Notes | None = None) -> Any:
    (call,) = read(database(tmp_path / "opencode.db", log), notes=notes)
    return call


def test_usage_of_a_call(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.assistant("a", used=tokens(7000, 50, cached=6400, reasoning=20))
    call = only(tmp_path, log)
    assert (call.logged_prompt_tokens, call.logged_cached_tokens) == (7000, 6400)
    assert (call.output_tokens, call.usage_source) == (50, "logged")


def test_the_step_tells_more_than_the_message(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.assistant("a", used=tokens(7000))
    log.messages[-1][0]["tokens"] = tokens(99)
    assert only(tmp_path, log).logged_prompt_tokens == 7000


def test_usage_of_the_message_where_the_step_has_none(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.assistant(begin(), said("a"), steps=False, used=tokens(7000))
    assert only(tmp_path, log).logged_prompt_tokens == 7000


# Times


def times(call: Any) -> tuple[int, int, str]:
    return call.start_us // 1000 - START_MS, call.end_us // 1000 - START_MS, call.time_source


def test_a_call_ends_with_its_text_not_with_its_message(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.assistant(said("a", time={"start": START_MS + 2300, "end": START_MS + 2900}), took_ms=9000)
    assert times(only(tmp_path, log)) == (2000, 2900, "logged")


def test_a_call_ends_when_its_last_tool_starts(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    ran = {"start": START_MS + 3100, "end": START_MS + 60_000}
    log.assistant(
        said("a", time={"start": START_MS + 2300, "end": START_MS + 2900}),
        tool("c1", time=ran),
        took_ms=60_000,
    )
    assert times(only(tmp_path, log)) == (2000, 3100, "logged")


def test_a_version_that_stamps_tools_anew_is_not_believed(tmp_path: Path) -> None:
    log = Log(version="1.14.41")
    log.user("go")
    log.assistant(tool("c1", time={"start": START_MS + 60_000, "end": START_MS + 60_001}))
    start, end, source = times(only(tmp_path, log))
    assert (start, source) == (2000, "logged")
    assert 2000 <= end <= 2010  # the part's own id


def test_without_stamps_the_ids_tell(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.assistant(begin(), said(""), steps=False, used={}, took_ms=None, finish=None)
    assert times(only(tmp_path, log)) == (2000, 2001, "estimated")


def test_cached_above_the_prompt_is_clamped_and_counted(tmp_path: Path) -> None:
    # Cannot come from counts that exclude the cache, but a negative input would.
    notes = Notes()
    log = Log()
    log.user("go")
    log.assistant("a", used=counted(-50, 5, 0, 900))
    call = only(tmp_path, log, notes)
    assert call.logged_cached_tokens == call.logged_prompt_tokens == 900
