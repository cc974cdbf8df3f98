"""Faults that Claude Code's transcripts are known to have, and runs of kinds that vary.

Faults, with what is right:
* usage repeated on each line of a response: one call; its last line counts
* `requestId` missing: the message's id is enough
* placeholders of output sizes: recovered from the next prompt
* the whole history written again into the file each turn: dropped by id
* a torn record with the next one on its line, NUL bytes: read on behind it
* sub-agents in files of their own, journals beside them: found, left alone
* sub-agents that replay their session (forks, asides): prompt, not calls
* sizes after a compaction that leave out the system prompt: the next usage counts
* totals of a run that know the main agent only: not usage
* the same transcript under another root, with other bytes: once
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.claude import paths
from agentkv_trace.ingest.claude.scan import Scan
from agentkv_trace.notes import Notes
from claude_logs import SMALL, Transcript, asked, compact, messages, read, said, told, used, words

if TYPE_CHECKING:
    from pathlib import Path


def test_usage_on_each_line_counts_once_and_the_last_wins(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    for block, output in ((said("a"), 1), (asked("c1"), 1), (asked("c2"), 345)):
        log.model_line("m1", block, used(3, 900, 100, output), requestId=None)
    found, _ = read(log.write(tmp_path))
    assert [(c.logged_prompt_tokens, c.logged_cached_tokens) for c in found] == [(1003, 100)]
    assert found[0].output_tokens == 345


def test_a_whole_history_written_again_each_turn_counts_once(tmp_path: Path) -> None:
    log = Transcript()
    for turn in range(4):
        log.user(f"turn {turn}")
        log.response(f"m{turn}", said(f"answer {turn}"))
        log.lines += log.lines.copy()
    found, notes = read(log.write(tmp_path))
    assert len(found) == 4
    assert notes.counts["repeated lines"] == len(log.lines) - 8
    assert len(words(found[3].prompt)) == 7


def test_journals_of_workflows_are_no_transcripts(tmp_path: Path) -> None:
    main = Transcript()
    main.user("go")
    main.response("m1")
    main.write(tmp_path / "p")
    inner = Transcript(agent="a1")
    inner.user("look")
    inner.response("m2")
    deep = tmp_path / "p" / "s1" / "subagents" / "workflows" / "w1"
    inner.write(deep, "agent-a1.jsonl")
    (deep / "journal.jsonl").write_text('{"type":"started","key":"v2:00","agentId":"a1"}\n')
    found = paths.find(tmp_path)
    assert sorted(path.name for path in found) == ["agent-a1.jsonl", "s1.jsonl"]
    calls, _ = read(*found)
    assert {(call.session, call.parent_session) for call in calls} == {("s1", None), ("a1", "s1")}


def test_sizes_that_a_compaction_tells_are_no_usage(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    kept = log.response("m1", usage=used(10, 30_000, 0))
    log.compact([kept], preTokens=5, postTokens=1)
    log.user("on")
    log.response("m2", usage=used(10, 4_000, 20_000))
    found, _ = read(log.write(tmp_path))
    assert [call.logged_prompt_tokens for call in found] == [30_010, None, 24_010]


def test_a_transcript_under_another_root_counts_once(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.response("m1")
    first = log.write(tmp_path / "a")
    log.lines = [line.replace(b'"userType"', b'"_audit":"00","userType"') for line in log.lines]
    found, notes = read(first, log.write(tmp_path / "b"))
    assert len(found) == 1
    assert notes.counts["deduplicated calls"] == 1


# Runs that end or go on in odd ways


def test_a_stream_that_broke_off_is_sent_again_but_its_error_is_not(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.model_line("m1", said("half of an answer that is rather long " * 9), used(5, 900, 0, 1))
    error: dict[str, Any] = {"id": "x", "role": "assistant", "model": "<synthetic>"}
    log.line("assistant", message=error | {"content": [said("closed")]}, isApiErrorMessage=True)
    log.user("go on")
    log.response("m2", usage=used(5, 120, 900, 40))
    found, _ = read(log.write(tmp_path))
    assert len(found) == 2
    assert [each.split(": ")[0] for each in words(found[1].prompt)] == ["user", "assistant", "user"]
    assert 60 < (found[0].output_tokens or 0) < 200


def test_a_killed_session_goes_on_with_what_the_client_said(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.response("m1", asked("c1"))
    log.tool("c1", "fine")
    log.user("Go on where you stopped.", isMeta=True)
    answer = {"id": "x", "role": "assistant", "model": "<synthetic>", "content": [said("No need.")]}
    log.line("assistant", message=answer)
    log.user("do it")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert [call.kind for call in found] == ["turn", "resume"]
    assert words(found[1].prompt)[-3:] == [
        "user: fine | Go on where you stopped.", "assistant: No need.", "user: do it",
    ]  # fmt: skip


def test_an_interrupted_call_is_answered_by_the_client(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.response("m1", asked("c1"))
    log.tool("c1", "stopped by the user", toolUseResult="Error")
    log.user([said("stopped")])
    log.user("do this instead")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert words(found[1].prompt)[-1] == "user: stopped by the user | stopped\n | do this instead"


def test_a_wide_turn_keeps_all_answers_in_the_order_they_came(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    asking = [log.model_line("m1", asked(f"c{n}"), used(10, 900, 500)) for n in range(30)]
    order = [*range(29, -1, -2), *range(0, 30, 2)]
    for n in order:
        log.tool(f"c{n}", f"told {n}", parentUuid=asking[n], sourceToolAssistantUUID=asking[n])
    log.response("m2", usage=used(10, 2000, 500))
    found, notes = read(log.write(tmp_path))
    asks, tells = messages(found[1].prompt)[1:]
    assert [block["id"] for block in asks["content"]] == [f"c{n}" for n in range(30)]
    assert [block["content"] for block in tells["content"]] == [f"told {n}" for n in order]
    assert notes.counts["cache reads lower after a wide turn"] == 1


# Compactions


def test_what_is_kept_twice_follows_the_first_summary(tmp_path: Path) -> None:
    """The second of two compactions in a row keeps what the first one kept."""
    log = Transcript()
    log.user("go")
    log.response("m1", said("one"))
    log.user("next")
    log.response("m2", said("two"))
    kept = [log.user("third"), log.response("m3", said("three"))]
    log.compact(kept, "so far")
    log.user("fourth")
    log.response("m4", said("four"))
    log.compact(kept[1:], "and on")
    log.user("fifth")
    log.response("m5")
    found, _ = read(log.write(tmp_path))
    second = found[5]
    assert (found[3].kind, second.kind) == ("compaction", "compaction")
    assert words(second.prompt)[:2] == ["user: so far\n | third", "claude compaction prompt:1290"]
    assert words(found[-1].prompt) == ["user: and on", "assistant: three", "user: fifth"]


def test_a_compaction_by_hand_without_anything_kept(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.response("m1", said("one"))
    log.compact([], "so far", trigger="manual")
    log.user("/compact", isMeta=True)
    log.user("next")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert words(found[1].prompt) == [
        "user: go", "assistant: one", "claude compaction prompt:1290",
    ]  # fmt: skip
    assert words(found[2].prompt) == ["user: so far\n | /compact\n | next"]


# Tools and agents of other kinds


def test_server_tools_are_blocks_of_the_answer(tmp_path: Path) -> None:
    log = Transcript()
    log.user("what wind")
    search = {"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {"query": "q"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "w1", "content": []}
    log.response("m1", search, result, said("north"))
    log.user("and now")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert messages(found[1].prompt)[1]["content"] == [search, result, said("north")]


def test_answers_of_mcp_tools_keep_text_and_size_pictures(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "AAAA" * 500}}
    log = Transcript()
    log.user("look")
    log.response("m1", {**asked("c1"), "name": "mcp__eyes__look"})
    log.tool("c1", [said("seen"), picture], mcpMeta={"a": 1})
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    answer = messages(found[1].prompt)[2]["content"][0]["content"]
    assert answer[0] == said("seen")
    assert answer[1]["source"]["data"] == ""


def test_hooks_and_progress_stand_in_the_tree(tmp_path: Path) -> None:
    """They are links between messages; what a hook adds is told as an attachment."""
    log = Transcript()
    log.user("go")
    log.line("progress", data={"type": "hook_progress", "hookEvent": "Stop"})
    log.response("m1", asked("c1"))
    log.line("system", subtype="stop_hook_summary", hookCount=1)
    log.tool("c1", "fine", sourceToolAssistantUUID="s1-0003")
    log.note("hook_additional_context", content=["mind the gap"])
    log.response("m2")
    found, notes = read(log.write(tmp_path))
    assert words(found[1].prompt)[:3] == ["user: go", "assistant: c1", "user: fine"]
    assert "mind the gap" in words(found[1].prompt)[3]
    assert notes.counts["attachments of unknown form"] == 1


@pytest.mark.parametrize("count", [2, 5])
def test_sub_agents_of_several_kinds_at_once(count: int, tmp_path: Path) -> None:
    main = Transcript()
    main.user("go")
    main.response("m1", *(asked(f"c{n}") for n in range(count)))
    files = [main.write(tmp_path)]
    for n in range(count):
        sub = Transcript(agent=f"a{n}", model=SMALL)
        sub.user("look")
        sub.response(f"x{n}")
        path = sub.write(tmp_path / "s1" / "subagents", f"agent-a{n}.jsonl")
        path.with_suffix(".meta.json").write_text(json.dumps({"agentType": f"kind{n}"}))
        files.append(path)
    found, _ = read(*files)
    assert [(c.session, c.agent, c.kind) for c in found[1:]] == [
        (f"a{n}", f"claude:kind{n}", "subagent") for n in range(count)
    ]


def test_members_of_teams_with_one_name_are_sessions_of_their_own(tmp_path: Path) -> None:
    files = []
    for session in ("s1", "s2"):
        sub = Transcript(session, agent="scout@team")
        sub.user(f"look for {session}")
        sub.response(f"of {session}")
        files.append(sub.write(tmp_path / session / "subagents", "agent-scout.jsonl"))
    found, _ = read(*files)
    assert [(call.session, call.parent_session) for call in found] == [
        ("s1/scout@team", "s1"), ("s2/scout@team", "s2"),
    ]  # fmt: skip
    assert [call.kind for call in found] == ["subagent", "subagent"]


def test_answers_of_older_versions_do_not_say_whom_they_answer(tmp_path: Path) -> None:
    log = Transcript()
    log.version = "2.0.76"
    log.user("tie both")
    asking = [log.model_line("m1", asked(f"c{n}"), used()) for n in range(2)]
    for n in (1, 0):
        log.user([told(f"c{n}", f"told {n}")], parentUuid=asking[n], toolUseResult={"ok": True})
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert words(found[1].prompt)[1:] == ["assistant: c0 | c1", "user: told 1 | told 0"]


def test_other_folders_and_worktrees_are_one_session(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.response("m1", usage=used(5, 1000, 0))
    log.folder = "/home/me/worktrees/boats"
    log.user("on")
    log.response("m2", usage=used(5, 100, 1000))
    found, _ = read(log.write(tmp_path))
    assert [(call.session, call.kind) for call in found] == [("s1", "turn"), ("s1", "turn")]
    assert found[1].prompt.parent is not None


def test_heads_are_shared_with_the_latest_session_of_the_same_folder(tmp_path: Path) -> None:
    files = []
    for n in range(30):
        log = Transcript(f"s{n:02}")
        log.wait(60 * n)
        log.folder = f"/home/me/{n % 3}"
        log.user("go")
        log.response(f"m{n}", usage=used(5, 20_000 - 200 * n, 200 * n))
        files.append(log.write(tmp_path))
    donors = {first: epoch.donor for first, epoch in Scan(files, Notes()).epochs.items()}
    assert donors["m0"] is None
    for n in range(1, 30):
        # Of a folder's first session, the latest of any.
        before = n - 3 if n >= 3 else n - 1
        assert getattr(donors[f"m{n}"], "first", None) == f"m{before}"


def test_lines_of_books_only_are_no_calls(tmp_path: Path) -> None:
    log = Transcript()
    log.user("go")
    log.response("m1")
    log.raw(compact({"type": "summary", "summary": "a boat", "leafUuid": "s1-0002"}))
    log.raw(compact({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}))
    log.raw(compact({"type": "pr-link", "sessionId": "s1", "prNumber": 7}))
    found, notes = read(log.write(tmp_path))
    assert len(found) == 1
    assert not notes.skipped
