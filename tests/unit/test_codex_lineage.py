"""Forks and sub-agents: what they share with their parents, and that no call counts twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.notes import Notes
from codex_logs import Log, asked, head, items, nodes, read, said, thought, told, words

if TYPE_CHECKING:
    from pathlib import Path


def turn(log: Log, text: str, used: int) -> Log:
    log.wait().user(text).item(said("assistant", f"{text}!"))
    return (log.usage if log.is_paginated else log.count)(used, 5)


def parent_log(version: str = "0.77.0", number: int = 1, *, turn_ids: bool = False) -> Log:
    log = Log(version, number).meta().context()
    for at, text in enumerate(("one", "two")):
        if turn_ids:
            log.turn()
        turn(log, text, 100 + at * 20)
    return log


def stamped_anew(parent: Log, number: int, **meta: Any) -> Log:
    """Return a fork of the older kind: own session_meta, then the parent's records at this time."""
    child = replace(parent, number=number, now_ms=number * 60_000, lines=[], last=parent.last)
    child.total = dict(parent.total)
    child.meta(**meta)
    old = Log(parent.version, parent.number, now_ms=0).at[:13].encode()
    for line in parent.lines:
        stamp = line.index(old)
        child.raw(line[:stamp] + child.at.encode() + line[stamp + len(child.at) :])
    return child


def prompts(calls: list[Any]) -> list[list[Any]]:
    return [words(call.prompt) for call in calls]


ONE_TWO = ["one", "one!", "two", "two!"]


@pytest.mark.parametrize("named", [True, False], ids=["forked_from_id", "second session_meta"])
@pytest.mark.parametrize("turn_ids", [True, False], ids=["by turn", "by usage"])
def test_copied_records_are_history_and_not_calls(
    tmp_path: Path, named: bool, turn_ids: bool
) -> None:
    parent = parent_log(turn_ids=turn_ids)
    more = {"forked_from_id": parent.thread} if named else {}
    child = stamped_anew(parent, 2, **more)
    if turn_ids:
        child.turn()
    turn(child, "three", 140)
    turn(child, "four", 160)
    notes = Notes(strict=True)
    calls = read(parent.save(tmp_path), child.save(tmp_path), notes=notes)
    mine = [call for call in calls if call.session == child.thread]
    assert prompts(mine) == [[*ONE_TWO, "three"], [*ONE_TWO, "three", "three!", "four"]]
    assert [call.kind for call in mine] == ["fork", "turn"]
    assert {call.parent_session for call in mine} == {parent.thread}
    assert len(calls) == 4
    assert notes.counts["deduplicated calls"] == 2
    assert (notes.counts["calls"], notes.counts["sessions"]) == (4, 2)


def test_the_copied_part_ends_where_usage_parts_from_the_parents(tmp_path: Path) -> None:
    parent = parent_log()
    child = stamped_anew(parent, 2, forked_from_id=parent.thread)
    turn(parent, "three", 140)
    turn(turn(child, "trois", 141), "quatre", 160)
    calls = read(parent.save(tmp_path), child.save(tmp_path))
    assert [c.logged_prompt_tokens for c in calls] == [100, 120, 140, 141, 160]


def test_of_children_without_their_parent_the_first_keeps_its_calls(tmp_path: Path) -> None:
    parent = parent_log()
    first = turn(stamped_anew(parent, 2, forked_from_id=parent.thread), "three", 140)
    second = turn(stamped_anew(parent, 3, forked_from_id=parent.thread), "trois", 141)
    notes = Notes(strict=True)
    calls = read(first.save(tmp_path), second.save(tmp_path), notes=notes)
    assert [c.logged_prompt_tokens for c in calls] == [100, 120, 140, 141]
    assert prompts(calls)[-1] == [*ONE_TWO, "trois"]
    assert notes.counts["deduplicated calls"] == 2


def test_sessions_that_used_the_same_are_not_each_others_copies(tmp_path: Path) -> None:
    logs = [parent_log(number=number) for number in (1, 2)]
    notes = Notes(strict=True)
    assert len(read(*(log.save(tmp_path) for log in logs), notes=notes)) == 4
    assert notes.counts["deduplicated calls"] == 0


def test_copied_usage_records_name_their_thread(tmp_path: Path) -> None:
    parent = parent_log("0.153.0")
    child = stamped_anew(parent, 2, forked_from_id=parent.thread)
    turn(child, "three", 140)
    calls = read(parent.save(tmp_path), child.save(tmp_path))
    assert [c.logged_prompt_tokens for c in calls] == [100, 120, 140]


# Forks by reference


def referring(parent: Log, at: int, number: int = 2, version: str = "0.171.0") -> Log:
    base = {"thread_id": parent.thread, "end_ordinal_exclusive": at, "end_byte_offset": 1}
    log = Log(version, number, now_ms=number * 60_000, ordinal=at)
    return log.meta(forked_from_id=parent.thread, history_base=base).context()


@pytest.mark.parametrize("where", ["plain", "compressed", "archived"])
def test_a_fork_by_reference_begins_with_its_parents_history(tmp_path: Path, where: str) -> None:
    parent = parent_log("0.171.0")
    fork = turn(referring(parent, parent.ordinal), "three", 140)
    turn(parent, "later", 150)
    name = f"rollout-2026-03-01T12-00-00-{parent.thread}.jsonl"
    place = tmp_path / ("archived_sessions" if where == "archived" else "sessions")
    saved = parent.save(place, name + ".zst" * (where == "compressed"))
    calls = read(fork.save(tmp_path), saved)
    assert prompts(calls)[0] == [*ONE_TWO, "three"]
    assert (calls[0].kind, calls[0].parent_session) == ("fork", parent.thread)
    assert len(calls) == 4


def test_a_fork_in_the_middle_takes_the_history_until_there(tmp_path: Path) -> None:
    parent = Log().meta().context()
    turn(parent, "one", 100)
    middle = parent.ordinal
    turn(parent, "two", 120)
    fork = turn(referring(parent, middle), "deux", 121)
    calls = read(fork.save(tmp_path), parent.save(tmp_path))
    assert prompts(calls)[0] == ["one", "one!", "deux"]


def test_a_fork_of_a_fork_follows_both(tmp_path: Path) -> None:
    parent = parent_log("0.171.0")
    fork = turn(referring(parent, parent.ordinal), "three", 140)
    second = turn(referring(fork, fork.ordinal, 3), "four", 160)
    calls = read(second.save(tmp_path), fork.save(tmp_path), parent.save(tmp_path))
    assert prompts(calls)[0] == [*ONE_TWO, "three", "three!", "four"]
    assert calls[0].parent_session == fork.thread


def test_usage_repeated_from_the_parent_is_no_call(tmp_path: Path) -> None:
    parent = parent_log("0.171.0")
    fork = referring(parent, parent.ordinal)
    fork.total, fork.last = dict(parent.total), parent.last
    fork.count()
    turn(fork, "three", 140)
    assert len(read(fork.save(tmp_path), parent.save(tmp_path))) == 3
    assert len(read(fork.save(tmp_path))) == 1


def test_a_fork_without_its_parent_is_read_on_a_head_of_its_own(tmp_path: Path) -> None:
    parent = parent_log("0.171.0")
    forks = [turn(referring(parent, parent.ordinal, n), "three", 140) for n in (2, 3)]
    other = turn(referring(parent, parent.ordinal - 1, 4), "three", 140)
    notes = Notes(strict=True)
    calls = read(*(log.save(tmp_path) for log in (*forks, other)), notes=notes)
    assert prompts(calls) == [["three"]] * 3
    heads = [head(call.prompt) for call in calls]
    assert heads[0] == heads[1] != heads[2]
    assert {call.fidelity for call in calls} == {"head_estimated"}
    assert notes.counts["forks without their parent"] == 3


def test_forks_that_refer_to_each_other_end(tmp_path: Path) -> None:
    one, other = Log(number=1), Log(number=2)
    first = turn(referring(other, 5, 1), "a", 10)
    second = turn(referring(one, 5, 2), "b", 10)
    assert len(read(first.save(tmp_path), second.save(tmp_path))) == 2


# Sub-agents


def spawned(parent: str, **more: Any) -> dict[str, Any]:
    return {"source": {"subagent": {"thread_spawn": {"parent_thread_id": parent, **more}}}}


def test_a_fresh_sub_agent_is_a_session_with_a_parent(tmp_path: Path) -> None:
    parent = parent_log("0.171.0")
    child = Log(number=2).meta(session_id=parent.thread, **spawned(parent.thread)).context()
    turn(turn(child, "count", 50), "again", 60)
    calls = read(parent.save(tmp_path), child.save(tmp_path))[2:]
    assert [(c.agent, c.kind, c.parent_session) for c in calls] == [
        ("codex:subagent", "subagent", parent.thread),
        ("codex:subagent", "turn", parent.thread),
    ]


@pytest.mark.parametrize(
    ("meta", "agent", "parent"),
    [
        ({"source": "cli"}, "codex", None),
        ({"thread_source": "user", "source": "exec"}, "codex", None),
        ({"source": {"subagent": "review"}, "session_id": "root"}, "codex:review", "root"),
        ({"source": {"subagent": "compact"}}, "codex:compact", None),
        ({"source": {"subagent": {"other": "judge"}}}, "codex:judge", None),
        (spawned("p"), "codex:subagent", "p"),
        (spawned("p", agent_role="scout"), "codex:scout", "p"),
        ({**spawned("p"), "agent_role": "scout", "parent_thread_id": "q"}, "codex:scout", "q"),
        ({"thread_source": "memory_consolidation"}, "codex:memory_consolidation", None),
    ],
)
def test_agents_are_named_by_role_or_kind(
    tmp_path: Path, meta: dict[str, Any], agent: str, parent: str | None
) -> None:
    log = turn(Log().meta(**meta).context(), "go", 50)
    call = read(log.save(tmp_path))[0]
    assert (call.agent, call.parent_session) == (agent, parent)


def test_a_sub_agent_with_copied_items_counts_only_its_own_calls(tmp_path: Path) -> None:
    parent = parent_log("0.171.0")
    child = Log(number=2, now_ms=120_000)
    child.meta(subagent_history_start_ordinal=7, **spawned(parent.thread, agent_role="scout"))
    child.put("session_meta", {"id": parent.thread}).item(said("developer", "rules")).user("one")
    child.item(said("assistant", "one!")).item(asked("spawn")).context()
    turn(child, "your task", 90)
    calls = [c for c in read(parent.save(tmp_path), child.save(tmp_path)) if c.agent != "codex"]
    assert [(c.kind, words(c.prompt)) for c in calls] == [
        ("subagent", ["rules", "one", "one!", "spawn", "spawn=aborted", "your task"])
    ]


def test_an_older_sub_agent_that_copied_its_parents_usage(tmp_path: Path) -> None:
    parent = parent_log()
    child = turn(stamped_anew(parent, 2, **spawned(parent.thread)), "your task", 90)
    calls = read(parent.save(tmp_path), child.save(tmp_path))
    assert [(c.agent, c.kind, c.logged_prompt_tokens) for c in calls] == [
        ("codex", "turn", 100),
        ("codex", "turn", 120),
        ("codex:subagent", "subagent", 90),
    ]


def test_the_first_session_meta_is_the_files_own(tmp_path: Path) -> None:
    log = Log().meta().put("session_meta", {"id": "another", "cli_version": "0.1.0"}).context()
    call = read(turn(log, "go", 50).save(tmp_path))[0]
    assert call.session == log.thread
    assert b"0.171.0" in head(call.prompt)


def test_a_fork_shares_what_it_took_over_by_content(tmp_path: Path) -> None:
    parent = Log().meta().context().user("one").item(thought()).item(asked("a"))
    parent.usage(100, 9, 0, 7).item(told("a")).item(said("assistant", "k")).usage(120)
    fork = turn(referring(parent, parent.ordinal), "three", 140)
    calls = read(parent.save(tmp_path), fork.save(tmp_path))
    path = [(node.content, node.tokens) for node in nodes(calls[1].path)]
    assert [(node.content, node.tokens) for node in nodes(calls[2].prompt)][: len(path)] == path
    assert items(calls[2].prompt)[1] == 7
