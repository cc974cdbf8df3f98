"""Rules of OpenHands' second generation, each with the right value."""

from __future__ import annotations

import base64
import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.openhands import calls, paths
from agentkv_trace.notes import Notes
from openhands_logs import (
    BEGAN,
    MODEL,
    Conversation,
    asks,
    completion,
    epoch,
    messages,
    pieces,
    role,
    roles,
    text,
    tool,
    usage,
    words,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall


def read(*files: Path, notes: Notes | None = None) -> list[LoggedCall]:
    return list(calls.read(files, notes or Notes(strict=True)))


def read_one(one: Conversation, folder: Path, notes: Notes | None = None) -> list[LoggedCall]:
    return read(one.write(folder / ("0" * 32)), notes=notes)


def begun(**fields: Any) -> Conversation:
    one = Conversation(**fields)
    one.system()
    one.user("Check the sill.")
    return one


def test_a_conversation_becomes_calls(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", usage(1000, 20, 512))
    one.turn("r2", "c2", usage(1200, 30, 1024))
    found = read_one(one, tmp_path)
    assert [call.session for call in found] == ["0" * 32] * 2
    assert [(call.agent, call.source, call.model) for call in found] == [
        ("openhands", "openhands", MODEL)
    ] * 2
    assert [
        (call.logged_prompt_tokens, call.logged_cached_tokens, call.output_tokens, call.kind)
        for call in found
    ] == [(1000, 512, 20, "turn"), (1200, 1024, 30, "turn")]
    assert messages(found[1]) == [
        role("system", "You keep the tide tables."),
        role("user", "Check the sill."),
        {
            "content": [text("Now c1.")],
            "role": "assistant",
            "tool_calls": asks("c1")["tool_calls"],
        },
        tool("c1", "result of c1"),
    ]
    assert pieces(found[0].path) == pieces(found[1].prompt)[:-1]
    assert (found[0].parent_session, found[0].fidelity) == (None, "exact")


def test_keys_are_in_the_order_of_the_wire(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    one.said("Done.", "r2")
    node = read_one(one, tmp_path)[1].prompt
    assert list(json.loads(node.content)) == ["content", "role", "tool_call_id", "name"]
    assert node.parent is not None
    assert list(json.loads(node.parent.content)) == ["content", "role", "tool_calls"]


def test_actions_of_one_response_are_one_message_and_one_call(tmp_path: Path) -> None:
    one = begun()
    one.act("r1", "c1", thought="Both at once.")
    one.act("r1", "c2")
    one.used("r1", usage(900))
    one.answer("c2", "second")
    one.answer("c1", "first")
    one.said("Done.", "r2")
    found = read_one(one, tmp_path)
    assert len(found) == 2
    assert roles(found[1]) == "suatt"
    sent = messages(found[1])
    assert [each["id"] for each in sent[2]["tool_calls"]] == ["c1", "c2"]
    assert [each["tool_call_id"] for each in sent[3:]] == ["c2", "c1"]
    assert pieces(found[0].path)[-1] == sent[2]


def test_a_thought_of_blanks_is_not_sent(tmp_path: Path) -> None:
    one = begun()
    one.act("r1", "c1", thought=" \n")
    one.answer("c1", "x")
    one.said("", "r2")
    one.said("Done.", "r3")
    sent = messages(read_one(one, tmp_path)[2])
    assert list(sent[2]) == ["role", "tool_calls"]
    assert sent[4] == {"content": "", "role": "assistant"}


def test_reasoning_is_resent_to_models_that_want_it_only(tmp_path: Path) -> None:
    for number, (model, wanted) in enumerate(
        {"made/model-1": None, "moonshot/kimi-k2-thinking": "Think of the sill."}.items()
    ):
        one = begun(llm={"model": model})
        one.act("r1", "c1", reasoning_content="Think of the sill.")
        one.answer("c1", "x")
        one.said("Done.", "r2")
        sent = messages(read_one(one, tmp_path / str(number))[1])
        assert sent[2].get("reasoning_content") == wanted


def test_models_that_take_strings_get_strings(tmp_path: Path) -> None:
    one = begun(llm={"model": "zai/glm-4.6"})
    one.turn("r1", "c1")
    one.said("Done.", "r2")
    sent = messages(read_one(one, tmp_path)[1])
    assert [each["content"] for each in sent] == [
        "You keep the tide tables.",
        "Check the sill.",
        "Now c1.",
        "result of c1",
    ]


def test_thinking_blocks_are_resent_without_signature(tmp_path: Path) -> None:
    one = begun()
    block = {"type": "thinking", "thinking": "Sill first.", "signature": "x" * 400}
    one.act("r1", "c1", thinking_blocks=[block])
    one.answer("c1", "x")
    one.said("Done.", "r2")
    sent = messages(read_one(one, tmp_path)[1])
    assert sent[2]["thinking_blocks"] == [{"type": "thinking", "thinking": "Sill first."}]


def test_the_responses_api_gets_items(tmp_path: Path) -> None:
    one = begun()
    call = {"id": "c1", "name": "terminal", "arguments": "{}", "origin": "responses"}
    thought = {"id": "rs_1", "summary": ["On the sill."], "encrypted_content": "A" * 2000}
    one.act("r1", "c1", "Look.", tool_call=call, responses_reasoning_item=thought)
    one.answer("c1", "x")
    one.said("Done.", "r2")
    found = read_one(one, tmp_path)[1]
    sent = messages(found)
    assert sent[0] == "You keep the tide tables."
    kinds = [each["type"] if isinstance(each, dict) else each for each in sent[1:]]
    assert kinds == [
        "message",
        "reasoning",
        212,
        "message",
        "function_call",
        "function_call_output",
    ]
    assert sent[-2] == {
        "type": "function_call",
        "call_id": "c1",
        "name": "terminal",
        "arguments": "{}",
    }
    assert found.fidelity == "reasoning_opaque"


def test_a_command_s_answer_has_what_the_shell_s_prompt_told(tmp_path: Path) -> None:
    one = begun()
    shell = {
        "prefix": "[before]\n",
        "suffix": "\n[after]",
        "working_dir": "/repo/one",
        "py_interpreter_path": "/usr/bin/python",
        "exit_code": 3,
    }
    one.act("r1", "c1")
    one.answer("c1", "body", kind="TerminalObservation", metadata=shell)
    one.act("r2", "c2")
    one.answer("c2", "still running", kind="TerminalObservation", metadata={"exit_code": -1})
    one.said("Done.", "r3")
    sent = messages(read_one(one, tmp_path)[2])
    assert words(sent[3]) == [
        "[before]\nbody\n[after]\n[Current working directory: /repo/one]\n"
        "[Python interpreter: /usr/bin/python]\n[Command finished with exit code 3]"
    ]
    assert words(sent[5]) == ["still running"]


def test_answers_of_other_kinds(tmp_path: Path) -> None:
    one = begun()
    for number in range(1, 5):
        one.act("r1", f"c{number}")
    task = {"task_id": "task_1", "subagent": "reader", "status": "completed"}
    one.answer("c1", "Two sills.", kind="TaskObservation", **task)
    one.answer("c2", "broken", is_error=True)
    one.add("AgentErrorEvent", error="No such tool.", tool_name="terminal", tool_call_id="c3")
    one.add(
        "UserRejectObservation",
        rejection_reason="Too deep",
        tool_name="terminal",
        tool_call_id="c4",
    )
    one.said("Done.", "r2")
    sent = messages(read_one(one, tmp_path)[1])
    assert [words(each) for each in sent[3:]] == [
        ["Task ID: task_1\nSubagent: reader\nStatus: completed", "Two sills."],
        ["[An error occurred during execution.]\n", "broken"],
        ["No such tool."],
        ["Action rejected: Too deep"],
    ]


def test_long_answers_are_shortened_in_their_middle(tmp_path: Path) -> None:
    one = begun()
    one.act("r1", "c1")
    one.act("r1", "c2")
    shell = {"exit_code": -1}
    one.answer("c1", "a" * 20_000 + "b" * 20_000, kind="TerminalObservation", metadata=shell)
    one.answer("c2", "c" * 60_000)
    one.said("Done.", "r2")
    terminal, other = (words(each)[0] for each in messages(read_one(one, tmp_path)[1])[3:])
    assert (len(terminal), len(other)) == (30_000, 50_000)
    assert terminal.startswith("a" * 14_900)
    assert terminal.endswith("b" * 14_900)
    assert "<response clipped>" in terminal


def test_neighbouring_users_are_one_message(tmp_path: Path) -> None:
    one = begun()
    one.user("And the bore.", extended_content=[text("A guide to bores.")])
    one.said("Done.", "r1")
    sent = messages(read_one(one, tmp_path)[0])
    assert roles(read(tmp_path / ("0" * 32) / "base_state.json")[0]) == "su"
    assert words(sent[1]) == ["Check the sill.", "And the bore.", "A guide to bores."]


def test_what_was_never_answered_is_not_sent(tmp_path: Path) -> None:
    one = begun()
    one.act("r1", "c1", "Left open.")
    one.act("r1", "c2")
    one.answer("c2", "only one of two")
    one.user("Go on.")
    one.said("Done.", "r2")
    found = read_one(one, tmp_path)
    assert [words(each) for each in messages(found[1])[1:]] == [["Check the sill.", "Go on."]]
    assert [each["id"] for each in pieces(found[0].path)[-1]["tool_calls"]] == ["c1", "c2"]


def test_of_two_answers_the_first_counts(tmp_path: Path) -> None:
    one = begun()
    one.act("r1", "c1")
    one.add("AgentErrorEvent", error="Lost.", tool_name="terminal", tool_call_id="c1")
    one.answer("c1", "late")
    one.said("Done.", "r2")
    assert [words(each) for each in messages(read_one(one, tmp_path)[1])[3:]] == [["Lost."]]


def test_a_branch_leaves_out_what_was_abandoned(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    leaf = one.head
    one.act("r2", "c2", "Killed here.")
    one.head = leaf
    one.user("Again.")
    one.turn("r3", "c3")
    found = read_one(one, tmp_path)
    assert [call.kind for call in found] == ["turn", "turn", "fold"]
    assert roles(found[2]) == "suatu"
    assert words(messages(found[2])[-1]) == ["Again."]


def test_a_new_root_begins_anew(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    one.head = "__root__"
    one.user("From the start.")
    one.said("Done.", "r2")
    found = read_one(one, tmp_path)
    assert [words(each) for each in messages(found[1])] == [["From the start."]]


def test_without_a_tree_events_follow_one_another(tmp_path: Path) -> None:
    one = begun(tree=False)
    one.turn("r1", "c1")
    one.add("ConversationStateUpdateEvent", key="x", value=1)
    one.said("Done.", "r2")
    assert roles(read_one(one, tmp_path)[1]) == "suat"


def test_folds_are_applied_one_after_the_other(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    first = one.add(
        "Condensation",
        forgotten_event_ids=[one.events[at]["id"] for at in (2, 3)],
        summary="The sill is dry.",
        summary_offset=2,
        llm_response_id="f1",
    )
    one.used("f1", usage(700, 40), name="condenser")
    one.turn("r2", "c2")
    one.add(
        "Condensation",
        forgotten_event_ids=[f"{first}-summary"],
        summary="All is dry.",
        summary_offset=99,
        llm_response_id="f2",
    )
    one.turn("r3", "c3")
    found = read_one(one, tmp_path)
    assert [call.kind for call in found] == ["turn", "compaction", "fold", "compaction", "fold"]
    assert words(messages(found[2])[1]) == ["Check the sill.", "The sill is dry."]
    assert roles(found[4]) == "suatu"
    assert words(messages(found[4])[-1]) == ["All is dry."]
    fold = found[1]
    assert (fold.fidelity, fold.logged_prompt_tokens) == ("compaction_estimated", 700)
    assert messages(fold) == [200]
    assert pieces(fold.path)[-1]["content"] == "The sill is dry."
    assert pieces(fold.prompt)[0] != pieces(found[0].prompt)[0]


def test_a_fold_without_anything_to_forget_is_taken_as_it_is(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    one.add(
        "Condensation",
        forgotten_event_ids=[],
        summary="Nothing.",
        summary_offset=122,
        llm_response_id="f1",
    )
    one.said("Done.", "r2")
    assert roles(read_one(one, tmp_path)[2]) == "suatu"


def test_a_fold_without_a_summary_only_forgets(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    ids = [one.events[at]["id"] for at in (2, 3)]
    one.add("Condensation", forgotten_event_ids=ids, llm_response_id="f1")
    one.said("Done.", "r2")
    assert roles(read_one(one, tmp_path)[2]) == "su"


@pytest.mark.parametrize("hours", [0.0, 5.5, -8.0, 13.0])
def test_the_zone_follows_from_costs(tmp_path: Path, hours: float) -> None:
    one = begun(zone_hours=hours)
    one.turn("r1", "c1", usage(900))
    call = read_one(one, tmp_path)[0]
    action = BEGAN + timedelta(seconds=3)
    assert call.end_us == round((epoch(action, hours) - 0.01) * 1e6)
    assert call.start_us == call.end_us - 500_000
    assert call.time_source == "logged"


def test_costs_of_some_responses_only_tell_the_zone_alone(tmp_path: Path) -> None:
    one = begun(zone_hours=2.0)
    one.turn("r1", "c1", usage(900))
    one.act("r2", "c2")
    one.used("r2", usage(950), cost=False)
    found = read_one(one, tmp_path)
    action = BEGAN + timedelta(seconds=5)
    assert found[1].end_us == round(epoch(action, 2.0) * 1e6)
    assert found[1].start_us == found[1].end_us - 500_000


def test_without_costs_the_files_tell_the_zone(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1")
    path = one.write(tmp_path / "a")
    for number, file in enumerate(sorted((path.parent / "events").iterdir())):
        at = epoch(BEGAN + timedelta(seconds=number + 1), 3.0) + 0.002
        os.utime(file, (at, at))
    call = read(path)[0]
    assert call.end_us == round(epoch(BEGAN + timedelta(seconds=3), 3.0) * 1e6)
    for file in (path.parent / "events").iterdir():
        os.utime(file, (1.8e9, 1.8e9))
    assert read(path)[0].end_us == round(epoch(BEGAN + timedelta(seconds=3)) * 1e6)


def test_a_killed_run_lacks_the_usage_of_its_last_call(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", usage(900))
    one.act("r2", "c2")
    found = read_one(one, tmp_path)
    assert (found[1].logged_prompt_tokens, found[1].usage_source) == (None, "none")
    assert found[1].start_us == round(epoch(BEGAN + timedelta(seconds=4)) * 1e6)
    assert found[1].end_us == round(epoch(BEGAN + timedelta(seconds=5)) * 1e6)


def test_lists_of_other_lengths_are_joined_by_response(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", usage(900))
    one.act("r2", "c2")
    one.used("r2", usage(950), cost=False)
    one.answer("c2", "x")
    one.turn("r3", "c3", usage(990))
    del one.metrics["agent"]["token_usages"][1]
    found = read_one(one, tmp_path)
    assert [call.logged_prompt_tokens for call in found] == [900, None, 990]


def test_old_and_new_accounting_of_what_was_written(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", usage(4, 20, 0, 6553))
    one.turn("r2", "c2", usage(6559, 20, 6557, 210))
    one.turn("r3", "c3", usage(7000, 20, 6557, 400))
    one.turn("r4", "c4", usage(100, 20, 6900))
    found = read_one(one, tmp_path)
    assert [call.logged_prompt_tokens for call in found] == [6557, 6769, 7000, 7000]
    assert [call.logged_cached_tokens for call in found] == [0, 6557, 6557, 6900]


def test_usage_of_remote_runs_is_what_totals_grew_by(tmp_path: Path) -> None:
    one = begun()

    def snapshot(prompt: int, output: int) -> None:
        totals = {"accumulated_token_usage": usage(prompt, output)}
        value = {"usage_to_metrics": {"agent": totals, "task:1": totals}}
        one.add("ConversationStateUpdateEvent", key="stats", value=value)

    snapshot(596, 20)
    one.turn("r1", "c1")
    snapshot(35895, 50)
    one.turn("r2", "c2")
    found = read_one(one, tmp_path)
    assert [call.logged_prompt_tokens for call in found] == [596, 35299]
    assert [call.output_tokens for call in found] == [20, 30]
    assert roles(found[1]) == "suat"


def test_sub_agents_are_sessions_and_their_usage_counts_once(tmp_path: Path) -> None:
    one = begun()
    task = {"prompt": "Count the sills.", "subagent_type": "reader", "kind": "TaskAction"}
    one.act("r1", "c1", action=task)
    one.used("r1", usage(900))
    child = Conversation(clock=one.clock)
    child.system("You count.")
    child.user("Count the sills.")
    child.turn("k1", "c1", usage(500))
    one.metrics["task:task_1"] = child.metrics["agent"]
    other = Conversation(clock=one.clock)
    other.user("Whose task?")
    other.said("Mine.", "k2")
    parent = one.write(tmp_path / ("a" * 32))
    child.write(parent.parent / "subagents" / ("b" * 32))
    other.write(parent.parent / "subagents" / ("c" * 32))
    found = sorted(read(*paths.find(tmp_path)), key=lambda call: call.session)
    assert [(call.session[0], call.agent, call.kind) for call in found] == [
        ("a", "openhands", "turn"),
        ("b", "openhands:reader", "subagent"),
        ("c", "openhands:subagent", "subagent"),
    ]
    assert [call.parent_session for call in found] == [None, "a" * 32, "a" * 32]
    assert [call.logged_prompt_tokens for call in found] == [900, 500, None]


def test_delegates_have_the_types_they_were_spawned_with(tmp_path: Path) -> None:
    one = begun()
    spawn = {"kind": "DelegateAction", "ids": ["x"], "agent_types": ["writer"]}
    one.act("r1", "c1", action=spawn)
    one.act("r1", "c2", action={"kind": "DelegateAction", "tasks": {"x": "Write."}})
    child = Conversation()
    child.user("Write.")
    child.said("Yes.", "k1")
    parent = one.write(tmp_path / ("a" * 32))
    child.write(parent.parent / "subagents" / ("b" * 32))
    agents = {call.session[0]: call.agent for call in read(*paths.find(tmp_path))}
    assert agents == {"a": "openhands", "b": "openhands:writer"}


def test_what_a_fork_copied_is_no_call_of_its_own(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", usage(900))
    copied = one.write(tmp_path / ("b" * 32))
    fork = Conversation(events=list(one.events), clock=one.clock, head=one.head)
    fork.user("Elsewhere.")
    fork.turn("r2", "c2", usage(950))
    # The fork's name sorts first: whose metrics have the call decides.
    mine = fork.write(tmp_path / ("a" * 32))
    notes = Notes(strict=True)
    found = sorted(read(mine, copied, notes=notes), key=lambda call: call.session)
    assert [(call.session[0], call.kind, call.parent_session) for call in found] == [
        ("a", "fork", "b" * 32),
        ("b", "turn", None),
    ]
    assert notes.counts["deduplicated calls"] == 1
    assert roles(found[0]) == "suatu"


def test_completions_inside_the_stream_of_events(tmp_path: Path) -> None:
    one = begun()
    sent = [role("system", "As it was sent."), role("user", "Check the sill.")]
    data = completion(sent, "r1", at=epoch(one.clock), tokens=usage(900), reply=asks("c1"))
    one.add(
        "LLMCompletionLogEvent",
        source="environment",
        filename=f"made__model-1-{epoch(one.clock):.3f}-0000.json",
        log_data=json.dumps(data),
    )
    one.turn("r1", "c1")
    found = read_one(one, tmp_path)
    assert len(found) == 1
    assert messages(found[0]) == sent
    assert found[0].logged_prompt_tokens == 900


def test_heads_are_shared_by_equal_tools_only(tmp_path: Path) -> None:
    heads = []
    other = [{"title": "terminal", "description": "Run a command in /repo/two."}]
    for number, tools in enumerate((None, None, other)):
        one = Conversation()
        one.system(tools=tools) if tools else one.system()
        one.user("Check.")
        one.said("Done.", f"r{number}")
        heads.append(pieces(read(one.write(tmp_path / str(number)))[0].prompt)[0])
    assert heads[0] == heads[1] != heads[2]


def test_an_image_is_sized_not_read(tmp_path: Path) -> None:
    one = begun()
    one.act("r1", "c1")
    size = (800).to_bytes(4, "big") + (600).to_bytes(4, "big")
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x0dIHDR" + size + bytes(75_000)
    data = base64.b64encode(png).decode()
    one.answer("c1", "page", kind="BrowserObservation", screenshot_data=data)
    one.said("Done.", "r2")
    call = read_one(one, tmp_path)[1]
    assert words(messages(call)[3]) == ["page"]
    assert messages(call)[3]["content"][1] == {"type": "image_url"}
    assert messages(call)[4] == 25 * 19
    assert call.prompt.content.startswith(b"image\0")
