"""A folder with logs of many sources under any names is sorted out by content."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from agentkv_trace.ingest import discover
from agentkv_trace.ingest.registry import SOURCES, Source
from claude_logs import Transcript
from gateway_logs import lines, payload, span, spans, user
from mini_logs import answer, mini, system, write
from mini_logs import user as asked

SAMPLES = Path(__file__).parents[2] / "sample_traces"
ALL = (
    Source("codex", "Codex CLI", "agentkv_trace.ingest.codex"),
    Source("claude", "Claude Code", "agentkv_trace.ingest.claude"),
    Source("mini-swe", "mini-swe-agent", "agentkv_trace.ingest.mini_swe"),
    Source("swe-agent", "SWE-agent", "agentkv_trace.ingest.swe_agent"),
    Source("gateways", "gateways and tracers", "agentkv_trace.ingest.gateways"),
    Source("opencode", "OpenCode", "agentkv_trace.ingest.opencode"),
    Source("openhands", "OpenHands", "agentkv_trace.ingest.openhands"),
    Source("requests", "raw request logs", "agentkv_trace.ingest.requests", generic=True),
)


@pytest.fixture(autouse=True)
def all_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know all sources, those that the table of sources has in its own order."""
    names = {source.name for source in SOURCES}
    added = tuple(source for source in ALL if source.name not in names)
    monkeypatch.setattr(discover, "SOURCES", SOURCES if not added else ALL)


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
