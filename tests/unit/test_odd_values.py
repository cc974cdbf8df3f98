"""Any value of a log may be of any type: no trajectory, gateway's log or span loses another file.

Each value of some made logs is replaced by odd ones, in turn.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.gateways import calls as gateways
from agentkv_trace.ingest.mini_swe import calls as mini_swe
from agentkv_trace.ingest.swe_agent import calls as swe_agent
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.tokenizers import load
from gateway_logs import AT, generation, payload, said, span, spans, spend, user
from gateway_logs import otlp as attributes_of
from mini_logs import answer, completion, mini, observed, system
from mini_logs import user as asked
from odd_values import places, replaced

if TYPE_CHECKING:
    from pathlib import Path

ODD = (
    None, True, -1, 3.5, 2**63, 10**30, 1e300, "", "x", "\ud800", [], {}, [None], [[[[]]]],
    {"role": 5}, {"a": {"b": [None]}}, [1, "a"], '{"a":1}', "[1]", "data:image/png;base64,!!",
)  # fmt: skip
EACH = 3
"""Odd values that each place gets, of those above."""

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
RESPONSE = {
    "object": "response",
    "created_at": AT,
    "model": "sail-1",
    "output": [
        {"type": "reasoning", "id": "r", "encrypted_content": "abc"},
        {"type": "function_call", "call_id": "c2", "name": "bash", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5},
    "extra": {"timestamp": AT + 50},
}
MINI = mini(
    [
        system(),
        asked("mend it"),
        answer(1, "looking", tool_calls=[CALL]),
        observed(1, "planks", tool_call_id="c1"),
        asked("wrong", interrupt_type="FormatError", response=completion(2, "nope", 120)),
        {"role": "user", "content": [{"type": "text", "text": "see"}, PICTURE]},
        RESPONSE,
        {"type": "function_call_output", "call_id": "c2", "output": "o", "extra": {}},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]
)
QUERY = [system(), asked("mend it"), {"role": "tool", "content": "o", "tool_call_ids": ["c1"]}]
STEP = {"action": "ls", "observation": "", "response": "look", "state": {}, "query": QUERY}
SWE = {"trajectory": [STEP, STEP], "history": [], "info": {"model_stats": {"tokens_sent": 9}}}
SWE |= {"replay_config": json.dumps({"agent": {"model": {"name": "sail-1"}}})}
OLD = {
    "trajectory": [{"action": "ls", "observation": "", "response": "look", "state": "{}"}],
    "history": [
        {**each, "agent": "primary"}
        for each in (system(), {**asked("demo"), "is_demo": True}, asked("mend it"), said("look"))
    ],
}
PARTS = [
    {"type": "text", "content": "a"},
    {"type": "tool_call", "id": "1", "name": "n", "arguments": {"a": 1}},
    {"type": "tool_call_response", "id": "1", "response": {"x": 1}},
]
ASKED = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 50}
SPANS = spans(
    span(1, ASKED | {"gen_ai.input.messages": [{"role": "user", "parts": PARTS}]}),
    span(2, ASKED | {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.tool_calls.0.name": "n"}),
    span(
        3,
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.contents.0.message_content.text": "q",
            "llm.tools.0.tool.json_schema": "{}",
        },
    ),
    span(
        4,
        ASKED,
        events=[
            {"name": "gen_ai.user.message", "attributes": attributes_of({"content": "hi"})},
            {"name": "gen_ai.choice", "attributes": attributes_of({"message": '{"content":"x"}'})},
        ],
    ),
    span(
        5,
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": json.dumps([user("a")]),
            "ai.response.toolCalls": "[{}]",
        },
    ),
)
BODY = {"model": "sail-1", "system": [{"type": "text", "text": "s"}], "messages": [user("a")]}
PAIR = {
    "request": {"timestamp": AT, "url": "https://sea.example/v1/messages", "body": BODY},
    "response": {
        "timestamp": AT + 1,
        "status_code": 200,
        "body_raw": 'data: {"message":{"id":"m","usage":{"input_tokens":3}}}\n',
    },
}
CUT = json.dumps({"messages": [user("x (litellm_truncated skipped 99 chars. ) y")], "model": "m"})
LOGS: dict[str, tuple[Any, str, Any]] = {
    "mini-swe-agent": (mini_swe, ".traj.json", MINI),
    "mini-swe-agent, a list": (mini_swe, ".traj.json", [system(), asked("mend"), said("look")]),
    "SWE-agent": (swe_agent, ".traj", SWE),
    "SWE-agent, attempts": (swe_agent, ".traj", {"attempts": [SWE, SWE], "info": {}}),
    "SWE-agent, a history": (swe_agent, ".traj", OLD),
    "LiteLLM": (gateways, ".json", payload(1, [user("a")], model_parameters={"tools": [CALL]})),
    "LiteLLM, spend": (gateways, ".json", spend(1, proxy_server_request=CUT)),
    "Langfuse": (
        gateways,
        ".json",
        {
            "trace": {"id": "t1", "sessionId": "s"},
            "observations": [generation(1, {"messages": [user("a")], "tools": [CALL]})],
        },
    ),
    "OpenTelemetry": (gateways, ".json", SPANS),
    "a proxy": (gateways, ".json", PAIR),
}


def traced(source: Any, files: list[Path], notes: Notes) -> int:
    """Make a trace and return its number of calls."""
    with TraceBuilder(load("bytes")) as builder:
        for call in source.read(files, notes):
            builder.add(call)
        return len(builder.finish({}))


@pytest.mark.parametrize("name", LOGS)
def test_no_odd_value_loses_another_file(name: str, tmp_path: Path) -> None:
    source, ending, log = LOGS[name]
    good, odd = tmp_path / f"good{ending}", tmp_path / f"odd{ending}"
    good.write_text(json.dumps(log))
    whole = traced(source, [good], Notes(strict=True))
    random_values = random.Random(name)
    for place in places(log):
        for value in random_values.sample(ODD, EACH):
            odd.write_text(json.dumps(replaced(log, place, value)))
            assert traced(source, [odd, good], Notes()) >= whole, (place, value)


@pytest.mark.parametrize("name", LOGS)
def test_strict_stops_with_one_line(name: str, tmp_path: Path) -> None:
    source, ending, log = LOGS[name]
    path = tmp_path / f"cut{ending}"
    path.write_text(json.dumps(log)[:-3])
    with pytest.raises(InputError, match=r"cut\S*: "):
        traced(source, [path], Notes(strict=True))


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"\0\0\0", b"\\ud800"])
@pytest.mark.parametrize("name", ["mini-swe-agent", "SWE-agent", "Langfuse"])
def test_damaged_characters_cost_no_call(name: str, damage: bytes, tmp_path: Path) -> None:
    source, ending, log = LOGS[name]
    whole, path = tmp_path / f"whole{ending}", tmp_path / f"damaged{ending}"
    whole.write_text(json.dumps(log, indent=1))
    data = whole.read_bytes().replace(b'"mend it"', b'"mend ' + damage + b'it"')
    path.write_bytes(data.replace(b'"content": "a"', b'"content": "a' + damage + b'"'))
    assert path.read_bytes() != whole.read_bytes()
    notes = Notes(strict=True)
    assert traced(source, [path], notes) == traced(source, [whole], Notes())
    assert notes.counts["documents with damaged characters"] == 1


def test_what_is_nested_too_deeply_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "deep.traj.json"
    for depth in (300, 900, 5_000, 100_000):
        deep = "[" * depth + "]" * depth
        path.write_text(json.dumps(MINI).replace('"mend it"', deep))
        traced(mini_swe, [path, _good(tmp_path)], Notes())


def _good(folder: Path) -> Path:
    path = folder / "good.traj.json"
    path.write_text(json.dumps(MINI))
    return path
