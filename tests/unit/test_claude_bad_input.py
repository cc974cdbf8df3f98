"""Claude Code: torn, padded, doubled and foreign lines; where its transcripts are."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.claude import paths
from claude_logs import Transcript, asked, compact, read, words


def conversation(session: str = "s1") -> Transcript:
    log = Transcript(session)
    log.books(type="queue-operation", operation="enqueue", content="tie it")
    log.user("tie it")
    log.response("m1", asked("t1"))
    log.tool("t1", "a rope}{")
    log.response("m2")
    log.user("more")
    log.response("m3")
    return log


def counted(log: Transcript, folder: Path) -> tuple[int, dict[str, int]]:
    found, notes = read(log.write(folder), strict=False)
    return len(found), dict(notes.skipped)


def test_two_records_on_one_line_are_two(tmp_path: Path) -> None:
    log = conversation()
    log.lines[2:4] = [log.lines[2] + log.lines[3]]
    assert counted(log, tmp_path) == (3, {})


def test_behind_a_torn_record_the_next_is_found(tmp_path: Path) -> None:
    log = conversation()
    log.lines[3:5] = [log.lines[3][:150] + log.lines[4]]
    assert counted(log, tmp_path) == (3, {"damaged line": 1})


def test_parts_of_a_torn_record_are_no_records(tmp_path: Path) -> None:
    log = conversation()
    log.lines[2] = log.lines[2][:-200]
    assert counted(log, tmp_path) == (2, {"damaged line": 1})


def test_nul_bytes_and_empty_lines(tmp_path: Path) -> None:
    log = conversation()
    log.lines[2] = b"\0" * 50 + log.lines[2]
    log.lines[4:4] = [b"\0" * 4096, b"", b"   "]
    assert counted(log, tmp_path) == (3, {"line of NUL bytes": 1})


@pytest.mark.parametrize(
    "line", [b"[1, 2]", b"not json", b'"words"', b'{"a": 1}', b"\xff\xfe{", b"{" * 5000]
)
def test_lines_that_are_no_records_never_stop_the_rest(tmp_path: Path, line: bytes) -> None:
    log = conversation()
    log.lines.insert(3, line)
    found, _ = counted(log, tmp_path)
    assert found == 3


def test_a_file_cut_at_any_byte_gives_its_whole_calls(tmp_path: Path) -> None:
    data = conversation().write(tmp_path).read_bytes()
    for end in range(0, len(data), 97):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(data[:end])
        found, _ = read(path, strict=False)
        assert len(found) == sum(map(_is_response, data[:end].split(b"\n")))


def _is_response(line: bytes) -> bool:
    try:
        return json.loads(line)["type"] == "assistant"
    except ValueError:
        return False


def test_fields_of_other_types_are_taken_as_missing(tmp_path: Path) -> None:
    log = conversation()
    odd = {"parentUuid": 7, "sessionId": None, "type": "user", "uuid": "x", "message": [1]}
    odd |= {"timestamp": 12, "isSidechain": "yes", "version": {}, "toolUseResult": None}
    log.raw(compact(odd))
    log.raw(compact({**odd, "type": "assistant", "uuid": "y", "message": {"id": 5, "usage": 3}}))
    log.raw(
        compact({**odd, "type": "assistant", "uuid": "z", "message": {"id": "m9", "content": 1}})
    )
    log.raw(compact({**odd, "type": "attachment", "uuid": "w", "attachment": "text"}))
    log.raw(compact({**odd, "type": "system", "uuid": "v", "subtype": "compact_boundary"}))
    found, _ = read(log.write(tmp_path))
    assert len(found) >= 4


def test_a_lost_parent_is_the_line_before(tmp_path: Path) -> None:
    log = conversation()
    del log.lines[3]
    found, notes = read(log.write(tmp_path))
    assert notes.counts["lines whose parent is missing"] == 1
    assert words(found[1].prompt) == ["user: tie it", "assistant: t1"]


def test_strict_stops_at_a_damaged_line(tmp_path: Path) -> None:
    log = conversation()
    log.lines.insert(3, b'{"parentUuid":"s1')
    with pytest.raises(InputError, match=r"s1\.jsonl:4: damaged line"):
        read(log.write(tmp_path))


def test_one_bad_file_loses_no_other(tmp_path: Path) -> None:
    good = conversation().write(tmp_path)
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    missing = tmp_path / "missing.jsonl"
    found, notes = read(empty, missing, good, strict=False)
    assert len(found) == 3
    assert dict(notes.skipped) == {"empty file": 1, "unreadable file": 1}


def test_compressed_transcripts(tmp_path: Path) -> None:
    path = conversation().write(tmp_path, "s1.jsonl.gz")
    path.write_bytes(gzip.compress(path.read_bytes()))
    found, _ = read(path)
    assert len(found) == 3
    assert paths.find(tmp_path) == [path]


# Where they are


def test_transcripts_are_told_by_their_content(tmp_path: Path) -> None:
    session = conversation().write(tmp_path / "-home-me-boats")
    agent = Transcript(agent="a1")
    agent.user("go")
    agent.response("c1")
    child = agent.write(
        tmp_path / "-home-me-boats" / "s1" / "subagents" / "workflows" / "w1", "x.jsonl"
    )
    journal = child.with_name("journal.jsonl")
    journal.write_text('{"type":"started","key":"v2:00","agentId":"a1"}\n')
    (tmp_path / "history.jsonl").write_text('{"display":"tie it","timestamp":1,"project":"/"}\n')
    (tmp_path / "notes.txt").write_bytes(session.read_bytes())
    assert paths.find(tmp_path) == sorted([session, child])


def test_a_transcript_may_begin_with_books_and_a_long_message(tmp_path: Path) -> None:
    log = Transcript()
    for _ in range(20):
        log.books(type="file-history-snapshot", snapshot={})
    log.user("x" * 400_000)
    log.response("m1")
    path = log.write(tmp_path)
    with path.open("rb") as file:
        assert paths.looks_like(path, file.read(1 << 18))


def test_other_json_lines_are_no_transcripts(tmp_path: Path) -> None:
    for head in (
        b'{"type":"user","text":"hi"}',
        b'{"messages":[]}',
        b"",
        b"hello",
        b'{"type":"summary"}',
    ):
        assert not paths.looks_like(tmp_path / "a.jsonl", head)


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    outside = conversation().write(tmp_path / "outside")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.jsonl").symlink_to(outside)
    os.mkfifo(inside / "pipe.jsonl")
    assert paths.find(inside) == []


def test_roots_follow_the_environment() -> None:
    assert paths.roots({"HOME": "/h"}) == [
        Path("/h/.claude/projects"),
        Path("/h/.config/claude/projects"),
    ]
    assert paths.roots({"HOME": "/h", "XDG_CONFIG_HOME": "/x"})[1] == Path("/x/claude/projects")
    named = paths.roots({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/a, /b ,,/a"})
    assert named == [Path("/a/projects"), Path("/b/projects")]
