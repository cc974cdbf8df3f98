"""Logs of gateways and tracers of our own making, in the record shapes of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.gateways import calls
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall

Json = dict[str, Any]
AT = 1_790_000_000.0


def user(words: str) -> Json:
    return {"role": "user", "content": words}


def said(words: str) -> Json:
    return {"role": "assistant", "content": words}


def payload(number: int, messages: Any, prompt: int = 100, cached: int = 0, **more: Any) -> Json:
    """Return a standard logging payload of LiteLLM."""
    usage = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
    usage["prompt_tokens_details"] = {"cached_tokens": cached}
    response = {"choices": [{"message": said(f"answer {number}")}]}
    fields = {"id": f"p{number}", "trace_id": f"t{number}", "litellm_call_id": f"c{number}"}
    fields |= {"call_type": "acompletion", "status": "success", "cache_hit": None}
    fields |= {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
    fields |= {"startTime": AT + number * 10, "endTime": AT + number * 10 + 2, "model": "sail-1"}
    fields |= {"metadata": {"usage_object": usage}, "messages": messages, "response": response}
    return fields | {"model_parameters": {"temperature": 0}} | more


def spend(number: int, **more: Any) -> Json:
    """Return a spend log of LiteLLM, as its database keeps one."""
    usage = {"prompt_tokens": 120, "completion_tokens": 9, "cache_read_input_tokens": 64}
    fields = {"request_id": f"r{number}", "call_type": "acompletion", "spend": 0.1}
    fields |= {"startTime": f"2026-03-01T12:00:{number:02d}Z", "total_tokens": 129}
    fields |= {"endTime": f"2026-03-01T12:00:{number:02d}.500Z", "model": "sail-1"}
    fields |= {"prompt_tokens": 120, "completion_tokens": 9, "cache_hit": "False"}
    fields |= {"metadata": json.dumps({"usage_object": usage}), "session_id": "s1"}
    return fields | {"messages": "{}", "response": "{}", "proxy_server_request": "{}"} | more


def generation(number: int, given: Any, usage: Json | None = None, **more: Any) -> Json:
    """Return a generation of Langfuse."""
    fields = {"id": f"g{number}", "traceId": "t1", "type": "GENERATION", "model": "sail-1"}
    fields |= {"startTime": f"2026-03-01T12:00:{number:02d}.000Z", "parentObservationId": None}
    fields |= {"endTime": f"2026-03-01T12:00:{number:02d}.900Z", "level": "DEFAULT"}
    fields |= {"input": given, "output": said(f"answer {number}")}
    return fields | {"usageDetails": usage or {"input": 100, "output": 9, "total": 109}} | more


def span(number: int, attributes: Json, parent: str = "", **more: Any) -> Json:
    """Return a span of OTLP JSON."""
    start = 1_790_000_000_000_000_000 + number * 10**10
    fields = {
        "traceId": "t1",
        "spanId": f"s{number}",
        "parentSpanId": parent,
        "name": "chat sail-1",
    }
    fields |= {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 10**9)}
    return fields | {"attributes": otlp(attributes)} | more


def otlp(attributes: Json) -> list[Json]:
    return [{"key": key, "value": _typed(value)} for key, value in attributes.items()]


def _typed(value: Any) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_typed(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": otlp(value)}}
    return {"stringValue": value}


def spans(*listed: Json) -> Json:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(listed)}]}]}


def lines(folder: Path, name: str, *records: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(*files: Path, strict: bool = True) -> tuple[list[LoggedCall], Notes]:
    notes = Notes(strict=strict)
    return list(calls.read(files, notes)), notes


def used(call: LoggedCall) -> tuple[int | None, int | None, int | None]:
    return call.logged_prompt_tokens, call.logged_cached_tokens, call.output_tokens
