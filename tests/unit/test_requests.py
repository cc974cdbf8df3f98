"""Raw request logs: records of any common shape, sessions by id or prefix, any usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.requests import calls, paths
from agentkv_trace.ingest.requests.times import micros, span_of
from agentkv_trace.ingest.requests.usage import Usage, usage_of
from agentkv_trace.notes import Notes
from openhands_logs import messages, pieces

if TYPE_CHECKING:
    from agentkv_trace.trace.call import LoggedCall

Json = dict[str, Any]
NOW = 1_790_000_000.0
US = 1_000_000
SYSTEM = {"role": "system", "content": "You keep the tide tables."}


def read(path: Path, *records: Json | str, notes: Notes | None = None) -> list[LoggedCall]:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    path.write_text("\n".join(lines))
    return list(calls.read([path], notes or Notes(strict=True)))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def user(words: str) -> Json:
    return {"role": "user", "content": words}


def assistant(words: str, *ids: str) -> Json:
    made = [{"id": name, "type": "function", "function": {"name": "run"}} for name in ids]
    return {"role": "assistant", "content": words} | ({"tool_calls": made} if made else {})


def tool(call: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": f"result of {call}"}


def chat(sent: list[Json], reply: Json, at: float = NOW, **fields: Any) -> Json:
    """Return a record of a chat request that took half a second."""
    usage = {"prompt_tokens": 100 + len(sent), "completion_tokens": 7}
    return {
        "start_time": at,
        "end_time": at + 0.5,
        "request": {"model": "m-1", "messages": sent},
        "response": {"id": f"r{at}", "choices": [{"message": reply}], "usage": usage},
        **fields,
    }


def grown(name: str, turns: int, at: float = NOW) -> list[Json]:
    """Return the records of a conversation that only grows."""
    sent = [SYSTEM, user("Check the sill.")]
    found = []
    for number in range(turns):
        reply = assistant("Now.", f"{name}{number}")
        found.append(chat(list(sent), reply, at + number))
        sent += [reply, tool(f"{name}{number}")]
    return found


# Shapes


def test_a_chat_request(log: Path) -> None:
    call = read(log, *grown("a", 2))[1]
    assert pieces(call.prompt)[0] == b"requests\x1fm-1"
    assert messages(call) == [SYSTEM, user("Check the sill."), assistant("Now.", "a0"), tool("a0")]
    assert (call.logged_prompt_tokens, call.output_tokens, call.usage_source) == (104, 7, "logged")
    assert (call.start_us, call.end_us) == (round((NOW + 1) * US), round((NOW + 1.5) * US))
    assert (call.time_source, call.source, call.agent) == ("logged", "requests", "requests")
    assert (call.model, call.kind, call.fidelity) == ("m-1", "turn", "exact")


def test_tools_then_system_then_messages(log: Path) -> None:
    tools = [{"name": "run", "input_schema": {}}]
    system = [{"type": "text", "text": "Keep.", "cache_control": {"type": "ephemeral"}}]
    body = {"messages": [user("Go.")], "system": system, "tools": tools, "model": "claude"}
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 7,
        "output_tokens": 5,
    }
    content = [{"type": "tool_use", "id": "t1", "name": "run", "input": {}}]
    call = read(log, {"body": body, "response": {"content": content, "usage": usage}})[0]
    assert messages(call) == [tools[0], [{"type": "text", "text": "Keep."}], user("Go.")]
    assert (call.logged_prompt_tokens, call.logged_cached_tokens) == (30, 20)
    assert pieces(call.path)[-1] == {"role": "assistant", "content": content}


def test_a_responses_request(log: Path) -> None:
    item = {"type": "message", "role": "user", "content": "Go.", "id": "msg_1"}
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "A" * 2000, "summary": []}
    used = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 16},
        "output_tokens": 9,
        "total_tokens": 59,
    }
    record = {
        "body": {"model": "m", "instructions": "Keep.", "input": [item, thought], "tools": []},
        "usage": used,
    }
    call = read(log, record)[0]
    assert messages(call)[0] == "Keep."
    assert "id" not in messages(call)[1]
    assert messages(call)[2:] == [{"type": "reasoning"}, 212]
    assert call.fidelity == "reasoning_opaque"
    assert (call.logged_prompt_tokens, call.logged_cached_tokens) == (50, 16)


def test_a_plain_text_input_is_a_user_s_message(log: Path) -> None:
    record = {"model": "m", "input": "Go.", "usage": {"input_tokens": 5, "output_tokens": 1}}
    assert messages(read(log, record)[0]) == [user("Go.")]


def test_a_prompt_by_reference_is_what_the_earlier_response_ended(log: Path) -> None:
    output = [{"type": "message", "role": "assistant", "id": "m1", "content": "Hm."}]
    used = {"input_tokens": 5, "output_tokens": 1}
    first = {
        "body": {"model": "m", "input": [user("One.")]},
        "response": {"id": "resp_1", "output": output, "usage": used},
        "t_start": NOW,
    }
    second = {
        "body": {"model": "m", "input": [user("Two.")], "previous_response_id": "resp_1"},
        "usage": used,
        "t_start": NOW + 1,
    }
    lost = {
        "body": {"model": "m", "input": [user("Three.")], "previous_response_id": "gone"},
        "usage": used,
        "t_start": NOW + 2,
    }
    found = read(log, first, second, lost)
    assert [each["content"] for each in messages(found[1])] == ["One.", "Hm.", "Two."]
    assert found[0].session == found[1].session != found[2].session
    assert (found[2].fidelity, messages(found[2])) == ("usage_only", [5])


def test_a_gateway_s_record(log: Path) -> None:
    record = {
        "id": "x",
        "session_id": "s-1",
        "call_type": "acompletion",
        "status": "success",
        "cache_hit": None,
        "startTime": NOW,
        "endTime": NOW + 2,
        "model": "m",
        "metadata": {"usage_object": {"prompt_tokens": 40, "completion_tokens": 4}},
        "prompt_tokens": 39,
        "completion_tokens": 4,
        "messages": [user("Go.")],
        "response": {"choices": [{"message": assistant("Ok.")}]},
        "model_parameters": {"temperature": 0},
    }
    cached = record | {"cache_hit": "True"}
    failed = record | {"status": "failure"}
    hidden = record | {"messages": "redacted-by-the-gateway", "session_id": "s-2"}
    notes = Notes(strict=True)
    found = read(log, record, cached, failed, hidden, notes=notes)
    assert [(call.session, call.logged_prompt_tokens, call.fidelity) for call in found] == [
        ("s-1", 40, "exact"),
        ("s-2", 40, "usage_only"),
    ]
    assert notes.counts["answers from a gateway's cache"] == 1
    assert notes.counts["failed requests"] == 1


def test_text_that_a_gateway_cut_is_sized_by_what_it_says(log: Path) -> None:
    cut = "a" * 700 + "... (litellm_truncated skipped 4000 chars. See docs.) ..." + "b" * 1300
    found = read(log, chat([user(cut)], assistant("x")), chat([user(cut)], assistant("x"), NOW + 9))
    size = len(json.dumps(user(cut), separators=(",", ":")))
    assert messages(found[0]) == [(size + 4000) // 4]
    assert found[0].prompt.content == found[1].prompt.content
    assert found[0].fidelity == "output_reformatted"


def test_a_proxy_s_record_with_a_stream(log: Path) -> None:
    start = {"message": {"id": "msg_1", "model": "claude", "usage": {"input_tokens": 9}}}
    start["message"]["usage"] |= {"cache_read_input_tokens": 90, "output_tokens": 1}
    end = {"type": "message_delta", "usage": {"output_tokens": 33}}
    stream = "".join(f"event: x\ndata: {json.dumps(each)}\n\n" for each in (start, end))
    record = {
        "request": {
            "timestamp": NOW,
            "method": "POST",
            "url": "x",
            "headers": {"X-Session-Id": "s-7"},
            "body": {"model": "claude", "messages": [user("Go.")]},
        },
        "response": {"timestamp": NOW + 1, "status_code": 200, "body_raw": stream},
        "logged_at": "2026-09-21T14:13:24.000Z",
    }
    orphan = record | {"response": {"timestamp": NOW + 1, "status_code": 529, "body": {}}}
    notes = Notes(strict=True)
    call = read(log, record, orphan, notes=notes)[0]
    assert (call.session, call.logged_prompt_tokens, call.output_tokens) == ("s-7", 99, 33)
    assert call.start_us == round(NOW * US)
    assert call.end_us == micros("2026-09-21T14:13:24Z")
    assert notes.counts["failed requests"] == 1


def test_a_stream_s_last_event_has_the_whole_response(log: Path) -> None:
    done = {"response": {"id": "r", "output": [assistant("Ok.")], "usage": {"input_tokens": 8}}}
    stream = f"data: {json.dumps({'type': 'x'})}\ndata: {json.dumps(done)}\ndata: [DONE]\n"
    record = {"body": {"model": "m", "input": [user("Go.")]}, "response": {"body": stream}}
    call = read(log, record)[0]
    assert (call.logged_prompt_tokens, pieces(call.path)[-1]) == (8, assistant("Ok."))


def test_fields_of_other_types_are_left_out(log: Path) -> None:
    record = chat([user("Go.")], assistant("x"))
    record["request"]["tools"] = {"size": 5}
    record["request"]["headers"] = "none"
    record["usage"] = "many"
    call = read(log, record)[0]
    assert (messages(call), call.logged_prompt_tokens) == ([user("Go.")], 101)


# What the model reads


def test_images_are_sized_not_read(log: Path) -> None:
    size = (800).to_bytes(4, "big") + (600).to_bytes(4, "big")
    import base64

    png = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + size + bytes(9000)).decode()
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{png}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    call = read(log, chat([{"role": "user", "content": parts}], assistant("x")))[0]
    message, *sizes = messages(call)
    assert sizes == [25 * 19] * 3
    assert [part["type"] for part in message["content"]] == [part["type"] for part in parts]
    assert message["content"][3] == parts[3]
    assert png[:99] not in json.dumps(message)


def test_marks_and_signatures_are_not_read(log: Path) -> None:
    def sent(mark: Json, signature: str) -> list[Json]:
        thought = {"type": "thinking", "thinking": "Hm.", "signature": signature}
        words = {"type": "text", "text": "Ok."} | mark
        return [user("Go."), {"role": "assistant", "content": [thought, words]}]

    marked = sent({"cache_control": {"type": "ephemeral"}}, "A" * 90)
    found = read(
        log, chat(marked, assistant("x")), chat(sent({}, "B" * 90), assistant("x"), NOW + 9)
    )
    assert pieces(found[0].prompt) == pieces(found[1].prompt)


def test_spaces_do_not_make_another_message(log: Path) -> None:
    one = json.dumps(chat([SYSTEM], assistant("x")))
    other = json.dumps(chat([SYSTEM], assistant("x"), NOW + 9), separators=(",", ":"))
    found = read(log, one, other)
    assert found[0].prompt is found[1].prompt


# Sessions


def test_sessions_by_id_wherever_it_is(log: Path) -> None:
    body = chat([user("Go.")], assistant("x"))["request"]
    bare = {"response": {"usage": {"prompt_tokens": 9}}}
    shapes = [
        {"session_id": "s", "request": body},
        {"conversation_id": "s", "request": body},
        {"metadata": {"session_id": "s"}, "request": body},
        {"headers": {"X-Session-Id": "s"}, "session": "other", "request": body},
        {"request": body | {"prompt_cache_key": "s"}},
        {"request": body | {"metadata": {"user_id": "user_1_account__session_s"}}},
        {"request": body | {"metadata": {"user_id": '{"session_id": "s"}'}}},
        {"session_id": "<redacted>", "request": body | {"metadata": {"session_id": "s"}}},
        {"request": body, "kwargs": {"extra_body": {"metadata": {"session_id": "s"}}}},
    ]
    found = read(log, *[shape | bare for shape in shapes])
    assert [call.session for call in found] == ["s"] * len(shapes)


def test_sessions_by_what_they_go_on_from(log: Path) -> None:
    one, other = grown("a", 3), grown("b", 3, NOW + 0.1)
    records = [each for pair in zip(one, other, strict=True) for each in pair]
    new = chat([SYSTEM, user("Something else.")], assistant("x"), NOW + 9)
    found = read(log, *records, new)
    by_name: dict[str, list[int]] = {}
    for call in found:
        by_name.setdefault(call.session, []).append(len(messages(call)))
    assert sorted(by_name.values()) == [[2], [2, 4, 6], [2, 4, 6]]


def test_names_and_calls_do_not_depend_on_the_order_of_lines_and_files(tmp_path: Path) -> None:
    records = [*grown("a", 3), *grown("b", 3, NOW + 0.1)]
    first, second, whole = (tmp_path / name for name in ("1.jsonl", "2.jsonl", "3.jsonl"))
    whole.write_text("\n".join(map(json.dumps, records)))
    first.write_text("\n".join(map(json.dumps, records[::2])))
    second.write_text("\n".join(map(json.dumps, reversed(records[1::2]))))

    def shape(*files: Path) -> list[Any]:
        found = calls.read(files, Notes(strict=True))
        return sorted((c.session, c.start_us, pieces(c.prompt), pieces(c.path)) for c in found)

    assert shape(whole) == shape(first, second) == shape(second, first)


def test_a_rewritten_prompt_stays_in_its_session(log: Path) -> None:
    one = grown("a", 3)
    kept = [SYSTEM, user("In short: dry."), assistant("Now.", "a1"), tool("a1")]
    found = read(log, *one, chat(kept, assistant("x"), NOW + 9))
    assert len({call.session for call in found}) == 1
    assert [call.kind for call in found] == ["turn", "turn", "turn", "fold"]


def test_in_a_session_by_id_any_new_beginning_is_a_fold(log: Path) -> None:
    one = [each | {"session_id": "s"} for each in grown("a", 2)]
    title = chat([user("Name it.")], assistant("Sill"), NOW + 5, session_id="s", kind="title")
    anew = chat([SYSTEM, user("In short.")], assistant("x"), NOW + 9, session_id="s")
    found = read(log, *one, title, anew)
    assert [call.kind for call in found] == ["turn", "turn", "title", "fold"]


def test_sub_agents_that_share_an_id_are_followed_apart(log: Path) -> None:
    one = [each | {"session_id": "s"} for each in grown("a", 3)]
    other = [each | {"session_id": "s"} for each in grown("b", 3, NOW + 0.1)]
    other[0]["request"]["messages"][0] = {"role": "system", "content": "Another."}
    for number in (1, 2):
        other[number]["request"]["messages"][0] = {"role": "system", "content": "Another."}
    records = [each for pair in zip(one, other, strict=True) for each in pair]
    assert [call.kind for call in read(log, *records)] == ["turn", "fold", *["turn"] * 4]


def test_a_parent_in_the_headers(log: Path) -> None:
    headers = {"x-session-id": "c", "x-parent-session-id": "p"}
    record = chat([user("Go.")], assistant("x"), headers=headers, agent="reader")
    call = read(log, record)[0]
    assert (call.session, call.parent_session, call.kind, call.agent) == (
        "c",
        "p",
        "subagent",
        "reader",
    )


def test_a_path_ends_as_the_next_prompt_resends_it(log: Path) -> None:
    one = grown("a", 2)
    one[1]["request"]["messages"][2]["content"] = "Now, said otherwise."
    found = read(log, *one)
    assert pieces(found[0].path)[-1]["content"] == "Now, said otherwise."
    assert pieces(found[1].path)[-1] == assistant("Now.", "a1")


# Times and usage


@pytest.mark.parametrize(
    "value",
    [
        1790000000,
        1790000000.0,
        1790000000000,
        1790000000000000,
        1790000000000000000,
        "1790000000",
        "2026-09-21T14:13:20Z",
        "2026-09-21T16:13:20+02:00",
        "2026-09-21T14:13:20",
    ],
)
def test_stamps_of_any_unit(value: object) -> None:
    assert micros(value) == 1_790_000_000 * US


@pytest.mark.parametrize("value", [None, True, "", "soon", -5, 12, [1]])
def test_what_is_no_stamp(value: object) -> None:
    assert micros(value) is None


def test_spans() -> None:
    second = 1_790_000_000
    us = second * US
    assert span_of(second, second + 1) == (us, us + US, "logged")
    assert span_of(second + 1, second) == (us + US, us + US, "logged")
    assert span_of(None, None, second, 2.5) == (us - 2_500_000, us, "logged")
    assert span_of(second, None, None, 2) == (us, us + 2 * US, "logged")
    assert span_of(None, None, second) == (us, us, "estimated")
    assert span_of(None, None, order=7) == (7, 7, "order_only")


def test_requests_without_stamps_keep_their_order(log: Path) -> None:
    records = [{"request": each["request"], "response": each["response"]} for each in grown("a", 3)]
    found = read(log, *records)
    assert [(call.start_us, call.time_source) for call in found] == [
        (0, "order_only"),
        (1, "order_only"),
        (2, "order_only"),
    ]
    assert len({call.session for call in found}) == 1


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, None, 2)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}},
            Usage(9, 8, None),
        ),
        (
            {
                "prompt_tokens": 4,
                "cache_creation_input_tokens": 6553,
                "cache_read_input_tokens": 0,
            },
            Usage(6557, 0, None),
        ),
        ({"prompt_tokens": 30, "cache_read_input_tokens": 20}, Usage(30, 20, None)),
        ({"prompt_tokens": 10, "cache_read_tokens": 90}, Usage(100, 90, None)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}, Usage(10, 8, None)),
        ({"input_tokens": 5, "output_tokens": 1}, Usage(5, None, 1)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3},
            Usage(98, 90, None),
        ),
        (
            {"input_tokens": 95, "input_tokens_details": {"cached_tokens": 90}},
            Usage(95, 90, None),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"input_tokens": -1}, None),
        ({}, None),
        ("many", None),
    ],
)
def test_usage_of_any_provider(fields: object, usage: Usage | None) -> None:
    assert usage_of(fields) == usage


def test_a_call_without_usage_has_none(log: Path) -> None:
    call = read(log, {"model": "m", "messages": [user("x")], "response": {"choices": []}})[0]
    assert (call.logged_prompt_tokens, call.output_tokens, call.usage_source) == (
        None,
        None,
        "none",
    )


def test_cached_tokens_never_exceed_the_prompt_s(log: Path) -> None:
    used = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 12}}
    notes = Notes(strict=True)
    call = read(log, {"model": "m", "messages": [user("x")], "usage": used}, notes=notes)[0]
    assert (call.logged_prompt_tokens, call.logged_cached_tokens) == (10, 10)
    assert notes.counts["cached tokens above the prompt's"] == 1


# Logs that lie


def test_bad_lines_lose_no_others(log: Path) -> None:
    good = json.dumps(chat([user("Go.")], assistant("x")))
    later = json.dumps(chat([user("Go on.")], assistant("x"), NOW + 5))
    notes = Notes()
    found = read(
        log, good[:60], good, "", "\0" * 40, "[1, 2]", '{"model": "m"}', later, notes=notes
    )
    assert len(found) == 2
    assert notes.skipped == {
        "damaged line": 1,
        "line of NUL bytes": 1,
        "line is no JSON object": 1,
        "record without a request": 1,
    }
    with pytest.raises(InputError, match=r"log.jsonl:1"):
        list(calls.read([log], Notes(strict=True)))


def test_a_record_behind_one_that_was_cut_off(log: Path) -> None:
    record = chat([user("Go.")], assistant("x"))
    whole = json.dumps({"request": record.pop("request")} | record, separators=(",", ":"))
    notes = Notes()
    assert len(read(log, whole[:50] + whole, notes=notes)) == 1
    assert notes.skipped == {"damaged line": 1}


def test_a_missing_file_loses_no_other(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(chat([user("Go.")], assistant("x"))))
    notes = Notes()
    assert len(list(calls.read([tmp_path / "gone.jsonl", log], notes))) == 1
    assert notes.skipped == {"unreadable file": 1}


def test_a_file_may_be_one_value_or_an_array(tmp_path: Path) -> None:
    one, many = tmp_path / "one.json", tmp_path / "many.json"
    records = grown("a", 3)
    one.write_text(json.dumps(records[0], indent=2))
    many.write_text(json.dumps(records[1:], indent=2))
    read_: list[int] = []
    found = list(calls.read([one, many], Notes(strict=True), read_.append))
    assert [len(messages(call)) for call in found] == [2, 4, 6]
    assert sum(read_) == one.stat().st_size + many.stat().st_size


# Where they are


def test_files_are_told_by_content(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "anything.jsonl"
    log.parent.mkdir()
    log.write_text("\n".join(map(json.dumps, grown("a", 3))))
    (tmp_path / "other.jsonl").write_text('{"timestamp":"x","type":"session_meta","payload":{}}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "openai__m-1790000000.123-0abc.json").write_text(log.read_text())
    (tmp_path / "note.txt").write_text(log.read_text())
    assert paths.find(tmp_path) == [log]
    assert paths.roots({"HOME": "/h"}) == []
    # A first record longer than what is looked at.
    assert paths.looks_like(log, log.read_bytes()[:200])
    assert not paths.looks_like(Path("x"), b"")
    assert not paths.looks_like(Path("x"), b'{"messages": "none"}')
    assert not paths.looks_like(Path("x"), b'{"info": {}, "messages": [{"role": "sys')
