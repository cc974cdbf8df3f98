"""Claude Code: compactions, sub-agents, forks, and copies that count once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.ingest.claude import calls
from claude_logs import EPOCH_US, Transcript, asked, head, messages, read, said, used, words

if TYPE_CHECKING:
    from pathlib import Path


def conversation(session: str = "s1") -> Transcript:
    log = Transcript(session)
    log.user("tie the boat")
    log.response("m1", asked("t1"))
    log.tool("t1", "a rope")
    log.response("m2", said("tied"), asked("t2"))
    log.tool("t2", "good")
    return log


# Compactions


def test_a_compaction_is_a_call_without_usage_and_a_fold_follows(tmp_path: Path) -> None:
    log = conversation()
    log.wait(10)
    kept = ["s1-0004", "s1-0005", "s1-0006"]
    log.compact(kept, "tied so far")
    log.response("m3")
    found, notes = read(log.write(tmp_path))
    assert [call.kind for call in found] == ["turn", "turn", "compaction", "fold"]
    compaction, fold = found[2:]
    assert (compaction.usage_source, compaction.logged_prompt_tokens) == ("none", None)
    assert compaction.fidelity == "compaction_estimated"
    # It is asked for what is not kept, with the words of the request behind it.
    assert words(compaction.prompt) == [
        "user: tie the boat",
        "assistant: t1",
        "user: a rope",
        "claude compaction prompt:1290",
    ]
    assert words(compaction.path)[-1] == "assistant: tied so far"
    assert words(fold.prompt) == ["user: tied so far", "assistant: tied | t2", "user: good"]
    assert head(compaction.prompt) == head(fold.prompt) == head(found[0].prompt)
    assert notes.counts["calls"] == 4


def test_a_compaction_lasted_as_long_as_its_mark_says(tmp_path: Path) -> None:
    log = conversation()
    log.wait(10)
    at = EPOCH_US + 10_600_000
    log.compact([], durationMs=3000)
    log.response("m3")
    found, _ = read(log.write(tmp_path))
    assert (found[2].start_us, found[2].end_us) == (at - 3_025_000, at - 25_000)


def test_without_kept_messages_all_of_the_path_is_compacted(tmp_path: Path) -> None:
    log = conversation()
    log.compact([])
    log.response("m3")
    found, _ = read(log.write(tmp_path))
    assert words(found[2].prompt)[-2:] == ["user: good", "claude compaction prompt:1290"]
    assert words(found[3].prompt) == ["user: so far"]


def test_the_lines_of_a_compaction_command_follow_what_is_kept(tmp_path: Path) -> None:
    log = conversation()
    log.compact(["s1-0004", "s1-0005", "s1-0006"])
    log.user("<command-name>/compact</command-name>", isMeta=True)
    log.user("go on")
    log.response("m3")
    found, _ = read(log.write(tmp_path))
    assert words(found[3].prompt) == [
        "user: so far",
        "assistant: tied | t2",
        "user: good | <command-name>/compact</command-name>\n | go on",
    ]


def test_a_compaction_of_an_unknown_kind_does_not_stop_the_rest(tmp_path: Path) -> None:
    log = conversation()
    log.compact([], preservedMessages="all", durationMs="long")
    log.response("m3")
    found, notes = read(log.write(tmp_path))
    assert len(found) == 4
    assert not notes.skipped


# Sub-agents


def with_child(folder: Path, kind: str = "deckhand", agent: str = "a1") -> list[Path]:
    parent = Transcript("s1")
    parent.user("tie both")
    parent.listing()
    parent.response("p1", asked("t1"))
    parent.wait(60)
    parent.tool("t1")
    parent.response("p2")
    child = Transcript("s1", agent=agent)
    child.wait(1)
    child.user("tie one")
    child.response("c1", asked("u1"), attributionAgent=kind)
    child.tool("u1")
    child.response("c2", attributionAgent=kind)
    beside = folder / "s1" / "subagents"
    paths = [parent.write(folder), child.write(beside, f"agent-{agent}.jsonl")]
    meta = {"agentType": kind, "toolUseId": "t1", "spawnDepth": 1}
    (beside / f"agent-{agent}.meta.json").write_text(json.dumps(meta))
    return paths


def test_a_sub_agent_is_a_session_with_a_parent(tmp_path: Path) -> None:
    found, notes = read(*with_child(tmp_path))
    assert [(call.session, call.parent_session, call.agent, call.kind) for call in found] == [
        ("s1", None, "claude", "turn"),
        ("s1", None, "claude", "turn"),
        ("a1", "s1", "claude:deckhand", "subagent"),
        ("a1", "s1", "claude:deckhand", "turn"),
    ]
    assert head(found[0].prompt) != head(found[2].prompt)
    assert notes.counts["sessions"] == 2


@pytest.mark.parametrize(("kind", "told"), [("deckhand", True), ("scout", False)])
def test_a_sub_agent_that_may_start_others_is_told_of_them(
    tmp_path: Path, kind: str, told: bool
) -> None:
    found, _ = read(*with_child(tmp_path, kind))
    prompt = messages(found[3].prompt)
    listed = [m for m in prompt if m["role"] == "system" and "Available agent" in m["content"]]
    assert bool(listed) is told
    # Behind the first answer of a tool.
    assert not told or prompt[3] is listed[0]


def test_sub_agents_inside_the_sessions_file(tmp_path: Path) -> None:
    log = Transcript("s1")
    main = log.user("tie both")
    main = log.response("m1", asked("t1"))
    log.user("tie one", parentUuid=None, isSidechain=True)
    log.response("c1", isSidechain=True)
    log.tool("t1", parentUuid=main, sourceToolAssistantUUID=main)
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert [(call.session, call.kind) for call in found if call.parent_session] == [
        ("s1-0003", "subagent")
    ]
    assert [words(call.prompt)[-1] for call in found if not call.parent_session] == [
        "user: tie both",
        "user: fine",
    ]


def progress(child: Transcript, parent: Transcript) -> None:
    """Repeat a sub-agent's lines in its parent's file, as some versions do."""
    for line in child.lines:
        record = json.loads(line)
        inner = {key: record[key] for key in ("type", "message", "uuid", "timestamp")}
        data = {"type": "agent_progress", "message": inner, "agentId": child.agent, "prompt": ""}
        parent.line("progress", data=data, toolUseID="agent_msg", parentToolUseID="t1")


@pytest.mark.parametrize("with_file", [True, False])
def test_lines_of_a_sub_agent_that_its_parent_repeats_count_once(
    tmp_path: Path, with_file: bool
) -> None:
    parent, child = Transcript("s1"), Transcript("s1", agent="a1")
    child.user("tie one")
    child.response("c1", asked("u1"), usage=used(output=64))
    child.tool("u1")
    child.response("c2")
    parent.user("tie both")
    call = parent.response("m1", asked("t1"))
    progress(child, parent)
    parent.tool("t1", sourceToolAssistantUUID=call)
    parent.response("m2")
    paths = [parent.write(tmp_path)]
    if with_file:
        paths.append(child.write(tmp_path, "agent-a1.jsonl"))
    found, notes = read(*paths)
    assert sorted(call.session for call in found) == ["a1", "a1", "s1", "s1"]
    assert words(next(c for c in found if c.session == "a1").prompt) == ["user: tie one"]
    assert words([c for c in found if c.session == "s1"][1].prompt)[-1] == "user: fine"
    assert bool(notes.counts["mirrored lines"]) is with_file


@pytest.mark.parametrize("marked", [False, True])
def test_a_sub_agent_that_replays_its_session_is_no_second_run(
    tmp_path: Path, marked: bool
) -> None:
    log = conversation()
    side = Transcript("s1", agent="aside")
    for line in log.lines:
        record = json.loads(line)
        record |= {"agentId": "aside", "isSidechain": True, "requestId": "req_new"}
        if marked:
            record["forkedFrom"] = {"sessionId": "s1", "messageUuid": record["uuid"]}
        side.raw(json.dumps(record).encode())
        side.leaf = record["uuid"]
    side.user("by the way?")
    side.response("b1")
    paths = [log.write(tmp_path), side.write(tmp_path, "agent-aside.jsonl")]
    for order in (paths, paths[::-1]):
        found, notes = read(*order)
        assert [call.session for call in found if call.kind != "subagent"] == ["s1", "s1"]
        (aside,) = [call for call in found if call.session == "aside"]
        assert words(aside.prompt)[:3] == ["user: tie the boat", "assistant: t1", "user: a rope"]
        assert notes.counts["deduplicated calls"] == 2


def test_totals_of_a_sub_agent_in_its_parents_file_are_no_usage(tmp_path: Path) -> None:
    parent = Transcript("s1")
    parent.user("tie both")
    parent.response("p1", asked("t1"), usage=used(10, 100, 0))
    total = {"agentId": "a1", "totalTokens": 99_999, "usage": used(77_777)}
    parent.tool("t1", toolUseResult=total)
    parent.response("p2", usage=used(10, 20, 100))
    found, _ = read(parent.write(tmp_path))
    assert [call.logged_prompt_tokens for call in found] == [110, 130]


def test_the_end_of_a_background_agent_is_told(tmp_path: Path) -> None:
    log = conversation()
    log.note("queued_command", prompt="the other boat is tied", commandMode="task-notification")
    log.response("m3")
    found, notes = read(log.write(tmp_path))
    note = messages(found[2].prompt)[-1]
    assert note["content"].endswith(":\nthe other boat is tied")
    assert found[2].fidelity == "output_reformatted"
    assert notes.counts["queued commands"] == 1


# Copies


def forked(log: Transcript, session: str) -> Transcript:
    """Begin a new session with the lines of another, as a fork does."""
    fork = Transcript(session)
    fork.clock = log.clock
    fork.wait(60)
    for line in log.lines:
        record = json.loads(line)
        if "uuid" in record:
            record["sessionId"] = session
            fork.raw(json.dumps(record).encode())
            fork.leaf = record["uuid"]
    return fork


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_forks_copied_calls_are_history(tmp_path: Path, names: tuple[str, str]) -> None:
    log = conversation(names[0])
    log.books(type="last-prompt", leafUuid=log.leaf)
    log.response("m3", usage=used(0, 5, 100))
    log.books(type="last-prompt", leafUuid=log.leaf)
    fork = forked(log, names[1])
    fork.user("and now?")
    fork.response("m4", usage=used(0, 5, 105))
    found, notes = read(log.write(tmp_path), fork.write(tmp_path))
    assert notes.counts["deduplicated calls"] == 3
    (first,) = [call for call in found if call.session == names[1]]
    assert (first.kind, first.parent_session) == ("fork", names[0])
    assert len(words(first.prompt)) == 7
    original = [call for call in found if call.session == names[0]]
    assert head(first.prompt) == head(original[0].prompt)


def test_a_fork_whose_origin_is_not_here_has_all_the_calls(tmp_path: Path) -> None:
    fork = forked(conversation(), "b")
    fork.response("m4")
    found, notes = read(fork.write(tmp_path))
    assert [call.session for call in found] == ["b", "b", "b"]
    assert not notes.counts["deduplicated calls"]


def test_the_same_session_under_two_roots_counts_once(tmp_path: Path) -> None:
    log = conversation()
    paths = [log.write(tmp_path / "one"), log.write(tmp_path / "two")]
    found, notes = read(*paths)
    assert [(call.session, call.kind) for call in found] == [("s1", "turn")] * 2
    assert notes.counts["deduplicated calls"] == 2


def test_a_history_that_is_written_again_with_new_ids_counts_once(tmp_path: Path) -> None:
    log = conversation()
    log.lines += [line.replace(b'"s1-00', b'"again-00') for line in log.lines]
    log.leaf = "again-0006"
    log.response("m3")
    found, notes = read(log.write(tmp_path))
    assert [call.kind for call in found] == ["turn", "turn", "turn"]
    assert words(found[2].prompt) == [
        "user: tie the boat",
        "assistant: t1",
        "user: a rope",
        "assistant: tied | t2",
        "user: good",
    ]
    assert notes.counts["repeated lines"] == 6


def test_responses_with_one_time_have_no_time(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    same = "2026-03-01T15:00:00.000Z"
    for number in range(4):
        log.response(f"m{number}", timestamp=same)
        log.user("more")
    log.response("m9")
    found, _ = read(log.write(tmp_path))
    assert [call.time_source for call in found] == ["order_only"] * 4 + ["estimated"]
    starts = [call.start_us for call in found[:4]]
    assert starts == sorted(set(starts))


def test_of_a_history_stamped_anew_the_first_writing_counts(tmp_path: Path) -> None:
    log = conversation("z")
    log.response("m3")
    anew = forked(log, "a")
    stamp = b'"timestamp": "2026-03-02T08:00:00.000Z"'
    anew.lines = [
        line[: line.index(b'"timestamp"')] + stamp + line[line.index(b', "cwd"') :]
        for line in anew.lines
    ]
    anew.response("m4")
    found, _ = read(anew.write(tmp_path), log.write(tmp_path))
    assert sorted((call.session, call.time_source) for call in found) == [
        ("a", "estimated"),
        *[("z", "estimated")] * 3,
    ]


def test_parts_keep_together_what_belongs_together(tmp_path: Path) -> None:
    log = conversation("b")
    fork = forked(log, "c")
    alone = Transcript("d")
    alone.user("hi")
    alone.response("d1")
    paths = [log.write(tmp_path), fork.write(tmp_path), alone.write(tmp_path)]
    paths += with_child(tmp_path / "more")
    parts = calls.parts(paths)
    assert sorted(map(len, parts)) == [1, 2, 2]
    whole, _ = read(*paths)
    split = [call for part in parts for call in read(*part)[0]]
    assert sorted(words(call.prompt) for call in whole) == sorted(
        words(call.prompt) for call in split
    )
