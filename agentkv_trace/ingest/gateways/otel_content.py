"""What spans hold of prompts and responses, in the forms of several instrumentations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.gateways.values import first, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERED = re.compile(r"^(\d+)\.(.+)$")
_ROLE_EVENT = re.compile(r"^gen_ai\.(system|user|assistant|tool)\.message$")


def body_of(span: Record, attributes: Record) -> Record | None:
    """Return what was sent to the model; None where the span does not hold it."""
    merged = {**attributes, **_of_details(span)}
    messages = (
        _of_convention(merged)
        or _of_events(span)
        or _numbered(merged, "gen_ai.prompt.")
        or _numbered(merged, "llm.input_messages.")
        or _listed(merged.get("ai.prompt.messages"))
        or _listed(merged.get("gen_ai.prompt"))
    )
    if not messages:
        raw = table(unpacked(merged.get("input.value")))
        return raw if isinstance(raw.get("messages"), list) else None
    body: Record = {"messages": messages}
    tools = unpacked(first(merged.get("gen_ai.tool.definitions"), merged.get("ai.prompt.tools")))
    tools = _tools(tools) or _tools_numbered(merged)
    return body | ({"tools": tools} if tools else {})


def response_of(span: Record, attributes: Record) -> Record | None:
    """Return the model's output as a chat response; None where the span does not hold it."""
    merged = {**attributes, **_of_details(span)}
    found = (
        _messages(merged.get("gen_ai.output.messages"))
        or [_said(event) for name, event in _events(span) if name == "gen_ai.choice"]
        or _numbered(merged, "gen_ai.completion.")
        or _numbered(merged, "llm.output_messages.")
        or _of_vercel(merged)
        or _listed(merged.get("gen_ai.completion"))
    )
    return {"choices": [{"message": found[0]}]} if found else None


# The convention: messages of parts


def _of_convention(attributes: Record) -> list[Record]:
    messages = _messages(attributes.get("gen_ai.input.messages"))
    system = unpacked(attributes.get("gen_ai.system_instructions"))
    if messages and system:
        parts = system if isinstance(system, list) else [{"type": "text", "content": system}]
        messages = [*_of_parts("system", parts), *messages]
    return messages


def _messages(value: object) -> list[Record]:
    listed = unpacked(value)
    found: list[Record] = []
    for message in map(table, listed if isinstance(listed, list) else []):
        parts = message.get("parts")
        if isinstance(parts, list):
            found += _of_parts(text(message.get("role")) or "user", parts)
        elif message:
            found.append(message)
    return found


def _of_parts(role: str, parts: list[Any]) -> list[Record]:
    """Return a message of parts in the form of chat messages, answers of tools each its own."""
    content: list[Record] = []
    calls: list[Record] = []
    answers: list[Record] = []
    for part in map(table, parts):
        kind = part.get("type")
        if kind == "tool_call":
            calls.append(_call(part.get("id"), part.get("name"), part.get("arguments")))
        elif kind == "tool_call_response":
            told = first(part.get("response"), part.get("result"))
            answers.append(
                {"role": "tool", "tool_call_id": part.get("id"), "content": _words(told)}
            )
        elif kind == "blob" and part.get("modality") == "image":
            url = f"data:{part.get('mime_type')};base64,{part.get('content')}"
            content.append({"type": "image_url", "image_url": {"url": url}})
        elif kind == "text":
            content.append({"type": "text", "text": _words(part.get("content"))})
        elif part:
            content.append(part)
    message: Record = {"role": role, "content": content or None}
    if calls:
        message["tool_calls"] = calls
    return [*([message] if content or calls else []), *answers]


def _call(ident: object, name: object, arguments: object) -> Record:
    words = _words({} if arguments is None else arguments)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": words}}


def _words(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Older conventions: events


def _events(span: Record) -> Iterator[tuple[str, Record]]:
    from agentkv_trace.ingest.gateways.otel import attributes_of

    events = span.get("events")
    for event in map(table, events if isinstance(events, list) else []):
        yield text(event.get("name")) or "", attributes_of(event.get("attributes"))


def _of_details(span: Record) -> Record:
    """Return attributes that stand in an event of the span, not in itself."""
    for name, attributes in _events(span):
        if name in ("gen_ai.client.inference.operation.details", "gen_ai.content.prompt"):
            return attributes
    return {}


def _of_events(span: Record) -> list[Record]:
    found = []
    for name, attributes in _events(span):
        role = _ROLE_EVENT.match(name)
        if role is not None:
            inner = table(unpacked(attributes.get("gen_ai.event.content"))) or attributes
            found.append({"role": role[1], **_kept(inner)})
    return found


def _said(attributes: Record) -> Record:
    inner = table(unpacked(attributes.get("gen_ai.event.content"))) or attributes
    message = table(unpacked(inner.get("message"))) or inner
    return {"role": "assistant", **_kept(message)}


def _kept(fields: Record) -> Record:
    found: Record = {"content": fields.get("content")}
    calls = unpacked(fields.get("tool_calls"))
    if isinstance(calls, list) and calls:
        found["tool_calls"] = calls
    if (ident := first(fields.get("tool_call_id"), fields.get("id"))) is not None:
        found["tool_call_id"] = ident
    return found


# Attributes with numbers in their names


def _numbered(attributes: Record, prefix: str) -> list[Record]:
    """Return messages from attributes such as `gen_ai.prompt.0.role`."""
    groups = _groups(attributes, prefix)
    found = []
    for number in sorted(groups):
        fields = {name.removeprefix("message."): each for name, each in groups[number].items()}
        message: Record = {"role": fields.get("role") or "user"}
        message["content"] = first(unpacked(fields.get("content")), _contents(fields))
        calls = _groups(fields, "tool_calls.")
        if calls:
            message["tool_calls"] = [_numbered_call(calls[at]) for at in sorted(calls)]
        if fields.get("tool_call_id") is not None:
            message["tool_call_id"] = fields["tool_call_id"]
        found.append(message)
    return found


def _groups(attributes: Record, prefix: str) -> dict[int, Record]:
    groups: dict[int, Record] = {}
    for name, value in attributes.items():
        if name.startswith(prefix) and (found := _NUMBERED.match(name[len(prefix) :])):
            groups.setdefault(int(found[1]), {})[found[2]] = value
    return groups


def _contents(fields: Record) -> list[Record] | None:
    groups = _groups(fields, "contents.")
    parts = [groups[at] for at in sorted(groups)]
    return [
        {"type": "text", "text": part.get("message_content.text")}
        for part in parts
        if part.get("message_content.text") is not None
    ] or None


def _numbered_call(fields: Record) -> Record:
    plain = {name.removeprefix("tool_call."): value for name, value in fields.items()}
    name = first(plain.get("name"), plain.get("function.name"))
    return _call(
        plain.get("id"), name, first(plain.get("arguments"), plain.get("function.arguments"))
    )


def _tools(value: object) -> list[Any] | None:
    tools = [unpacked(each) for each in value] if isinstance(value, list) else []
    return tools or None


def _tools_numbered(attributes: Record) -> list[Any] | None:
    functions = _groups(attributes, "llm.request.functions.")
    if functions:
        return [functions[at] for at in sorted(functions)]
    schemas = _groups(attributes, "llm.tools.")
    return [unpacked(schemas[at].get("tool.json_schema")) for at in sorted(schemas)] or None


# Plain JSON


def _listed(value: object) -> list[Record]:
    found = unpacked(value)
    if isinstance(found, str) and found:
        return [{"role": "user", "content": found}]
    listed = found if isinstance(found, list) else []
    return [message for message in map(table, listed) if message]


def _of_vercel(attributes: Record) -> list[Record]:
    words = text(attributes.get("ai.response.text"))
    calls = unpacked(attributes.get("ai.response.toolCalls"))
    listed = [table(call) for call in calls] if isinstance(calls, list) else []
    if words is None and not listed:
        return []
    message: Record = {"role": "assistant", "content": words}
    if listed:
        made = [
            (c.get("toolCallId"), c.get("toolName"), first(c.get("input"), c.get("args")))
            for c in listed
        ]
        message["tool_calls"] = [_call(*one) for one in made]
    return [message]
