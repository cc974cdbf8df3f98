"""OpenHands' completions, both kinds of logs together, where logs are, and logs that lie."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.openhands import calls, files, paths
from agentkv_trace.notes import Notes
from openhands_logs import (
    BEGAN,
    Conversation,
    Old,
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
    write_completions,
)

if TYPE_CHECKING:
    from agentkv_trace.trace.call import LoggedCall

Json = dict[str, Any]
NOW = epoch(BEGAN)
SYSTEM = role("system", "You keep the tide tables.")


def read(*paths_: Path, notes: Notes | None = None) -> list[LoggedCall]:
    return list(calls.read(paths_, notes or Notes(strict=True)))


def chain(name: str, turns: int, first: str = "Check the sill.", at: float = NOW) -> list[Json]:
    """Return the completions of a conversation that only grows."""
    sent = [SYSTEM, role("user", first)]
    found = []
    for number in range(turns):
        call = f"{name}-c{number}"
        reply = asks(call, f"Now {call}.")
        tokens = {"prompt_tokens": 900 + number, "completion_tokens": 9}
        response, when = f"{name}-r{number}", at + number
        found.append(completion(list(sent), response, at=when, tokens=tokens, reply=reply))
        said = {"content": [text(f"Now {call}.")], "role": "assistant"}
        sent += [said | {"tool_calls": reply["tool_calls"]}, tool(call, f"result of {call}")]
    return found


# Completions


def test_completions_are_calls_as_they_were_sent(tmp_path: Path) -> None:
    folder = write_completions(tmp_path / "completions", chain("a", 3))
    assert paths.find(tmp_path) == [folder]
    found = read(folder)
    assert [roles(call) for call in found] == ["su", "suat", "suatat"]
    assert [call.logged_prompt_tokens for call in found] == [900, 901, 902]
    assert len({call.session for call in found}) == 1
    assert [(call.model, call.kind, call.time_source) for call in found] == [
        ("made/model-1", "turn", "logged")
    ] * 3
    assert [(call.start_us, call.end_us) for call in found[:1]] == [
        (round((NOW - 0.5) * 1e6), round(NOW * 1e6))
    ]
    assert pieces(found[0].path) == pieces(found[1].prompt)[:-1]
    assert pieces(found[2].path)[-1]["tool_calls"] == asks("a-c2")["tool_calls"]


def test_conversations_in_one_folder_are_told_apart_by_their_replies(tmp_path: Path) -> None:
    one, other = chain("a", 3), chain("b", 3, at=NOW + 0.3)
    new = chain("n", 1, "Something else.", at=NOW + 0.6)
    found = read(write_completions(tmp_path / "c", [*one, *other, *new]))
    groups: dict[str, list[int | None]] = {}
    for call in found:
        groups.setdefault(call.session, []).append(call.logged_prompt_tokens)
    assert sorted(map(len, groups.values())) == [1, 3, 3]


def test_a_fold_belongs_to_the_conversation_whose_summary_and_calls_it_holds(
    tmp_path: Path,
) -> None:
    grown = chain("a", 3)
    begun = "You are maintaining a context-aware state summary for the harbour."
    condenser = [role("system", begun), role("user", "<EVENT>...</EVENT>")]
    said = {"role": "assistant", "content": "The sill is dry."}
    tokens = {"prompt_tokens": 300, "completion_tokens": 8}
    fold = completion(condenser, "f1", at=NOW + 5, reply=said, tools=None, tokens=tokens)
    kept = grown[2]["messages"][4:]
    first = {"content": [text("Check the sill."), text("The sill is dry.")], "role": "user"}
    after = completion([SYSTEM, first, *kept], "a-r9", at=NOW + 6, tokens=tokens)
    found = read(write_completions(tmp_path / "c", [*grown, fold, after]))
    assert [call.kind for call in found] == ["turn", "turn", "turn", "compaction", "fold"]
    assert len({call.session for call in found}) == 1
    assert found[3].fidelity == "exact"
    assert pieces(found[3].prompt)[0] != pieces(found[0].prompt)[0]


def test_a_sub_agent_is_told_by_its_task(tmp_path: Path) -> None:
    arguments = json.dumps({"prompt": "Count the sills.", "subagent_type": "reader"})
    function = {"name": "task", "arguments": arguments}
    reply = {"role": "assistant", "tool_calls": [{"id": "t1", "function": function}]}
    asked = completion([SYSTEM, role("user", "Go.")], "r1", at=NOW, reply=reply)
    sent = [role("system", "You count."), role("user", "Count the sills.")]
    child = completion(sent, "k1", at=NOW + 1)
    found = read(write_completions(tmp_path / "c", [asked, child]))
    assert [(call.agent, call.kind) for call in found] == [
        ("openhands", "turn"),
        ("openhands:reader", "subagent"),
    ]
    assert found[1].parent_session == found[0].session


def test_a_session_id_in_the_request_counts(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "run"}}]
    found = []
    for number in range(2):
        body = {"tools": tools, "extra_body": {"metadata": {"session_id": "s9"}}}
        sent = [role("user", f"Unlike {number}.")]
        found.append(completion(sent, f"r{number}", at=NOW + number, tools=None, kwargs=body))
        for key in ("context_window", "latency_sec"):
            del found[-1][key]
    read_ = read(write_completions(tmp_path / "c", found))
    assert [(call.session, call.kind, call.time_source) for call in read_] == [
        ("s9", "turn", "estimated"),
        ("s9", "fold", "estimated"),
    ]
    # Tools of the first generation are logged whole: they are read, not hidden.
    assert messages(read_[0])[0] == tools[0]


def test_forms_before_and_after_conversion_do_not_count(tmp_path: Path) -> None:
    sent = [role("user", "As it went out.")]
    one = completion(sent, "r1", at=NOW, fncall_messages=[role("user", "Before.")])
    one |= {"raw_messages": [role("user", "Raw.")], "fncall_response": {"id": "other"}}
    assert messages(read(write_completions(tmp_path / "c", [one]))[0]) == sent


def test_the_responses_api_has_instructions_and_input(tmp_path: Path) -> None:
    one = completion([], "r1", at=NOW, llm_path="responses", instructions="Keep the tables.")
    del one["messages"]
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    one["input"] = [item | {"id": "msg_1"}]
    output = [
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "run", "arguments": "{}"}
    ]
    used = {"input_tokens": 70, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 5}
    one["response"] = {"id": "r1", "output": output, "usage": used}
    call = read(write_completions(tmp_path / "c", [one]))[0]
    assert messages(call) == ["Keep the tables.", item]
    assert pieces(call.path)[-1] == {
        "type": "function_call",
        "call_id": "c1",
        "name": "run",
        "arguments": "{}",
    }
    assert (call.logged_prompt_tokens, call.logged_cached_tokens) == (70, 64)


def test_failed_and_damaged_completions_lose_no_others(tmp_path: Path) -> None:
    folder = write_completions(tmp_path / "c", chain("a", 2))
    failed = {"messages": [], "error": {"type": "Timeout"}, "timestamp": NOW, "latency_sec": 3}
    (folder / f"made__model-1-{NOW:.3f}-abcd-error.json").write_text(json.dumps(failed))
    (folder / f"made__model-1-{NOW:.3f}-0bad.json").write_text('{"messages": [{"ro')
    (folder / f"made__model-1-{NOW:.3f}-0bae.json").write_bytes(b"\0" * 64)
    (folder / f"made__model-1-{NOW:.3f}-0baf.json").write_bytes(b"")
    (folder / "notes.json").write_text("{}")
    notes = Notes()
    assert len(read(folder, notes=notes)) == 2
    assert notes.counts["failed requests"] == 1
    assert notes.skipped == {"damaged completion": 1, "file of NUL bytes": 1, "empty file": 1}


def test_caching_marks_do_not_change_a_message(tmp_path: Path) -> None:
    found = chain("a", 2)
    marked = {"cache_control": {"type": "ephemeral"}}
    found[0]["messages"] = [
        SYSTEM,
        {"content": [text("Check the sill.") | marked], "role": "user"},
    ]
    read_ = read(write_completions(tmp_path / "c", found))
    assert pieces(read_[0].prompt) == pieces(read_[1].prompt)[:3]


# Events and completions


def both(tmp_path: Path) -> tuple[Path, Path]:
    one = Conversation()
    one.system()
    one.user("Check the sill.")
    for number in range(2):
        one.turn(f"a-r{number}", f"a-c{number}", usage(900 + number))
    state = one.write(tmp_path / ("0" * 32))
    return state, write_completions(tmp_path / "c", chain("a", 3, at=NOW + 3))


def test_together_each_call_counts_once_and_completions_are_the_prompts(tmp_path: Path) -> None:
    state, folder = both(tmp_path)
    notes = Notes(strict=True)
    found = read(state, folder, notes=notes)
    assert [call.session for call in found] == ["0" * 32] * 3
    assert [call.logged_prompt_tokens for call in found] == [900, 901, 902]
    assert notes.counts["calls"] == 3
    assert [pieces(call.prompt) for call in found[:2]] == [
        pieces(call.prompt) for call in read(state)
    ]
    # A response that left no event still belongs where its prompt goes on.
    assert roles(found[2]) == "suatat"


def test_completions_are_right_where_the_two_differ(tmp_path: Path) -> None:
    state, folder = both(tmp_path)
    for path in sorted(folder.iterdir()):
        path.write_text(path.read_text().replace("tide tables", "tide charts"))
    found = read(folder, state)
    assert messages(found[1])[0] == role("system", "You keep the tide charts.")
    assert pieces(found[0].path) == pieces(found[1].prompt)[:-1]


# Where they are


def test_roots() -> None:
    assert paths.roots({"HOME": "/h"}) == [
        Path("/h/.openhands/conversations"),
        Path("/h/.openhands/sessions"),
    ]
    env = {"HOME": "/h", "OPENHANDS_CONVERSATIONS_DIR": "/x", "FILE_STORE_PATH": "/y"}
    assert paths.roots(env) == [Path("/x"), Path("/y/sessions")]


def test_every_kind_of_log_is_found_once(tmp_path: Path) -> None:
    one = Conversation()
    one.user("Check.")
    one.said("Done.", "r1")
    old = Old()
    old.message("Check.")
    new = one.write(tmp_path / "conversations" / "1")
    child = one.write(tmp_path / "conversations" / "1" / "subagents" / "2")
    bare = one.write(tmp_path / "conversations" / "3", with_state=False)
    first = old.write(tmp_path / "sessions" / "s1")
    (first.parent.parent / "event_cache").mkdir()
    (first.parent.parent / "event_cache" / "0-25.json").write_text(json.dumps(old.events))
    folder = write_completions(tmp_path / "logs" / "completions", chain("a", 1))
    export = tmp_path / "trajectory.json"
    export.write_text(json.dumps(old.events))
    (tmp_path / "other.json").write_text('[{"name": "no event"}]')
    assert paths.find(tmp_path) == [new, child, bare, folder, first, export]
    for path in (new, bare, first, export, next(folder.iterdir())):
        assert paths.looks_like(path, path.read_bytes()[:4096])
    assert not paths.looks_like(Path("x.jsonl"), b'{"timestamp":"2026","type":"session_meta"}')


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    one = Conversation()
    one.user("Check.")
    outside = one.write(tmp_path / "outside")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "base_state.json").symlink_to(outside)
    assert paths.find(inside) == []


# Logs that lie


def made(tmp_path: Path) -> tuple[Path, list[Path]]:
    one = Conversation()
    one.system()
    one.user("Check the sill.")
    for number in range(3):
        one.turn(f"r{number}", f"c{number}", usage(900 + number))
    state = one.write(tmp_path / ("0" * 32))
    return state, sorted((state.parent / "events").iterdir())


def test_gaps_and_doubled_events_are_counted(tmp_path: Path) -> None:
    state, events = made(tmp_path)
    events[5].unlink()
    again = events[4].with_name("event-00004-ffffffff.json")
    again.write_bytes(events[4].read_bytes())
    notes = Notes(strict=True)
    found = read(state, notes=notes)
    assert len(found) == 3
    assert notes.counts["missing events"] == 1
    assert notes.counts["events with the same number"] == 1
    assert notes.counts["events with the same id"] == 1


def test_a_damaged_event_loses_no_other(tmp_path: Path) -> None:
    state, events = made(tmp_path)
    events[3].write_bytes(b"\0" * 300)
    events[5].write_bytes(b"")
    events[6].write_bytes(events[6].read_bytes()[:-30])
    notes = Notes()
    found = read(state, notes=notes)
    assert [call.logged_prompt_tokens for call in found] == [900, 901]
    assert notes.skipped == {"file of NUL bytes": 1, "empty file": 1, "damaged file": 1}
    assert notes.examples["empty file"] == [str(events[5])]
    with pytest.raises(InputError, match=str(events[3])):
        read(state)


def test_a_damaged_state_loses_no_event(tmp_path: Path) -> None:
    state, _ = made(tmp_path)
    state.write_bytes(b"\0" * 100)
    found = read(state, notes=Notes())
    assert [(call.usage_source, call.model) for call in found] == [("none", None)] * 3


def test_two_events_in_one_file_are_both_read(tmp_path: Path) -> None:
    state, events = made(tmp_path)
    events[4].write_bytes(events[4].read_bytes() + events[5].read_bytes())
    events[5].unlink()
    notes = Notes(strict=True)
    assert [roles(call) for call in read(state, notes=notes)] == ["su", "suat", "suatat"]


def test_an_event_that_was_cut_off_and_written_again_is_read_once(tmp_path: Path) -> None:
    state, events = made(tmp_path)
    whole = events[4].read_bytes()
    events[4].write_bytes(whole[:90] + whole)
    notes = Notes()
    assert [roles(call) for call in read(state, notes=notes)] == ["su", "suat", "suatat"]
    assert notes.skipped == {"damaged file": 1}


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (ran,))

    old = Old()
    old.message("Check.")
    old.message("Done.", "agent")
    first = old.write(tmp_path / "sessions" / "s1")
    trap = base64.b64encode(pickle.dumps(Trap()))
    for name in ("agent_state.pkl", "conversation_stats.pkl"):
        (first.parent.parent / name).write_bytes(trap)
    assert paths.find(tmp_path) == [first]
    notes = Notes()
    found = read(first, first.parent.parent / "agent_state.pkl", notes=notes)
    assert len(found) == 1
    assert notes.skipped == {"no log of OpenHands": 1}
    assert not ran.exists()


def test_a_huge_screenshot_is_shortened_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE", 3 << 20)
    state, events = made(tmp_path)
    huge = json.loads(events[3].read_text())
    huge["observation"]["kind"] = "BrowserObservation"
    huge["observation"]["screenshot_data"] = "iVBORw0KGgo" + "A" * (8 << 20)
    events[3].write_text(json.dumps(huge))
    notes = Notes(strict=True)
    found = read(state, notes=notes)
    assert [roles(call) for call in found] == ["su", "suat#", "suat#at"]
    assert notes.counts["bytes"] > 8 << 20


def test_shortening_keeps_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_STRING", 50)
    monkeypatch.setattr(files, "KEPT", 8)
    value = {'a"\\': ['x\\"' * 60, "A" * 100, ""], "data:": "data:image/png;base64," + "B" * 90}
    data = json.dumps(value).encode()
    for size in (1, 2, 7, 64, 1000):
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        found = json.loads(b"".join(files.shortened(parts)))
        assert found['a"\\'][0] == 'x\\"' * 60
        assert found['a"\\'][1][:8] == "A" * 8
        assert len(found['a"\\'][1]) == 8 + 32
        assert found["data:"].startswith("data:ima")
    other = json.dumps(value | {"data:": "data:image/png;base64," + "B" * 89 + "C"}).encode()
    assert json.loads(b"".join(files.shortened([other])))["data:"] != found["data:"]


def test_a_file_that_stays_too_large_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE", 1000)
    state, events = made(tmp_path)
    large = json.loads(events[7].read_text())
    large["observation"]["content"] = [text("not base64 " * 500)]
    events[7].write_text(json.dumps(large))
    notes = Notes()
    found = list(calls.read([events[0], state], notes))
    assert len(found) == 3
    assert notes.skipped["file too large"] >= 1
