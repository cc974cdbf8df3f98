"""A scrubbed transcript gives the same trace, and none of its words are left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claude_logs import SMALL, Transcript, asked, said, thought, used
from scrubbing import Logs, assert_same_trace, kept_words, trace_of, words, words_in_place

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = {b"planks", b"mend", b"splendid", b"secret", b"harbour", b"lanterns"}


def write(folder: Path) -> None:
    """Write a session with a sub-agent, thinking, a compaction, attachments and a search."""
    place = folder / "projects" / "-home-me-boats"
    log = Transcript(folder.name)
    log.folder = "/home/me/harbour"
    log.listing()
    log.user("mend the splendid boat")
    log.response("m1", thought("secret planks"), asked("c1", planks=["harbour"], secret=1))
    log.tool("c1", [said("planks are wet")], toolUseResult={"stdout": "planks secret"})
    log.note("file", filename="/home/me/lanterns", content={
        "type": "text",
        "file": {"filePath": "/home/me/lanterns", "content": "planks\nmend", "startLine": 3},
    })  # fmt: skip
    log.note("queued_command", prompt="mend lanterns", origin={"kind": "task-notification"})
    log.note("hook_additional_context", content=["secret harbour"])
    kept = log.response("m2", said("splendid"), usage=used(5, 900, 400))
    log.books(type="summary", summary="mend planks")
    log.compact([kept], "mended planks", secret="splendid")
    search = {"type": "server_tool_use", "id": "w1", "name": "search", "input": {"q": "lanterns"}}
    found = {"type": "web_search_result", "title": "lanterns", "url": "https://harbour.example"}
    result = {"type": "web_search_tool_result", "tool_use_id": "w1", "content": [found]}
    log.user("more planks")
    log.response("m3", search, result, said("splendid lanterns"))
    log.write(place)
    sub = Transcript(folder.name, agent="a1", model=SMALL)
    sub.user("look for lanterns")
    sub.response("m4", said("planks"))
    inner = place / folder.name / "subagents"
    path = sub.write(inner, "agent-a1.jsonl")
    path.with_suffix(".meta.json").write_text('{"agentType":"scout","description":"mend planks"}')


def test_a_scrubbed_transcript_gives_the_same_trace(tmp_path: Path) -> None:
    write(tmp_path / "in")
    name = f"claude:{tmp_path / 'in'}"
    before = Logs(name)
    found = before.scrubbed(tmp_path / "out")
    after = f"claude:{tmp_path / 'out'}"
    assert_same_trace(trace_of(name), trace_of(after))
    kept = kept_words(before, [original for original, _ in found])
    for (_, original), (_, copy) in found:
        assert words_in_place(original, copy) <= kept
        assert not SECRETS & words(copy)
