"""LiteLLM: standard logging payloads and spend logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.gateways.values import count_of, first, unpacked, usage
from agentkv_trace.ingest.requests.usage import usage_of

if TYPE_CHECKING:
    from agentkv_trace.notes import Notes

REDACTED = "redacted-by-litellm"
_COMPLETIONS = ("completion", "responses", "message", "generate_content", "chat")
_PARAMETERS = ("tools", "system", "instructions", "previous_response_id")


def is_one(record: Record) -> bool:
    """Tell whether a record is a payload or a spend log."""
    stamped = "startTime" in record and "endTime" in record
    return stamped and "call_type" in record and not isinstance(record["call_type"], dict)


def request_of(record: Record, notes: Notes) -> Record | None:
    """Return a record as a raw request; None where no model was asked for a completion."""
    kind = text(record.get("call_type")) or "completion"
    if not any(word in kind for word in _COMPLETIONS):
        notes.count("calls that ask for no completion")
        return None
    metadata = table(unpacked(record.get("metadata")))
    parameters = table(unpacked(record.get("model_parameters")))
    sent = table(unpacked(record.get("proxy_server_request")))
    body = table(unpacked(sent.get("body"))) or sent
    return {
        "session_id": first(text(record.get("session_id")), text(metadata.get("session_id"))),
        "agent_id": record.get("agent_id"),
        "startTime": record.get("startTime"),
        "endTime": record.get("endTime"),
        "status": record.get("status"),
        "cache_hit": record.get("cache_hit"),
        "model": record.get("model"),
        "request": _body(record, parameters, body, kind),
        "response": table(unpacked(record.get("response"))) or None,
        "usage": _usage(record, metadata),
    }


def _body(record: Record, parameters: Record, sent: Record, kind: str) -> Record | None:
    """Return what was sent: as the client's request has it, else as the gateway's own fields."""
    fields = {name: parameters[name] for name in _PARAMETERS if parameters.get(name)}
    if isinstance(sent.get("messages"), list) or sent.get("input"):
        own = {name: sent[name] for name in (*_PARAMETERS, "messages", "input") if sent.get(name)}
        return {**fields, **own, "model": record.get("model")}
    messages: Any = unpacked(record.get("messages"))
    if isinstance(messages, dict):
        messages = messages.get("messages") or ([messages] if "role" in messages else None)
    if isinstance(messages, str) and messages != REDACTED and "text_completion" in kind:
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages or _is_hidden(messages):
        return None
    name = "input" if "responses" in kind else "messages"
    return {**fields, name: messages, "model": record.get("model")}


def _is_hidden(messages: list[Any]) -> bool:
    return all(table(message).get("content") == REDACTED for message in messages)


def _usage(record: Record, metadata: Record) -> Record | None:
    for place in (metadata.get("usage_object"), metadata.get("additional_usage_values")):
        found = usage_of({**_flat(record), **table(place)})
        if found is not None and table(place):
            return usage(found.prompt, found.cached, found.output)
    found = usage_of(_flat(record))
    return None if found is None else usage(found.prompt, found.cached, found.output)


def _flat(record: Record) -> Record:
    return {
        "prompt_tokens": count_of(record.get("prompt_tokens")),
        "completion_tokens": count_of(record.get("completion_tokens")),
    }
