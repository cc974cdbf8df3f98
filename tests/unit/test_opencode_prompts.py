"""Which chat messages OpenCode's prompts hold, rule by rule."""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest import images
from agentkv_trace.notes import Notes
from opencode_logs import (
    START_MS,
    Log,
    begin,
    database,
    end,
    ident,
    read,
    said,
    spelled,
    thought,
    tokens,
    tool,
    words,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

PIXEL = (
    "data:image/png;base64,"
    + base64.b64encode(
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (64).to_bytes(4) + (96).to_bytes(4)
    ).decode()
)


@pytest.fixture
def calls_of(tmp_path: Path) -> Any:
    made = iter(range(100))

    def read_log(log: Log, notes: Notes | None = None) -> list[LoggedCall]:
        return read(database(tmp_path / f"{next(made)}.db", log), notes=notes)

    return read_log


def prompts(calls: list[LoggedCall]) -> list[list[str]]:
    return [words(call.prompt) for call in calls]


def kinds(calls: list[LoggedCall]) -> list[str]:
    return [call.kind for call in calls]


def head(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


# Messages


def test_a_prompt_is_all_that_came_before(calls_of: Any) -> None:
    log = Log()
    log.user("look")
    log.assistant(thought("hm"), "I will", tool("c1"), finish="tool-calls")
    log.assistant("all fine")
    calls = calls_of(log)
    assert prompts(calls) == [["u look"], ["u look", "a I will [c1]", "t done"]]
    assert kinds(calls) == ["turn", "turn"]
    assert {call.fidelity for call in calls} == {"exact"}
    asked = spelled(calls[1].prompt)[1]
    assert asked == {
        "role": "assistant",
        "content": "I will",
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"command":"look c1"}'},
            }
        ],
    }
    # The path ends behind the answer, before what the tools returned.
    assert words(calls[0].path) == ["u look", "a I will [c1]"]
    assert words(calls[1].path)[-1] == "a all fine"


def test_a_call_costs_only_what_it_adds(calls_of: Any) -> None:
    log = Log()
    log.user("look")
    for number in range(5):
        log.assistant(tool(f"c{number}"), finish="tool-calls")
    calls = calls_of(log)
    for before, call in itertools.pairwise(calls):
        # The tool's answer is the only new node.
        assert call.prompt.parent is before.path


def test_what_of_a_users_message_is_sent(calls_of: Any) -> None:
    log = Log()
    log.user(
        "see @table.csv",
        said("", synthetic=True),
        said("not for the model", ignored=True),
        said("read: 1,2", synthetic=True),
        {"type": "file", "mime": "text/plain", "filename": "table.csv", "url": "file:///t"},
        {"type": "agent", "name": "general"},
    )
    log.assistant("seen")
    log.user(said("", synthetic=True))
    log.assistant("again")
    calls = calls_of(log)
    assert prompts(calls) == [
        ["u see @table.csv|read: 1,2"],
        ["u see @table.csv|read: 1,2", "a seen"],
    ]


def test_a_picture_is_sized_not_read(calls_of: Any) -> None:
    log = Log()
    log.user("what is it", {"type": "file", "mime": "image/png", "filename": "a.png", "url": PIXEL})
    log.assistant("a chart")
    (call,) = calls_of(log)
    message, picture = spelled(call.prompt)
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": ""}}
    assert picture[1] == 6  # 64 x 96 pixels in squares of 32


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("pier", ["a  [c1]", "t done", "u Attached media from tool result:|*", "6 tokens"]),
        ("anthropic", ["a  [c1]", "t done\n|*", "6 tokens"]),
    ],
)
def test_pictures_that_tools_return(calls_of: Any, provider: str, expected: list[str]) -> None:
    log = Log()
    log.user("draw")
    picture = {"type": "file", "mime": "image/png", "url": PIXEL}
    log.assistant(tool("c1", attachments=[picture]), providerID=provider, finish="tool-calls")
    log.assistant("drawn", providerID=provider)
    assert words(calls_of(log)[1].prompt) == ["u draw", *expected]


def test_a_file_that_is_no_picture_takes_the_most(calls_of: Any) -> None:
    log = Log()
    log.user(
        "sum up",
        {"type": "file", "mime": "application/pdf", "url": "data:application/pdf;base64,QQ=="},
    )
    log.assistant("done")
    assert words(calls_of(log)[0].prompt)[1] == f"{images.MAX_TOKENS} tokens"


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        (tool("c1", None, status="error", error="no such port"), "no such port"),
        (tool("c1", None, status="running"), "[Tool execution was interrupted]"),
        (tool("c1", None, status="pending"), "[Tool execution was interrupted]"),
        (
            tool(
                "c1",
                None,
                status="error",
                error="x",
                metadata={"interrupted": True, "output": "half"},
            ),
            "half",
        ),
    ],
)
def test_tools_that_did_not_end_well(calls_of: Any, part: dict[str, Any], answer: str) -> None:
    log = Log()
    log.user("go")
    log.assistant(part, finish="tool-calls")
    log.assistant("well")
    assert words(calls_of(log)[1].prompt) == ["u go", "a  [c1]", f"t {answer}"]


def test_failed_messages_are_left_out_and_aborted_ones_stay(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant(error={"name": "APIError"}, steps=False, used={}, finish=None)
    log.user("two")
    log.assistant(
        begin(), "half", error={"name": "MessageAbortedError"}, steps=False, used={}, finish=None
    )
    log.user("three")
    log.assistant(
        begin(),
        thought("x"),
        error={"name": "MessageAbortedError"},
        steps=False,
        used={},
        finish=None,
    )
    log.user("four")
    log.assistant("done")
    notes = Notes()
    calls = calls_of(log, notes)
    assert prompts(calls) == [
        ["u one", "u two"],
        ["u one", "u two", "a half", "u three"],
        ["u one", "u two", "a half", "u three", "u four"],
    ]
    assert [call.usage_source for call in calls] == ["none", "none", "logged"]
    assert notes.counts["requests without a response"] == 1


def test_a_dropped_stream_leaves_an_empty_message(calls_of: Any) -> None:
    log = Log()
    log.user("go")
    log.assistant(
        begin(), said(""), begin(), "here [it is]", tool("c1"), end(tokens(7000)),
        steps=False, finish="tool-calls",
    )  # fmt: skip
    log.assistant("done")
    notes = Notes()
    calls = calls_of(log, notes)
    assert prompts(calls) == [["u go"], ["u go", "a", "a here [it is] [c1]", "t done"]]
    assert words(calls[0].path) == ["u go", "a", "a here [it is] [c1]"]
    assert kinds(calls) == ["retry", "turn"]
    assert notes.counts["broken streams"] == 1


def test_several_steps_in_one_message(calls_of: Any) -> None:
    log = Log(version="0.6.3")
    last = {"input": 30, "output": 7, "reasoning": 0, "cache": {"read": 90, "write": 10}}
    log.user("go")
    log.assistant(
        begin(), "first", tool("c1", time={"start": START_MS + 2100, "end": START_MS + 2500}),
        end({"input": 100, "output": 5, "reasoning": 0, "cache": {"read": 0, "write": 0}}),
        begin(), "second", end(last),
        steps=False, used=last,
    )  # fmt: skip
    calls = calls_of(log)
    assert prompts(calls) == [["u go"], ["u go", "a first [c1]", "t done"]]
    assert [call.logged_prompt_tokens for call in calls] == [100, 130]
    assert calls[1].start_us == (START_MS + 2500) * 1000
    assert words(calls[1].path)[-1] == "a second"


def test_a_users_own_command_is_no_call(calls_of: Any) -> None:
    log = Log()
    log.user({"type": "subtask", "prompt": "p", "description": "d", "agent": "general"})
    log.assistant(tool("c1"), steps=False, used={}, finish="tool-calls")
    log.user(said("Sum it up", synthetic=True))
    log.assistant("so")
    calls = calls_of(log)
    asked = "u The following tool was executed by the user"
    assert prompts(calls) == [[asked, "a  [c1]", "t done", "u Sum it up"]]


def test_reasoning_of_another_model_becomes_text(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant(thought("hm"), thought("  "), "yes")
    log.user("two")
    log.assistant("no", modelID="tide-2")
    calls = calls_of(log)
    assert spelled(calls[1].prompt)[1] == {"role": "assistant", "content": "hmyes"}
    assert [call.model for call in calls] == ["tide-1", "tide-2"]
    assert head(calls[0].prompt).content != head(calls[1].prompt).content


def test_encrypted_reasoning_is_sized_by_usage(calls_of: Any) -> None:
    log = Log()
    hidden = {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAAA"}}
    log.user("one")
    log.assistant(thought("short", metadata=hidden), "yes", used=tokens(7000, 50, reasoning=40))
    log.user("two")
    log.assistant("no")
    first, second = calls_of(log)
    assert words(second.prompt) == ["u one", "40 tokens", "a yes", "u two"]
    assert (first.fidelity, second.fidelity) == ("exact", "reasoning_opaque")


def test_empty_text_between_signed_thoughts_is_a_space(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant(thought("x", metadata={"anthropic": {"signature": "s"}}), said(""), tool("c1"))
    log.assistant("two")
    assert spelled(calls_of(log)[1].prompt)[1]["content"] == " "


def test_a_message_sent_while_the_model_works_is_framed_once(calls_of: Any) -> None:
    log = Log()
    log.user("go")
    log.assistant(tool("c1"), finish="tool-calls", took_ms=3000)
    log.user("and the rest", said("unseen", synthetic=True), at_ms=log.now + 1000)
    log.assistant(tool("c2"), finish="tool-calls", at_ms=log.now + 5000)
    log.assistant("done")
    calls = calls_of(log)
    framed = spelled(calls[1].prompt)[-1]["content"]
    assert framed[0]["text"] == (
        "<system-reminder>\nThe user sent the following message:\nand the rest\n\n"
        "Please address this message and continue with your tasks.\n</system-reminder>"
    )
    assert framed[1]["text"] == "unseen"
    assert words(calls[2].prompt)[3] == "u and the rest|unseen"
    assert kinds(calls) == ["turn", "turn", "fold"]


# Rewritten prompts


def compacted(version: str, **request: Any) -> Log:
    log = Log(version=version)
    log.user("one")
    log.assistant("a1")
    two = log.user("two")
    log.assistant("a2")
    if request.pop("tail", False):
        request["tail_start_id"] = two
    log.user({"type": "compaction", "auto": False, **request})
    log.assistant("summary", summary=True, mode="compaction", agent="compaction", used=tokens(900))
    log.user("three")
    log.assistant("a3")
    log.assistant("a4")
    return log


SUMMED = ["u What did we do so far?", "a summary"]


@pytest.mark.parametrize(
    ("version", "tail", "expected"),
    [
        ("1.18.33", False, [*SUMMED, "u three"]),
        ("1.18.33", True, [*SUMMED, "u two", "a a2", "u three"]),
        ("1.14.30", True, ["u two", "a a2", *SUMMED, "u three"]),
        ("1.1.65", False, [*SUMMED, "u three"]),
    ],
)
def test_prompts_after_a_compaction(
    calls_of: Any, version: str, tail: bool, expected: list[str]
) -> None:
    calls = calls_of(compacted(version, tail=tail))
    assert kinds(calls) == ["turn", "turn", "compaction", "fold", "turn"]
    assert words(calls[3].prompt) == expected
    assert words(calls[4].prompt) == [*expected, "a a3"]
    assert calls[3].fidelity == "exact"


def test_an_unknown_tail_starts_at_the_compaction(calls_of: Any) -> None:
    calls = calls_of(compacted("1.18.33", tail_start_id="msg_gone"))
    assert words(calls[3].prompt) == [*SUMMED, "u three"]


def test_the_prompt_of_a_compaction(calls_of: Any) -> None:
    new = calls_of(compacted("1.18.33"))[2]
    assert words(new.prompt) == ["755 tokens"]  # 900 but for what all of them begin with
    assert words(new.path)[-1] == "a summary"
    assert new.fidelity == "compaction_estimated"
    old = calls_of(compacted("1.1.65"))[2]
    assert words(old.prompt) == ["u one", "a a1", "u two", "a a2", SUMMED[0], "330 tokens"]
    assert head(old.prompt).content != head(calls_of(compacted("1.1.65"))[0].prompt).content


def test_a_failed_compaction_changes_nothing(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant("a1")
    log.user({"type": "compaction", "auto": True})
    log.assistant(summary=True, error={"name": "ContextOverflowError"}, steps=False, used={})
    log.user("two")
    log.assistant("a2")
    assert words(calls_of(log)[-1].prompt) == ["u one", "a a1", "u What did we do so far?", "u two"]


def test_a_summary_without_a_request_stands_for_what_was_before(calls_of: Any) -> None:
    log = Log(version="0.5.0")
    log.user("one")
    log.assistant("a1")
    log.assistant("summary", summary=True)
    log.user("two")
    log.assistant("a2")
    assert words(calls_of(log)[-1].prompt) == ["a summary", "u two"]


def test_what_follows_an_automatic_compaction_belongs_to_the_same_turn(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant("a1")
    log.user({"type": "compaction", "auto": True, "overflow": True})
    log.assistant("summary", summary=True)
    log.user("one")
    log.assistant("a2")
    assert words(calls_of(log)[-1].prompt)[-1].startswith("u <system-reminder>")


def test_the_clients_word_to_go_on_is_sent_as_it_is(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant("a1")
    log.user({"type": "compaction", "auto": True})
    log.assistant("summary", summary=True)
    log.user(said("Go on", synthetic=True))
    log.assistant("a2")
    log.assistant("a3")
    calls = calls_of(log)
    assert words(calls[2].prompt) == [*SUMMED, "u Go on"]
    assert kinds(calls) == ["turn", "compaction", "fold", "turn"]


def test_pruning_holds_from_its_time_on(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    first = {"start": START_MS + 2100, "end": START_MS + 2200, "compacted": START_MS + 3500}
    log.assistant(tool("c1", time=first), finish="tool-calls")
    log.assistant("a1")
    log.user("two")
    log.assistant("a2")
    calls = calls_of(log)
    assert words(calls[1].prompt)[2] == "t done"
    assert words(calls[2].prompt)[2] == "t [Old tool result content cleared]"
    assert kinds(calls) == ["turn", "turn", "fold"]
    # What is before the pruned result is shared.
    shared = calls[0].path
    at: Node | None = calls[2].prompt
    while at is not None and at is not shared:
        at = at.parent
    assert at is shared


def test_reverted_messages_were_calls_until_they_were_deleted(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant("a1")
    two = log.user("two")
    gone = log.assistant("a2")
    log.user("three", at_ms=log.now + 5000)
    log.assistant("a3")
    log.remove(two, gone, at_ms=log.now - 1500)
    calls = calls_of(log)
    assert prompts(calls) == [["u one"], ["u one", "a a1", "u two"], ["u one", "a a1", "u three"]]
    assert kinds(calls) == ["turn", "turn", "fold"]


def test_a_revert_that_is_not_yet_done_changes_nothing(calls_of: Any) -> None:
    log = Log()
    message = log.user("one")
    log.assistant("a1")
    log.info["revert"] = {"messageID": message}
    assert prompts(calls_of(log)) == [["u one"]]


# Heads


def test_what_a_head_depends_on(calls_of: Any) -> None:
    rules = [{"permission": "question", "pattern": "*", "action": "deny"}]
    first = Log()
    first.user("one")
    first.assistant("a")
    keys = set()
    for log in (
        first,
        one_call(version="1.18.32"),
        one_call(permission=rules),
        one_call(tools={"task": False}),
        one_call(system="You count boats."),
        one_call(agent="plan"),
    ):
        (call,) = calls_of(log)
        keys.add(head(call.prompt).content)
    assert len(keys) == 6


def one_call(agent: str = "build", **fields: Any) -> Log:
    log = Log(**{key: fields.pop(key) for key in ("version", "permission") if key in fields})
    log.user("one", **fields)
    log.assistant("a", agent=agent, mode=agent)
    return log


def test_directory_and_date_change_only_the_end_of_the_head(calls_of: Any) -> None:
    log = Log()
    log.user("one")
    log.assistant("a1")
    log.assistant("a2")
    log.user("next day", at_ms=log.now + 36 * 3600 * 1000)
    log.assistant("a3")
    one, two, other_day = calls_of(log)
    assert head(one.prompt) is head(two.prompt)
    assert head(other_day.prompt).content == head(one.prompt).content
    assert environment(one) == environment(two) != environment(other_day)
    elsewhere = Log()
    elsewhere.user("one")
    elsewhere.assistant("a1", path={"cwd": "/other", "root": "/"})
    (moved,) = calls_of(elsewhere)
    assert head(moved.prompt).content == head(one.prompt).content
    assert environment(moved) != environment(one)


def environment(call: LoggedCall) -> bytes:
    at = call.prompt
    while at.parent is not None and at.parent.parent is not None:
        at = at.parent
    return at.content


# Kinds and names


def test_sub_agents_are_sessions_with_a_parent(tmp_path: Path) -> None:
    parent = Log()
    parent.user("go")
    parent.assistant(tool("c1"), finish="tool-calls")
    child = Log(START_MS + 2500, parentID=parent.id)
    child.user("count", agent="general")
    child.assistant("12", agent="general", mode="general")
    child.assistant("13", agent="general", mode="general")
    calls = read(database(tmp_path / "opencode.db", child, parent))
    assert [(c.session, c.agent, c.parent_session, c.kind) for c in calls] == [
        (parent.id, "opencode", None, "turn"),
        (child.id, "opencode:general", parent.id, "subagent"),
        (child.id, "opencode:general", parent.id, "turn"),
    ]


def test_a_killed_call_counts_and_the_next_resumes(calls_of: Any) -> None:
    log = Log()
    log.user("go")
    log.assistant(
        begin(), tool("c1", None, status="running"), steps=False, used={}, took_ms=None, finish=None
    )
    log.user("go on")
    log.assistant("a")
    calls = calls_of(log)
    assert kinds(calls) == ["turn", "resume"]
    assert calls[0].usage_source == "none"
    assert calls[0].output_tokens is None
    assert words(calls[1].prompt) == [
        "u go",
        "a  [c1]",
        "t [Tool execution was interrupted]",
        "u go on",
    ]


def test_a_call_that_never_answered_is_none(calls_of: Any) -> None:
    log = Log()
    log.user("go")
    log.assistant(steps=False, used={}, took_ms=None, finish=None)
    assert calls_of(log) == []


def test_title_calls_where_the_log_holds_the_title(calls_of: Any) -> None:
    log = Log(version="1.1.65")
    log.user("one", summary={"title": "Tables looked at", "diffs": []})
    log.assistant(tool("c1"), finish="tool-calls")
    log.assistant("a1")
    log.user("two", summary={"diffs": []})
    log.assistant("a2")
    calls = calls_of(log)
    assert kinds(calls) == ["title", "turn", "turn", "turn"]
    title = calls[0]
    assert words(title.prompt) == ["550 tokens", "u one"]
    assert words(title.path)[-1] == "a Tables looked at"
    assert (title.usage_source, title.time_source) == ("none", "estimated")
    assert title.fidelity == "head_estimated"


def test_unknown_parts_are_ignored(calls_of: Any) -> None:
    log = Log()
    log.user("one", {"type": "hologram", "data": 1})
    log.assistant("a", {"type": "patch", "hash": "x", "files": []}, {"type": "hologram"})
    log.assistant("b")
    assert prompts(calls_of(log))[1] == ["u one", "a a"]


def test_ids_tell_the_same_time() -> None:
    assert ident("msg", START_MS) < ident("msg", START_MS + 1)
