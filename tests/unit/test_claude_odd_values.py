"""Any value of a transcript may be of any type: no traceback, and no other file is lost."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.ingest.claude import calls, paths
from claude_logs import (
    EPOCH_US,
    MODEL,
    Transcript,
    asked,
    compact,
    messages,
    read,
    said,
    thought,
    told,
    used,
    words,
)
from odd_values import places, replaced

if TYPE_CHECKING:
    from pathlib import Path

ODD = (
    None, True, -1, 0, 3.5, 2**63, 10**30, 1e300, "", "x", "\ud800", [], {}, [None], ["x"], [[1]],
    {"a": {"b": 1}}, {"type": 5}, [{"type": "text", "text": 5}], [{"type": "tool_use", "id": {}}],
    [{"type": "image", "source": {"type": "base64", "data": 5}}],
)  # fmt: skip
EACH = 4
"""Odd values that each place gets, of those above."""
PICTURE = {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo=" * 9}}
TEXT_FILE = {"type": "text", "file": {"filePath": "/x", "content": "a\nb", "startLine": 3}}
FOUND = {"type": "web_search_result", "title": "t", "encrypted_content": "ZZ" * 50}


def voyage() -> Transcript:
    """Return a session with a line of each kind that is known."""
    log = Transcript()
    log.listing()
    log.user("tie it")
    log.response("m1", thought(), asked("c1", x={"y": [1]}), asked("c2"), usage=used(5, 900, 0))
    log.tool("c1", [said("a"), PICTURE])
    log.tool("c2", "b")
    log.note("task_reminder", content=[])
    log.note("date_change", newDate="2026-03-02")
    log.note("file", filename="/x", content=TEXT_FILE)
    log.note("queued_command", prompt=[said("hi")], origin={"kind": "task-notification"})
    kept = log.response("m2", said("done"), usage=used(5, 100, 900, 3))
    log.books(type="mode", mode="x")
    log.line("system", subtype="api_error", error={"status": 500}, retryAttempt=1)
    log.compact([kept], preservedSegment={"headUuid": kept, "anchorUuid": "q", "tailUuid": kept})
    log.user("go on", forkedFrom={"sessionId": "s0", "messageUuid": "u"})
    search = {"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {"query": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "w1", "content": [FOUND]}
    log.response("m3", {"type": "redacted_thinking", "data": "QUJD" * 9}, search, result)
    refused = {"id": "u-1", "role": "assistant", "model": "<synthetic>", "content": [said("no")]}
    log.line("assistant", message=refused, isApiErrorMessage=True)
    inner = {"id": "m8", "role": "assistant", "model": MODEL, "content": [said("x")]}
    mirrored = {"type": "assistant", "uuid": "p1", "message": {**inner, "usage": used()}}
    log.line("progress", data={"type": "agent_progress", "agentId": "a9", "message": mirrored})
    log.user("deck")
    log.response("m4", said("y"))
    return log


@pytest.mark.parametrize("number", range(len(voyage().lines)))
def test_no_odd_value_loses_another_file(number: int, tmp_path: Path) -> None:
    """Nor a call but those whose own line it is in."""
    log = voyage()
    good = Transcript("good")
    good.user("hi")
    good.response("g1")
    other = good.write(tmp_path)
    path = tmp_path / "odd.jsonl"
    record = json.loads(log.lines[number])
    random_values = random.Random(number)
    for place in places(record):
        for value in random_values.sample(ODD, EACH):
            lines = log.lines.copy()
            lines[number] = json.dumps(replaced(record, place, value)).encode()
            path.write_bytes(b"\n".join(lines))
            found, _ = read(path, other, strict=False)
            assert [call.start_us for call in found if call.session == "good"], (place, value)
            assert sum(call.session != "good" for call in found) >= 4, (place, value)
            for call in found:
                assert call.end_us >= call.start_us >= EPOCH_US - 1_000_000, (place, value)
            paths.looks_like(path, path.read_bytes())
            assert {*calls.parts([path, other])[0]} <= {path, other}


@pytest.mark.parametrize("damage", [b"\\ud83d", b"\xff\xfe"])
def test_damaged_characters_cost_neither_call_nor_message(damage: bytes, tmp_path: Path) -> None:
    """Clients that cut text leave half a character behind."""
    log = Transcript()
    log.user("tie @@ it")
    log.response("m1", said("cut @@ off"), asked("c1"))
    log.tool("c1", "rope @@ end")
    log.response("m2")
    log.lines = [line.replace(b"@@", damage) for line in log.lines]
    found, notes = read(log.write(tmp_path))
    assert notes.counts["calls"] == 2
    first, second, third = messages(found[1].prompt)
    assert first["content"][0]["text"].startswith("tie ")
    assert [block["type"] for block in second["content"]] == ["text", "tool_use"]
    assert third["content"][0]["content"].endswith(" end")


@pytest.mark.parametrize("depth", [300, 5_000, 100_000])
def test_what_is_nested_too_deeply_costs_its_own_line_only(depth: int, tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", said("so"), asked("c1"))
    log.tool("c1", "@@")
    log.response("m2")
    deep = b"[" * depth + b"]" * depth
    log.lines = [line.replace(b'"@@"', deep) for line in log.lines]
    found, _ = read(log.write(tmp_path), strict=False)
    assert [call.output_tokens for call in found] == [50, 50]
    assert words(found[1].prompt)[:2] == ["user: tie it", "assistant: so | c1"]


@pytest.mark.parametrize("parent", ["itself", "its child", "nobody"])
def test_circles_of_parents_and_lost_ones(parent: str, tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", said("so"))
    to = {"itself": "s1-0003", "its child": "s1-0004", "nobody": "gone"}[parent]
    log.user("again", parentUuid=to)
    log.response("m2")
    found, notes = read(log.write(tmp_path))
    assert words(found[1].prompt) == ["user: tie it", "assistant: so", "user: again"]
    assert notes.counts["lines whose parent is missing"] == 1


def test_one_id_on_two_lines_is_the_first_of_them(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", said("so"))
    log.user("again")
    log.user("other words", uuid="s1-0003", parentUuid="s1-0002")
    log.response("m2")
    found, notes = read(log.write(tmp_path))
    assert words(found[1].prompt) == ["user: tie it", "assistant: so", "user: again"]
    assert notes.counts["repeated lines"] == 1


def test_a_line_of_many_megabytes(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", asked("c1"))
    log.tool("c1", "planks " * 1_000_000)
    log.response("m2")
    found, notes = read(log.write(tmp_path))
    assert not notes.skipped
    assert len(messages(found[1].prompt)[2]["content"][0]["content"]) == 7_000_000


def test_a_line_that_is_longer_than_any_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv_trace.ingest.reading.MAX_LINE", 10_000)
    log = Transcript()
    log.user("tie it")
    log.response("m1", asked("c1"))
    log.tool("c1", "planks " * 10_000)
    log.response("m2")
    found, notes = read(log.write(tmp_path), strict=False)
    assert len(found) == 2
    assert notes.skipped == {"line too long": 1}


def test_a_time_that_is_lost_is_the_last_one_known(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1")
    log.wait(60)
    log.user("again")
    log.response("m2", timestamp=None)
    log.raw(compact({"type": "summary", "summary": "x"}))
    found, _ = read(log.write(tmp_path))
    assert found[1].time_source == "order_only"
    assert EPOCH_US + 60_000_000 <= found[1].start_us < EPOCH_US + 61_000_000


def test_answers_keep_their_call(tmp_path: Path) -> None:
    """The answer to a call is known by it, though other fields that tell are gone."""
    log = Transcript()
    log.user("tie both")
    first = log.model_line("m1", asked("c1"), used())
    second = log.model_line("m1", asked("c2"), used())
    log.user([told("c1", "one")], parentUuid=first)
    log.user([told("c2", "two")], parentUuid=second)
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert words(found[1].prompt) == ["user: tie both", "assistant: c1 | c2", "user: one | two"]
