"""Which files are Codex logs, and which of a session's copies counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkv_trace.ingest.codex import paths
from codex_logs import Log, said


def touch(path: Path, data: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"HOME": "/home/pat"}, ["/home/pat/.codex"]),
        ({"HOME": "/home/pat", "CODEX_HOME": ""}, ["/home/pat/.codex"]),
        ({"HOME": "/h", "CODEX_HOME": "/a, /b,,/a"}, ["/a", "/b"]),
        ({"HOME": "/h", "CODEX_ROLLOUT_TRACE_ROOT": "/traces"}, ["/h/.codex", "/traces"]),
    ],
)
def test_roots(env: dict[str, str], found: list[str]) -> None:
    assert paths.roots(env) == [Path(name) for name in found]


def test_the_users_home_is_the_default() -> None:
    assert paths.roots({}) == [Path.home() / ".codex"]


def test_find_takes_rollouts_and_bundles_and_nothing_else(tmp_path: Path) -> None:
    day = tmp_path / "sessions" / "2026" / "03" / "01"
    wanted = [
        touch(day / "rollout-a.jsonl"),
        touch(day / "rollout-b.jsonl.zst"),
        touch(tmp_path / "archived_sessions" / "rollout-c.jsonl"),
        touch(tmp_path / "x" / "trace-1" / "manifest.json"),
    ]
    for name in (
        "rollout-d.jsonl.zst.tmp",
        "rollout-e.jsonl.tmp",
        "history.jsonl",
        "manifest.json",
    ):
        touch(day / name)
    touch(tmp_path / "session_index.jsonl")
    assert paths.find(tmp_path) == wanted
    assert paths.find(day) == wanted[:2]
    assert paths.find(tmp_path / "none") == []


def test_of_copies_the_active_and_the_plain_one_is_taken(tmp_path: Path) -> None:
    active, archived = tmp_path / "sessions" / "2026", tmp_path / "archived_sessions"
    touch(archived / "rollout-a.jsonl")
    touch(active / "rollout-a.jsonl.zst")
    touch(active / "rollout-b.jsonl")
    touch(active / "rollout-b.jsonl.zst")
    touch(archived / "rollout-c.jsonl")
    touch(archived / "rollout-c.jsonl.zst")
    found = [path.relative_to(tmp_path).as_posix() for path in paths.find(tmp_path)]
    assert found == [
        "sessions/2026/rollout-a.jsonl.zst",
        "sessions/2026/rollout-b.jsonl",
        "archived_sessions/rollout-c.jsonl",
    ]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = touch(tmp_path / "outside" / "rollout-a.jsonl")
    home = tmp_path / "home"
    inside = touch(home / "sessions" / "rollout-b.jsonl")
    (home / "rollout-c.jsonl").symlink_to(outside)
    (home / "rollout-d.jsonl").symlink_to(home / "gone")
    (home / "more").symlink_to(outside.parent)
    (home / "rollout-e.jsonl").symlink_to(inside)
    assert [path.name for path in paths.find(home)] == ["rollout-b.jsonl", "rollout-e.jsonl"]
    linked = tmp_path / "linked"
    linked.symlink_to(home)
    assert len(paths.find(linked)) == 2


LOG = Log().meta(base_instructions={"text": "x" * 9000}).context()
BARE = {"id": LOG.thread, "timestamp": LOG.at, "instructions": None, "git": {}}
ODD = {"payload": {}, "type": "response_item", "timestamp": LOG.at}


@pytest.mark.parametrize(
    "head",
    [
        LOG.data,
        LOG.data[:200],
        Log("0.50.0").meta().data,
        b"\xef\xbb\xbf" + LOG.data,
        b"\0" * 99 + b"\n" + LOG.data,
        LOG.data[100:],
        json.dumps(ODD).encode(),
        json.dumps(BARE).encode(),
        json.dumps(BARE, separators=(",", ":")).encode()[:110],
        b'{"type":"function_call","name":"x","arguments":"{}","call_id":"c"}\n',
    ],
)
def test_rollouts_are_told_by_their_content(head: bytes) -> None:
    assert paths.looks_like(Path("any.name"), head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\0" * 500,
        b"PAR1",
        b"hello",
        b'{"type":"user","message":{"role":"user"},"timestamp":"2026-03-01T00:00:00Z"}\n',
        b'{"role":"user","content":"hi"}\n',
        b'[{"type":"message"}]',
        json.dumps(said("user", "hi")).encode(),
        b'{"timestamp": "2026-03-01T00:00:00Z", "type": "other", "payload": {}}',
    ],
)
def test_other_files_are_not(head: bytes) -> None:
    assert not paths.looks_like(Path("rollout-x.jsonl"), head)


def test_a_bundle_is_told_by_its_manifest() -> None:
    manifest = b'{"schema_version":3,"trace_id":"t","raw_event_log":"trace.jsonl"}'
    assert paths.looks_like(Path("trace-1/manifest.json"), manifest)
    assert not paths.looks_like(Path("trace-1/manifest.json"), b'{"name":"app"}')
