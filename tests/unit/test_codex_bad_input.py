"""Codex logs that lie: what is whole is read, what is not is counted, and nothing stops it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.codex import calls
from agentkv_trace.notes import Notes
from codex_logs import Log, asked, read, said, thought, told, words, zstd

if TYPE_CHECKING:
    from pathlib import Path


def good(number: int = 1, version: str = "0.171.0") -> Log:
    log = Log(version, number).meta().context().user("go").item(asked("a")).usage(100)
    return log.item(told("a")).item(said("assistant", "ok")).usage(120)


BAD = {
    "empty file": (b"", "empty file"),
    "NULs": (b"\0" * 4096 + b"\n", "line of NUL bytes"),
    "text": (b"hello\nworld\n", "damaged line"),
    "cut zstd": (zstd(good(2).data)[:60], "compressed file breaks off"),
    "bytes": (bytes(range(256)) * 9, "damaged line"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_never_loses_the_others(tmp_path: Path, name: str) -> None:
    data, reason = BAD[name]
    bad = tmp_path / "rollout-bad.jsonl"
    bad.write_bytes(data)
    notes = Notes()
    found = read(bad, good().save(tmp_path), bad, good(3).save(tmp_path), notes=notes)
    assert len(found) == 4
    assert notes.counts["files"] == 3
    assert notes.counts["sessions"] == 2
    assert notes.skipped[reason] >= 1
    assert notes.examples[reason][0].startswith(str(bad))
    with pytest.raises(InputError, match=str(bad)):
        read(bad, notes=Notes(strict=True))


def test_a_file_that_cannot_be_opened_is_counted(tmp_path: Path) -> None:
    notes = Notes()
    gone = tmp_path / "rollout-gone.jsonl"
    assert len(read(gone, good().save(tmp_path), notes=notes)) == 2
    assert notes.skipped == {"unreadable file": 1}


def test_damage_within_a_file_costs_only_the_damaged_lines(tmp_path: Path) -> None:
    log = Log().meta().context().user("go")
    record = json.dumps({"timestamp": log.at, "type": "response_item"}).encode()[:-1]
    log.raw(b"\0" * 300).raw(record + b', "payload": {"type": "mess')
    log.raw(record + b'\xff\xfe"}').raw(b"[]").item(asked("a"))
    log.usage(100).item(told("a"))
    torn = log.lines.pop()
    log.raw(torn[:40] + torn).item(said("assistant", "one\u2028two")).usage(120)
    path = log.save(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n")[:-2])
    notes = Notes()
    found = read(path, notes=notes)
    assert [c.logged_prompt_tokens for c in found] == [100, 120]
    assert words(found[1].path) == ["go", "a", "a=fine", "one\u2028two"]
    assert notes.skipped == {
        "line of NUL bytes": 1,
        "damaged line": 3,
        "line is no JSON object": 1,
    }


def test_a_file_that_begins_with_damage_still_has_its_thread(tmp_path: Path) -> None:
    log = good()
    log.lines.insert(0, b'{"timestamp":"20')
    (first, _) = read(log.save(tmp_path), notes=Notes())
    assert first.session == log.thread


def test_a_file_without_its_first_record_is_named_by_its_file(tmp_path: Path) -> None:
    log = good()
    del log.lines[0]
    (first, _) = read(log.save(tmp_path))
    assert first.session == log.thread


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    log = good()
    log.lines.insert(3, b" " * ((64 << 20) + 1))
    notes = Notes()
    assert len(read(log.save(tmp_path), notes=notes)) == 2
    assert notes.skipped == {"line too long": 1}


def test_one_thread_in_two_files_is_read_once(tmp_path: Path) -> None:
    log = good()
    short = log.save(tmp_path / "one")
    log.user("more").item(said("assistant", "yes")).usage(150)
    notes = Notes(strict=True)
    assert len(read(short, log.save(tmp_path / "other"), short, notes=notes)) == 3
    assert notes.counts["files of a thread that another file holds"] == 1
    assert notes.counts["files"] == 2


def test_counts_and_progress(tmp_path: Path) -> None:
    paths = [good().save(tmp_path), good(2).save(tmp_path, "rollout-two.jsonl.zst")]
    notes = Notes(strict=True)
    seen: list[int] = []
    assert len(list(calls.read(paths, notes, seen.append))) == 4
    size = sum(path.stat().st_size for path in paths)
    assert sum(seen) == notes.counts["bytes"] == size
    assert notes.counts["lines"] == sum(len(good().lines) for _ in paths)
    assert {name: notes.counts[name] for name in ("files", "sessions", "calls")} == {
        "files": 2,
        "sessions": 2,
        "calls": 4,
    }


RECORDS = [
    json.loads(line)
    for log in (
        good()
        .item(thought())
        .put("compacted", {"message": "m", "replacement_history": [said("user", "s")]}),
        Log("0.128.0", 2).meta().context().user("go").count().item(asked("a")).count(10, 2, 0, 1),
        Log(number=3)
        .meta(history_base={"thread_id": "x"}, source={"subagent": {"thread_spawn": {}}})
        .event("thread_rolled_back", num_turns=1)
        .event("thread_settings_applied", thread_settings={"model": "m"})
        .put("inter_agent_communication", {"content": "c"})
        .item({"type": "message", "role": "user", "content": [{"image_url": "data:x,y"}]}),
    )
    for line in log.lines
] + [{"id": "x", "timestamp": "t"}, {"record_type": "state"}, said("user", "bare"), asked("b")]

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """Return a record in which one value, wherever it is, was replaced by anything."""

    def spoil(value: Any) -> Any:
        parts = (
            list(value.items() if isinstance(value, dict) else enumerate(value))
            if isinstance(value, dict | list)
            else []
        )
        if not parts or draw(st.integers(0, 3)) == 0:
            return draw(anything)
        key, part = draw(st.sampled_from(parts))
        changed = {**value} if isinstance(value, dict) else [*value]
        changed[key] = spoil(part)
        return changed

    record = draw(st.sampled_from(RECORDS))
    return spoil(record) if draw(st.booleans()) else record


@given(records=st.lists(spoiled(), max_size=25))
def test_no_record_of_any_shape_stops_the_reading(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("logs") / "rollout-x.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    for call in calls.read([path], Notes()):
        assert call.end_us >= call.start_us >= 0
        assert call.kind
        if call.logged_prompt_tokens is not None:
            assert 0 <= (call.logged_cached_tokens or 0) <= call.logged_prompt_tokens
