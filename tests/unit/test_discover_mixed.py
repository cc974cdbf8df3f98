"""A folder with logs of many sources under any names is sorted out by content."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from agentkv_trace.ingest import discover
from claude_logs import Transcript
from gateway_logs import generation, lines, payload, span, spans, user
from mini_logs import answer, mini, system, write
from mini_logs import user as asked

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def transcript() -> Transcript:
    log = Transcript()
    log.user("tie it")
    log.response("m1")
    return log


def steps() -> dict[str, object]:
    step = {"action": "ls", "observation": "", "response": "ok", "query": [system(), asked("hi")]}
    return {"trajectory": [step], "history": [], "info": {"model_stats": {}}, "environment": "x"}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Return a folder of seven sources whose names say nothing of them."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    rollout = next((SAMPLES / "codex").rglob("*.jsonl"))
    shutil.copy(rollout, folder / "one.jsonl")
    shutil.copy(next((SAMPLES / "opencode").iterdir()), folder / "two.json")
    transcript().write(folder, "three.jsonl")
    write(folder, "four.json", mini([system(), asked("mend it"), answer(1, "ok")]))
    write(folder, "five.json", steps())
    lines(folder, "six.jsonl", payload(1, [user("hi")]))
    lines(folder, "seven.json", spans(span(1, {"gen_ai.operation.name": "chat"})))
    shutil.copytree(SAMPLES / "openhands", folder / "eight")
    return folder


def names(found: discover.Found) -> dict[str, list[str]]:
    return {
        source.name: sorted(path.name for path in paths) for source, paths in found.logs.items()
    }


def test_sources_are_told_by_content(mixed: Path) -> None:
    found = discover.named_logs([str(mixed)])
    sorted_out = names(found)
    conversations = sorted_out.pop("openhands")
    assert sorted_out == {
        "codex": ["one.jsonl"],
        "opencode": ["two.json"],
        "claude": ["three.jsonl"],
        "mini-swe": ["four.json"],
        "swe-agent": ["five.json"],
        "gateways": ["seven.json", "six.jsonl"],
    }
    assert conversations
    assert found.unknown == []


def test_each_file_by_itself_is_told_too(mixed: Path) -> None:
    files = [str(path) for path in sorted(mixed.iterdir()) if path.is_file()]
    one_by_one = names(discover.named_logs(files))
    whole = names(discover.named_logs([str(mixed)]))
    whole.pop("openhands")
    assert one_by_one == whole


def test_what_is_not_known_is_told_with_its_shape(mixed: Path) -> None:
    (mixed / "notes.txt").write_text("dear diary")
    (mixed / "other.json").write_text(json.dumps({"boats": 3}))
    (mixed / "empty.log").touch()
    (mixed / "noise.db").write_bytes(b"\0\1\2" * 9)
    (mixed / "picture.png").write_bytes(b"\x89PNG")
    connection = sqlite3.connect(mixed / "cookies.db")
    connection.execute("create table cookies (id)")
    connection.commit()
    connection.close()
    found = discover.named_logs([str(mixed)])
    told = {Path(line.partition(":")[0]).name: line for line in found.unknown}
    assert sorted(told) == ["cookies.db", "empty.log", "noise.db", "notes.txt", "other.json"]
    assert "text that is not JSON" in told["notes.txt"]
    assert "diary" not in told["notes.txt"]
    assert "JSON of another shape" in told["other.json"]
    assert "NUL or binary bytes" in told["noise.db"]
    assert "nothing" in told["empty.log"]
    assert found.unusable == []


def test_raw_requests_beside_agents_logs_are_named_and_not_read(mixed: Path) -> None:
    body = {"model": "sail-1", "messages": [user("hi")]}
    lines(mixed, "raw.jsonl", {"session_id": "a", "request": body, "start_time": 1_790_000_000})
    found = discover.named_logs([str(mixed)])
    assert "requests" not in names(found)
    (told,) = found.unknown
    assert told.endswith(f"name requests:{mixed / 'raw.jsonl'} to read it")
    assert names(discover.named_logs([f"requests:{mixed / 'raw.jsonl'}"])) == {
        "requests": ["raw.jsonl"]
    }


def test_logs_that_look_like_two_sources_go_to_the_right_one(tmp_path: Path) -> None:
    """Gateways' records hold whole requests, and trajectories hold messages, as raw logs do."""
    body = {"model": "sail-1", "messages": [user("hi")]}
    pair = {"request": {"url": "https://sea.example/v1/messages", "body": body}, "response": {}}
    # A first record longer than what is looked at, with marks of others inside its messages.
    used = {"type": "tool_use", "input": {"observations": [], "call_type": "x"}}
    said = {"role": "assistant", "content": [used, {"type": "text", "text": "a" * 600_000}]}
    long = {"model": "sail-1", "messages": [user("hi"), said, user("more")]}
    expected = {
        "gateways": [
            lines(tmp_path, "a.jsonl", payload(1, [user("hi")])),
            lines(tmp_path, "b.jsonl", payload(2, "redacted-by-litellm")),
            lines(tmp_path, "c.jsonl", pair),
            lines(tmp_path, "h.jsonl", payload(1, long["messages"])),
            lines(
                tmp_path, "i.jsonl", {"trace": {}, "observations": [generation(1, "a" * 600_000)]}
            ),
        ],
        "mini-swe": [write(tmp_path, "d.json", mini([system(), asked("a"), answer(1, "ok")]))],
        "swe-agent": [write(tmp_path, "e.json", steps())],
        "requests": [
            lines(tmp_path, "f.jsonl", {"request": body, "start_time": 1_790_000_000}),
            lines(tmp_path, "g.jsonl", {"start_time": 1_790_000_000, "request": long}),
        ],
    }
    for source, files in expected.items():
        for path in files:
            assert list(names(discover.named_logs([str(path)]))) == [source]


def test_what_belongs_to_a_log_is_not_left_over(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "openhands", tmp_path / "openhands")
    shutil.copytree(SAMPLES / "claude", tmp_path / "claude")
    found = discover.named_logs([str(tmp_path)])
    assert set(names(found)) == {"openhands", "claude"}
    # Nor are the small files beside sub-agents logs of their own.
    assert found.unknown == []


def test_a_compressed_copy_of_a_log_is_not_read_beside_it(mixed: Path) -> None:
    (mixed / "three.jsonl.gz").write_bytes(b"\x1f\x8b")
    found = discover.named_logs([str(mixed)])
    assert names(found)["claude"] == ["three.jsonl"]


def test_a_folder_without_any_log_is_an_error_still(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hi")
    with pytest.raises(discover.InputError, match="no logs below this folder"):
        discover.named_logs([str(tmp_path)])
