"""Gateways and tracers: what each form's records become."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.gateways import paths
from agentkv_trace.ingest.gateways.calls import NO_PROMPT
from agentkv_trace.ingest.gateways.langfuse import usage_of
from gateway_logs import (
    AT,
    generation,
    lines,
    otlp,
    payload,
    read,
    said,
    span,
    spans,
    spend,
    used,
    user,
)
from mini_logs import words

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


# LiteLLM


def test_standard_logging_payloads(tmp_path: Path) -> None:
    first = payload(1, [user("mend it")], 100)
    later = [user("mend it"), said("answer 1"), user("more")]
    second = payload(2, later, 140, 96, model_parameters={"tools": [{"name": "sew"}]})
    second["model_parameters"] = {}
    path = lines(tmp_path, "log.jsonl", first, second)
    assert paths.find(tmp_path) == [path]
    found, notes = read(path)
    assert [used(call) for call in found] == [(100, 0, 9), (140, 96, 9)]
    assert words(found[1].prompt) == ["user: mend it", "assistant: answer 1", "user: more"]
    assert {(call.source, call.model, call.fidelity) for call in found} == {
        ("gateways", "sail-1", "exact")
    }
    assert found[0].session == found[1].session
    assert found[0].start_us == round((AT + 10) * 1e6)
    assert found[0].end_us - found[0].start_us == 2_000_000
    assert notes.counts["sessions"] == 1


def test_one_payload_a_file_and_tools_of_the_parameters(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "sew"}}]
    value = payload(1, [user("mend it")], model_parameters={"tools": tools})
    path = tmp_path / "2026-03-01" / "time_p1.json"
    path.parent.mkdir()
    path.write_text(json.dumps(value, indent=2))
    (call,), _ = read(*paths.find(tmp_path))
    assert len(words(call.prompt)) == 2


def test_answers_from_the_gateways_cache_failures_and_other_calls_are_no_calls(
    tmp_path: Path,
) -> None:
    records = [
        payload(1, [user("a")], cache_hit=True),
        payload(2, [user("b")], status="failure"),
        payload(3, [user("c")], call_type="aembedding"),
        payload(4, [user("d")]),
    ]
    found, notes = read(lines(tmp_path, "log.jsonl", *records))
    assert len(found) == 1
    assert notes.counts["answers from a gateway's cache"] == 1
    assert notes.counts["failed requests"] == 1
    assert notes.counts["calls that ask for no completion"] == 1


@pytest.mark.parametrize(
    "messages",
    ["redacted-by-litellm", None, {}, [{"role": "user", "content": "redacted-by-litellm"}]],
)
def test_without_its_prompt_a_call_has_usage_only(tmp_path: Path, messages: Any) -> None:
    records = [payload(number, messages) for number in (1, 2)]
    found, notes = read(lines(tmp_path, "log.jsonl", *records))
    assert [call.fidelity for call in found] == ["usage_only"] * 2
    assert found[0].prompt is not found[1].prompt
    assert found[0].prompt.tokens == 100
    assert notes.counts[NO_PROMPT] == 2


def test_spend_logs_hold_usage_only(tmp_path: Path) -> None:
    path = tmp_path / "spend.json"
    path.write_text(json.dumps([spend(1), spend(2)]))
    assert paths.find(tmp_path) == [path]
    found, _ = read(path)
    assert [used(call) for call in found] == [(120, 64, 9)] * 2
    assert {(call.session, call.fidelity) for call in found} == {("s1", "usage_only")}


def test_spend_logs_with_prompts_may_cut_them_in_the_middle(tmp_path: Path) -> None:
    cut = "begin ... (litellm_truncated skipped 4000 chars. Set a limit) ... end"
    whole = [user("mend it"), said("ok")]
    body = {"model": "sail-1", "messages": [*whole, user(cut)]}
    record = spend(1, proxy_server_request={"method": "POST", "body": body})
    packed = spend(2, messages=json.dumps([*whole, user(cut), said("x"), user("more")]))
    found, _ = read(lines(tmp_path, "spend.jsonl", record, packed))
    assert words(found[0].prompt)[:2] == ["user: mend it", "assistant: ok"]
    # What was lost is as long as the mark says.
    size = len(json.dumps(user(cut), separators=(",", ":"))) + 4000
    assert found[0].prompt.tokens == size // 4
    assert found[0].fidelity == "output_reformatted"
    assert found[1].kind == "turn"
    before = found[1].prompt.parent
    assert before is not None
    assert before.parent is found[0].prompt


def test_missing_usage_is_not_zero(tmp_path: Path) -> None:
    record = payload(1, [user("a")], prompt_tokens=None, completion_tokens=None, metadata={})
    (call,), _ = read(lines(tmp_path, "log.jsonl", record))
    assert (used(call), call.usage_source) == ((None, None, None), "none")


def test_ids_that_one_request_alone_has_name_no_session(tmp_path: Path) -> None:
    history = [user("mend it")]
    records = []
    for number in range(3):
        records.append(payload(number, list(history), session_id=f"made-up-{number}"))
        history += [said(f"answer {number}"), user(f"more {number}")]
    found, _ = read(lines(tmp_path, "log.jsonl", *records))
    assert len({call.session for call in found}) == 1


# Langfuse


def test_generations_of_an_export(tmp_path: Path) -> None:
    later = json.dumps({"messages": [user("mend it"), said("answer 1"), user("more")]})
    usage = {"input": 40, "input_cached_tokens": 100, "output": 9, "total": 149}
    observations = [
        generation(2, later, usage),
        {"id": "x", "type": "SPAN", "traceId": "t1", "input": "no call"},
        generation(1, [user("mend it")]),
    ]
    path = tmp_path / "export.json"
    path.write_text(
        json.dumps({"trace": {"id": "t1", "sessionId": "s1"}, "observations": observations})
    )
    assert paths.find(tmp_path) == [path]
    found, _ = read(path)
    assert [(call.session, used(call)) for call in found] == [
        ("s1", (100, None, 9)),
        ("s1", (140, 100, 9)),
    ]
    assert words(found[1].prompt) == ["user: mend it", "assistant: answer 1", "user: more"]
    assert found[0].end_us - found[0].start_us == 900_000


def test_of_generations_inside_one_another_the_innermost_counts(tmp_path: Path) -> None:
    outer = generation(1, {"content": "role"})
    between = {"id": "b", "type": "SPAN", "traceId": "t1", "parentObservationId": "g1"}
    inner = generation(2, [user("mend it")], parentObservationId="b")
    failed = generation(3, [user("mend it")], level="ERROR")
    found, notes = read(lines(tmp_path, "a.jsonl", inner, between, outer, failed))
    assert [words(call.prompt) for call in found] == [["user: mend it"]]
    assert notes.counts["generations around others"] == 1
    assert notes.counts["failed requests"] == 1


@pytest.mark.parametrize("given", [{"content": "role"}, [], None, 7, [{"content": "x"}]])
def test_a_generation_without_a_conversation_has_usage_only(tmp_path: Path, given: Any) -> None:
    (call,), _ = read(lines(tmp_path, "a.jsonl", generation(1, given)))
    assert (call.fidelity, call.logged_prompt_tokens) == ("usage_only", 100)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": 40, "input_cached_tokens": 100, "output": 9, "total": 149}, (140, 100, 9)),
        # A route that counts cached tokens in: the provider's total tells.
        ({"input": 140, "input_cached_tokens": 100, "output": 9, "total": 149}, (140, 100, 9)),
        ({"input": 40, "cache_read_input_tokens": 100, "output": 9}, (140, 100, 9)),
        (
            {"input": 4, "input_cache_read": 60, "input_cache_creation_5m": 40, "output": 9},
            (104, 60, 9),
        ),
        ({"input": 40, "output": 9}, (40, None, 9)),
        ({"output": 9}, None),
        ({}, None),
        ("none", None),
    ],
)
def test_cached_tokens_are_part_of_the_prompt_once(usage: Any, expected: Any) -> None:
    found = usage_of({"usageDetails": usage})
    if expected is None:
        assert found is None
        return
    assert found is not None
    cached = found.get("prompt_tokens_details", {}).get("cached_tokens")
    assert (found["prompt_tokens"], cached, found["completion_tokens"]) == expected


# OpenTelemetry

USAGE = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 9}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "sail-1"}


def part(kind: str, content: Any) -> Json:
    return {"type": kind, "content": content}


def test_spans_with_messages_of_the_convention(tmp_path: Path) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "sew", "arguments": {"at": 1}}
    answer = {"type": "tool_call_response", "id": "c1", "response": "sewn"}
    messages = [
        {"role": "user", "parts": [part("text", "mend it")]},
        {"role": "assistant", "parts": [part("text", "ok"), call]},
        {"role": "tool", "parts": [answer]},
    ]
    system = json.dumps([part("text", "You mend.")])
    attributes = {**CHAT, **USAGE, "gen_ai.conversation.id": "s1"}
    attributes |= {"gen_ai.usage.cache_read.input_tokens": 64, "gen_ai.agent.name": "sailor"}
    attributes |= {"gen_ai.system_instructions": system}
    packed = span(1, {**attributes, "gen_ai.input.messages": json.dumps(messages)})
    plain = span(2, {**attributes, "gen_ai.input.messages": messages})
    path = lines(tmp_path, "spans.jsonl", spans(packed), spans(plain))
    assert paths.find(tmp_path) == [path]
    found, _ = read(path)
    assert [used(call) for call in found] == [(100, 64, 9)] * 2
    assert found[0].prompt is found[1].prompt
    assert {(call.session, call.agent, call.model) for call in found} == {
        ("s1", "sailor", "sail-1")
    }
    assert [word.partition(":")[0] for word in words(found[0].prompt)] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert found[0].end_us - found[0].start_us == 1_000_000


OLDER = {
    "events": (
        {},
        [
            ("gen_ai.user.message", {"content": "mend it"}),
            ("gen_ai.choice", {"message": '{"content":"ok"}'}),
        ],
    ),
    "one event": (
        {},
        [("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([user("mend it")])})],
    ),
    "details": (
        {},
        [
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.input.messages": json.dumps(
                        [{"role": "user", "parts": [part("text", "mend it")]}]
                    )
                },
            )
        ],
    ),
    "numbered": (
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "mend it",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "ok",
        },
        [],
    ),
    "OpenInference": (
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "mend it",
            "llm.token_count.prompt": 100,
        },
        [],
    ),
    "Vercel": (
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": json.dumps([user("mend it")]),
            "ai.response.text": "ok",
        },
        [],
    ),
    "whole request": ({"input.value": json.dumps({"messages": [user("mend it")]})}, []),
}


@pytest.mark.parametrize("form", OLDER)
def test_older_and_other_conventions(tmp_path: Path, form: str) -> None:
    attributes, events = OLDER[form]
    from gateway_logs import otlp

    listed = [{"name": name, "attributes": otlp(each)} for name, each in events]
    one = span(1, {**CHAT, **USAGE, **attributes}, events=listed)
    (call,), _ = read(lines(tmp_path, "spans.json", spans(one)))
    assert call.logged_prompt_tokens == 100
    assert "mend it" in words(call.prompt)[0]
    assert call.fidelity == "exact"


@pytest.mark.parametrize("place", ["the file of the spans", "a file of its own"])
def test_messages_in_log_records_of_a_span(place: str, tmp_path: Path) -> None:
    def told(name: str, body: Json) -> Json:
        about = [{"key": "event.name", "value": {"stringValue": name}}]
        body = {"kvlistValue": {"values": otlp(body)}}
        return {"spanId": "s1", "traceId": "t1", "attributes": about, "body": body}

    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    records = [
        told("gen_ai.system.message", {"content": "You mend."}),
        told("gen_ai.user.message", {"content": "mend it"}),
        told("gen_ai.assistant.message", {"tool_calls": [call]}),
        told("gen_ai.tool.message", {"id": "c1", "content": "planks"}),
        told("gen_ai.choice", {"index": 0, "message": {"content": "mended"}}),
    ]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    asked = spans(span(1, {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 90}))
    if place == "a file of its own":
        files = [lines(tmp_path, "b.jsonl", asked), lines(tmp_path, "c.jsonl", logs)]
    else:
        files = [lines(tmp_path, "a.jsonl", asked, logs)]
    assert paths.find(tmp_path) == files
    (call_found,), _ = read(*files)
    assert words(call_found.prompt) == [
        "system: You mend.",
        "user: mend it",
        "assistant: None",
        "tool: planks",
    ]
    assert words(call_found.path)[-1] == "assistant: mended"


def test_tool_calls_with_numbers_in_their_names(tmp_path: Path) -> None:
    attributes = {**CHAT, **USAGE}
    attributes |= {"gen_ai.prompt.10.role": "tool", "gen_ai.prompt.10.content": "sewn"}
    attributes |= {"gen_ai.prompt.10.tool_call_id": "c1", "gen_ai.prompt.2.role": "assistant"}
    call = {"id": "c1", "name": "sew", "arguments": "{}"}
    attributes |= {f"gen_ai.prompt.2.tool_calls.0.{name}": value for name, value in call.items()}
    attributes |= {"llm.request.functions.0.name": "sew"}
    (found,), _ = read(lines(tmp_path, "spans.json", spans(span(1, attributes))))
    listed = words(found.prompt)
    assert listed[2] == "tool: sewn"
    assert len(listed) == 3


def test_of_spans_inside_one_another_the_innermost_counts(tmp_path: Path) -> None:
    vercel = {"ai.prompt.messages": json.dumps([user("mend it")]), "ai.usage.promptTokens": 100}
    records = [
        span(3, {"ai.operationId": "ai.generateText.doGenerate", **vercel}, "s2"),
        span(2, {"ai.operationId": "ai.generateText", **vercel}, "s1"),
        span(1, {"gen_ai.operation.name": "invoke_agent", **USAGE}),
        span(4, {"gen_ai.operation.name": "execute_tool"}, "s1"),
        span(6, {**CHAT, **USAGE}, "s5"),
        span(5, {**CHAT, **USAGE}),
        span(7, {**CHAT, **USAGE}, status={"code": 2}),
    ]
    found, notes = read(lines(tmp_path, "spans.json", spans(*records)))
    assert [call.fidelity for call in found] == ["exact", "usage_only"]
    assert notes.counts["spans around others"] == 1
    assert notes.counts["failed requests"] == 1


def test_spans_without_content_are_of_their_traces_session(tmp_path: Path) -> None:
    records = [span(number, {**CHAT, **USAGE}) for number in (1, 2)]
    found, notes = read(lines(tmp_path, "spans.json", spans(*records)))
    assert {(call.session, call.fidelity) for call in found} == {("t1", "usage_only")}
    assert notes.counts[NO_PROMPT] == 2


def test_cached_tokens_that_are_left_out_of_the_input(tmp_path: Path) -> None:
    attributes = {**CHAT, "gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 9}
    attributes |= {"gen_ai.usage.cache_read_input_tokens": 90}
    attributes |= {"gen_ai.usage.cache_creation_input_tokens": 20}
    (call,), _ = read(lines(tmp_path, "spans.json", spans(span(1, attributes))))
    assert used(call) == (115, 90, 9)


# Proxies of Claude Code


def body(*messages: Json) -> Json:
    user_id = "user_x_account__session_s1"
    return {
        "model": "claude-1",
        "system": [{"type": "text", "text": "You mend."}],
        "messages": list(messages),
        "metadata": {"user_id": user_id},
    }


STREAM = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m1","usage":'
    '{"input_tokens":4,"cache_read_input_tokens":90,"cache_creation_input_tokens":6}}}\n\n'
    'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":31}}\n\n'
)


def test_pairs_of_requests_and_streams(tmp_path: Path) -> None:
    url = "https://api/v1/messages?beta=true"
    request = {
        "timestamp": AT,
        "method": "POST",
        "url": url,
        "headers": {},
        "body": body(user("a")),
    }
    response = {"timestamp": AT + 1, "status_code": 200, "headers": {}, "body_raw": STREAM}
    pair = {"request": request, "response": response, "logged_at": "2026-09-21T14:00:00Z"}
    other = {**pair, "request": {**request, "url": "https://api/v1/messages/count_tokens"}}
    orphan = {"request": {**request, "timestamp": AT + 50}, "response": None, "note": "lost"}
    path = lines(tmp_path, "claude-traffic.jsonl", pair, other, orphan)
    assert paths.find(tmp_path) == [path]
    found, notes = read(path)
    assert [(call.session, used(call)) for call in found] == [
        ("s1", (100, 90, 31)),
        ("s1", (None, None, None)),
    ]
    assert len(words(found[0].prompt)) == 2
    assert notes.counts["requests for something else"] == 1
    assert notes.counts["requests without a response"] == 1


def test_a_proxys_database(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    database = sqlite3.connect(path)
    names = "id, timestamp, method, endpoint, headers, body, response, model"
    database.execute(f"create table requests ({names})")
    response = {"statusCode": 200, "responseTime": 1500, "streamingChunks": STREAM.split("\n")}
    row = ["1", "2026-03-01T12:00:00Z", "POST", "/v1/messages", "{}", json.dumps(body(user("a")))]
    database.execute(
        "insert into requests values (?,?,?,?,?,?,?,?)", [*row, json.dumps(response), "m"]
    )
    database.commit()
    database.close()
    sqlite3.connect(tmp_path / "other.db").execute("create table sessions (id)").connection.close()
    assert paths.find(tmp_path) == [path]
    before = path.read_bytes()
    (call,), _ = read(path)
    assert used(call) == (100, 90, 31)
    assert call.end_us - call.start_us == 1_500_000
    assert path.read_bytes() == before
