"""What came back from the model: its usage, and its output as the messages of the next prompt."""

from __future__ import annotations

from typing import Any

import msgspec

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.requests.messages import Message, message_of
from agentkv_trace.ingest.requests.records import Answer, Envelope

_ANSWERS = msgspec.json.Decoder(Answer)


def answer_of(record: Envelope) -> Answer:
    """Return the response of a record; an empty one where there is none that we can read."""
    answer = _decoded(record.response)
    inner: Answer | None = None
    if isinstance(answer.body, dict):
        inner = _decoded(msgspec.json.encode(answer.body))
    elif (stream := text(answer.body_raw) or text(answer.body)) is not None:
        inner = _streamed(stream)
    if inner is None:
        return answer
    # A proxy wraps what came back into status, headers and body.
    inner.status_code, inner.timestamp = answer.status_code, answer.timestamp
    return inner


def _decoded(raw: bytes | msgspec.Raw) -> Answer:
    try:
        return _ANSWERS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Answer()


def _streamed(stream: str) -> Answer:
    """Return what the events of a stream say of id, usage and output."""
    found = Answer()
    usage: Record = {}
    for line in stream.split("\n"):
        if not line.startswith("data:") or not line.endswith(("}", "}\r")):
            continue
        try:
            event = table(msgspec.json.decode(line[5:].strip()))
        except msgspec.DecodeError:
            continue
        whole = table(event.get("response"))
        if whole.get("usage"):
            return _decoded(msgspec.json.encode(whole))
        start = table(event.get("message"))
        found.id = found.id or text(start.get("id")) or text(event.get("id"))
        found.model = found.model or text(start.get("model")) or text(event.get("model"))
        for part in (start.get("usage"), event.get("usage")):
            usage |= {key: value for key, value in table(part).items() if value is not None}
    found.usage = usage or None
    return found


def messages_of(answer: Answer) -> list[Message]:
    """Return a response as the messages that it becomes in a prompt; none where it is not logged.

    Nothing that the model only thought is among them: agents differ in what they send back, and
    where the next request is known its messages count, not these.
    """
    if answer.choices:
        message = table(table(answer.choices[0]).get("message"))
        return [message_of(_chat(message))] if message else []
    if answer.output is not None:
        items = [table(item) for item in answer.output]
        return [message_of(item) for item in items if item]
    if isinstance(answer.content, list):
        return [message_of({"role": "assistant", "content": answer.content})]
    return []


def _chat(message: Record) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": message.get("content")}
    if message.get("tool_calls"):
        found["tool_calls"] = message["tool_calls"]
    return found
