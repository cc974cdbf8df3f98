"""Rules of OpenHands' first generation, each with the right value."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.openhands import calls, paths
from agentkv_trace.notes import Notes
from openhands_logs import BEGAN, Old, epoch, messages, pieces, role, roles, text, words

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall

Json = dict[str, Any]


def read(*files: Path, notes: Notes | None = None) -> list[LoggedCall]:
    return list(calls.read(files, notes or Notes(strict=True)))


def read_one(one: Old, folder: Path) -> list[LoggedCall]:
    return read(one.write(folder / "sessions" / "s1"))


def spent(prompt: int, output: int = 20, cached: int = 0, **more: int) -> Json:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": output, **details, **more}


def begun(**fields: Any) -> Old:
    one = Old(**fields)
    one.system()
    one.message("Check the sill.")
    return one


def test_a_conversation_becomes_calls(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", spent(1000, 20, 512))
    one.turn("r2", "c2", spent(1200, 30, 1024))
    found = read_one(one, tmp_path)
    assert [(call.session, call.agent, call.model) for call in found] == [
        ("s1", "openhands", "model-1")
    ] * 2
    assert [
        (call.logged_prompt_tokens, call.logged_cached_tokens, call.output_tokens) for call in found
    ] == [(1000, 512, 20), (1200, 1024, 30)]
    assert messages(found[0]) == [
        role("system", "You keep the tide tables."),
        role("user", "Check the sill."),
    ]
    assert roles(found[1]) == "suat"
    assert messages(found[1])[3] == {
        "content": [text("result of c1")],
        "role": "tool",
        "tool_call_id": "c1",
        "name": "run",
    }
    assert pieces(found[0].path) == pieces(found[1].prompt)[:-1]


def test_one_response_is_one_call_whatever_its_actions(tmp_path: Path) -> None:
    one = begun()
    response = one.response("r1", ["c1", "c2"], "Both.", spent(900))
    for call in ("c1", "c2"):
        one.act(response, call, command=call)
        one.answer(response, call, f"result of {call}")
    one.message("Done.", "agent")
    found = read_one(one, tmp_path)
    assert len(found) == 2
    # The response is sent once all its calls are answered, answers in the order of calls.
    assert roles(found[1]) == "suatt"
    assert [each["id"] for each in messages(found[1])[2]["tool_calls"]] == ["c1", "c2"]


def test_a_response_that_is_answered_in_part_is_not_sent(tmp_path: Path) -> None:
    one = begun()
    response = one.response("r1", ["c1", "c2"], "Both.", spent(900))
    one.act(response, "c1")
    one.answer(response, "c1", "only this")
    one.message("And now?")
    one.message("Done.", "agent")
    found = read_one(one, tmp_path)
    assert [words(each) for each in messages(found[1])[1:]] == [
        ["Check the sill."],
        ["\n\nAnd now?"],
    ]


def test_events_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    one = begun()
    for number in range(6):
        one.turn(f"r{number}", f"c{number}", spent(900 + number))
    found = read_one(one, tmp_path)
    assert [call.logged_prompt_tokens for call in found] == [900, 901, 902, 903, 904, 905]


def test_what_is_never_sent(tmp_path: Path) -> None:
    one = begun()
    one.add("agent", action="change_agent_state", args={"agent_state": "running"})
    one.add("environment", observation="agent_state_changed", content="", extras={})
    one.add("agent", action="null", args={})
    one.message("Done.", "agent")
    found = read_one(one, tmp_path)
    assert (len(found), roles(found[0])) == (1, "su")


def test_a_command_s_answer_and_what_the_user_ran(tmp_path: Path) -> None:
    one = begun()
    one.add("user", action="run", args={"command": "ls"})
    shell = {"metadata": {"exit_code": 2, "working_dir": "/work", "prefix": "", "suffix": "!"}}
    one.add("user", observation="run", content="a b", extras=shell)
    response = one.response("r1", ["c1"], "", spent(900))
    one.act(response, "c1")
    one.answer(response, "c1", "x" * 40_000, extras=shell)
    one.message("Done.", "agent")
    sent = messages(read_one(one, tmp_path)[1])
    told = "a b!\n[Current working directory: /work]\n[Command finished with exit code 2]"
    assert [words(each) for each in sent[2:4]] == [
        ["\n\nUser executed the command:\nls"],
        [f"\n\n\nObserved result of command executed by user:\n{told}"],
    ]
    assert sent[4]["content"] == []
    long = words(sent[5])[0]
    assert long.startswith("x" * 15_000 + "\n[... Observation truncated due to length ...]\n")
    assert long.endswith("[Command finished with exit code 2]")


@pytest.mark.parametrize(
    ("kind", "content", "extras", "told"),
    [
        ("error", "No such file", {}, "No such file\n[Error occurred in processing last action]"),
        (
            "user_rejected",
            "no",
            {},
            "OBSERVATION:\nno\n[Last action has been rejected by the user]",
        ),
        ("think", "Noted.", {}, "Noted."),
        ("delegate", "raw", {"outputs": {"content": "Two sills."}}, "Two sills."),
        (
            "run_ipython",
            "a\n![image](data:image/png;base64,AAAA)",
            {},
            "a\n![image](data:image/png;base64, ...) already displayed to user",
        ),
    ],
)
def test_answers_of_other_kinds(
    tmp_path: Path, kind: str, content: str, extras: Json, told: str
) -> None:
    one = begun()
    response = one.response("r1", ["c1"], "Go.", spent(900))
    one.act(response, "c1", action="think")
    one.answer(response, "c1", content, kind, extras=extras)
    one.message("Done.", "agent")
    assert words(messages(read_one(one, tmp_path)[1])[3]) == [told]


def test_recalls_are_users_messages_with_each_agent_once(tmp_path: Path) -> None:
    one = begun()
    known = [{"name": "git", "trigger": "git", "content": "How to commit."}]
    extras = {"recall_type": "workspace_context", "repo_name": "tides", "date": "2026-03-01"}
    one.add("user", action="recall", args={"query": "x"})
    one.add("environment", observation="recall", content="", extras=extras)
    for _ in range(2):
        told = {"recall_type": "knowledge", "microagent_knowledge": known}
        one.add("environment", observation="recall", content="", extras=told)
    one.message("Done.", "agent")
    call = read_one(one, tmp_path)[0]
    assert [words(each) for each in messages(call)[2:]] == [
        ["\n\nrepo_name: tides\ndate: 2026-03-01"],
        ["\n\ngit\nHow to commit."],
    ]
    assert call.fidelity == "output_reformatted"


def test_the_end_of_a_task_is_a_message(tmp_path: Path) -> None:
    one = begun()
    response = one.response("r1", ["c1"], "Said.", spent(900))
    one.act(response, "c1", action="finish", thought="Thought.")
    one.message("More.")
    one.message("Done.", "agent")
    sent = messages(read_one(one, tmp_path)[1])
    assert sent[2] == role("assistant", "Thought.\nSaid.")


@pytest.mark.parametrize("hours", [0.0, -5.0, 5.75])
def test_the_zone_follows_from_when_responses_were_made(tmp_path: Path, hours: float) -> None:
    one = begun(zone_hours=hours)
    one.turn("r1", "c1", spent(900))
    call = read_one(one, tmp_path)[0]
    assert call.end_us == round(epoch(BEGAN + timedelta(seconds=3), hours) * 1e6)
    assert call.start_us == round(epoch(BEGAN + timedelta(seconds=2), hours) * 1e6)
    assert call.time_source == "logged"


def test_old_accounting_leaves_out_what_was_written(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", spent(4, cached=0, cache_creation_input_tokens=6553))
    one.turn("r2", "c2", spent(6559, cached=6557, cache_creation_input_tokens=210))
    one.turn("r3", "c3", spent(7000, cached=6557, cache_creation_input_tokens=443))
    found = read_one(one, tmp_path)
    assert [call.logged_prompt_tokens for call in found] == [6557, 6769, 7000]


def test_usage_of_a_plain_message_is_what_totals_grew_by(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", spent(900))
    one.events[2]["llm_metrics"] = {"accumulated_token_usage": spent(900, 20)}
    totals = {"accumulated_token_usage": spent(2100, 55)}
    one.message("Done.", "agent", llm_metrics=totals)
    found = read_one(one, tmp_path)
    assert (found[1].logged_prompt_tokens, found[1].output_tokens) == (1200, 35)


def test_a_condensation_forgets_and_the_last_summary_counts(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", spent(900))
    one.add(
        "agent",
        action="condensation",
        args={"forgotten_event_ids": [2], "summary": "First.", "summary_offset": 1},
    )
    one.turn("r2", "c2", spent(800))
    ids = {"forgotten_events_start_id": 3, "forgotten_events_end_id": 4}
    one.add(
        "agent",
        action="condensation",
        args={**ids, "summary": "Second.", "summary_offset": 2},
        llm_metrics={"accumulated_token_usage": spent(400, 30)},
    )
    one.turn("r3", "c3", spent(850))
    found = read_one(one, tmp_path)
    assert [call.kind for call in found] == ["turn", "compaction", "fold", "compaction", "fold"]
    # The first user's message is put before a summary that took its place.
    assert [words(each) for each in messages(found[2])[1:]] == [
        ["Check the sill."],
        ["\n\nFirst."],
        ["\n\nCheck the sill."],
    ]
    assert [words(each) for each in messages(found[4])[1:3]] == [
        ["Check the sill."],
        ["\n\nSecond."],
    ]
    assert roles(found[4]) == "suuat"
    assert (found[3].fidelity, found[3].logged_prompt_tokens) == ("compaction_estimated", 400)


def test_a_summary_far_behind_the_end_goes_to_the_end(tmp_path: Path) -> None:
    one = begun()
    args = {"forgotten_event_ids": [], "summary": "Bogus.", "summary_offset": 122}
    one.add("agent", action="condensation", args=args)
    one.message("Done.", "agent")
    found = read_one(one, tmp_path)
    assert words(messages(found[1])[-1]) == ["\n\nBogus."]


def test_forgetting_without_a_summary_takes_no_call(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", spent(900))
    one.add("agent", action="condensation", args={"forgotten_event_ids": [2, 3]})
    one.message("Done.", "agent")
    found = read_one(one, tmp_path)
    assert [(call.kind, roles(call)) for call in found] == [("turn", "su"), ("fold", "su")]


def test_a_delegate_is_a_session_and_its_events_are_not_its_parent_s(tmp_path: Path) -> None:
    one = begun()
    asked = one.response("r1", ["c1"], "Ask.", spent(900))
    one.act(asked, "c1", action="delegate", agent="BrowsingAgent", inputs={})
    one.system("You browse.")
    one.message("TASK: browse")
    one.turn("k1", "d1", spent(300))
    one.turn("k2", "d2", spent(350))
    one.answer(asked, "c1", "", "delegate", extras={"outputs": {"content": "Browsed."}})
    one.turn("r2", "c2", spent(950))
    found = read_one(one, tmp_path)
    child = [call for call in found if call.session != "s1"]
    mine = [call for call in found if call.session == "s1"]
    assert {(call.session, call.agent, call.parent_session) for call in child} == {
        ("s1-delegate", "openhands:BrowsingAgent", "s1")
    }
    assert [call.kind for call in child] == ["subagent", "turn"]
    assert [roles(call) for call in child] == ["su", "suat"]
    assert [roles(call) for call in mine] == ["su", "suat"]
    assert words(messages(mine[1])[3]) == ["Browsed."]


def test_tools_that_are_logged_are_read(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
    one = Old()
    one.system(tools=tools)
    one.message("Check.")
    one.message("Done.", "agent")
    assert messages(read_one(one, tmp_path)[0])[0] == tools[0]


def evaluation(one: Old, **fields: Any) -> Json:
    return {
        "instance_id": "tides-7",
        "instruction": "Check the sill.",
        "metadata": {"llm_config": {"model": "made/one", "max_message_chars": 100}},
        "history": one.events,
        "metrics": {},
        **fields,
    }


def test_an_evaluation_has_a_conversation_a_line(tmp_path: Path) -> None:
    one = begun()
    one.turn("r1", "c1", {}, "y" * 500)
    one.turn("r2", "c2", spent(990))
    pairs = [one.events[:1], one.events[1:2], one.events[2:4], one.events[4:]]
    metrics = {
        "token_usages": [
            {"model": "made/one", "prompt_tokens": 910, "completion_tokens": 5, "response_id": "r1"}
        ],
        "response_latencies": [
            {"model": "made/one", "latency": 0.25, "response_id": "r1"},
            {"model": "made/one", "latency": 0.5, "response_id": "lost"},
        ],
        "costs": [],
    }
    path = tmp_path / "output.jsonl"
    rows = [
        evaluation(one, history=pairs, metrics=metrics),
        evaluation(one, instance_id="tides-8", attempt=2, history=begun().events),
        evaluation(one, history=[{"action": "run", "message": "no stamps"}], instance_id="old"),
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    notes = Notes()
    assert paths.looks_like(path, path.read_bytes())
    found = read(path, notes=notes)
    assert [(call.session, call.model) for call in found] == [
        ("tides-7", "made/one"),
        ("tides-7", "model-1"),
    ]
    assert [call.logged_prompt_tokens for call in found] == [910, 990]
    assert found[0].end_us - found[0].start_us == 250_000
    assert len(words(messages(found[1])[3])[0]) == 100 + len(
        "\n[... Observation truncated due to length ...]\n"
    )
    assert notes.skipped == {"evaluation without events that tell of calls": 1}
    assert notes.examples == {"evaluation without events that tell of calls": [f"{path}:3"]}


def test_a_condenser_s_usage_is_in_an_evaluation_s_metrics(tmp_path: Path) -> None:
    one = begun()
    args = {"forgotten_event_ids": [], "summary": "Short.", "summary_offset": 2}
    one.add("agent", action="condensation", args=args)
    one.message("Done.", "agent")
    told = [{"response": {"usage": spent(777, 33)}, "metrics": {}}]
    path = tmp_path / "output.jsonl"
    path.write_text(json.dumps(evaluation(one, metrics={"condenser": told})))
    call = read(path)[0]
    assert (call.kind, call.logged_prompt_tokens, call.output_tokens) == ("compaction", 777, 33)


def test_an_exported_trajectory_is_a_conversation_with_a_name_of_its_own(tmp_path: Path) -> None:
    one = Old()
    one.message("Check the sill.")
    one.turn("r1", "c1", spent(900))
    for name in ("a.json", "copy of a.json"):
        (tmp_path / name).write_text(json.dumps(one.events, indent=1))
    found = paths.find(tmp_path)
    assert [path.name for path in found] == ["a.json", "copy of a.json"]
    notes = Notes(strict=True)
    calls_ = read(*found, notes=notes)
    assert len(calls_) == 1
    assert notes.counts["deduplicated calls"] == 1
    assert len(calls_[0].session) == 16
    # Older exports have no system message.
    assert roles(calls_[0]) == "u"
