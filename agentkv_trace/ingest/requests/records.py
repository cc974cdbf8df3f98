"""One record of a request log: what was sent, what came back, and who asked when.

Prompts stay undecoded here (`msgspec.Raw`): a log repeats each message in every later request.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.requests.usage import Usage, usage_of

NONE = Raw(b"")
"""A field that is not there (msgspec cannot join `Raw` with None)."""
_FAILED = frozenset({"failure", "failed", "error"})
_HIDDEN = frozenset({"<redacted>", "**********", "<secret_hidden>"})
_SESSION_HEADERS = ("thread-id", "x-session-id", "session-id", "session_id", "x-litellm-session-id")
_KINDS = {"compact": "compaction", "compaction": "compaction", "title": "title", "retry": "retry"}


class Body(msgspec.Struct):
    """What is sent to the model; one of `messages` and `input` holds the conversation."""

    messages: list[Raw] | None = None
    input: list[Raw] | str | None = None
    instructions: str | None = None
    system: Raw = NONE
    tools: list[Raw] | None = None
    model: Any = None
    metadata: Any = None
    prompt_cache_key: Any = None
    previous_response_id: Any = None
    extra_body: Any = None

    @property
    def is_empty(self) -> bool:
        """Whether this holds no conversation."""
        return self.messages is None and self.input is None


class Inner(Body):
    """A request with its own stamp and headers, its body inside or not."""

    body: Body | None = None
    timestamp: Any = None
    headers: Any = None


class Envelope(Body):
    """A record as a proxy, a gateway or an agent writes it."""

    body: Body | None = None
    request: Inner | None = None
    response: Raw = NONE
    kwargs: Any = None
    model_parameters: Any = None
    usage: Any = None
    usage_summary: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    headers: Any = None
    session_id: Any = None
    session: Any = None
    conversation_id: Any = None
    parent_session: Any = None
    parent_session_id: Any = None
    agent: Any = None
    agent_id: Any = None
    kind: Any = None
    status: Any = None
    status_code: Any = None
    dropped: Any = None
    error: Any = None
    cache_hit: Any = None
    t_start: Any = None
    t_recv: Any = None
    startTime: Any = None  # noqa: N815
    start_time: Any = None
    started_at: Any = None
    t_end: Any = None
    t_done: Any = None
    endTime: Any = None  # noqa: N815
    end_time: Any = None
    completed_at: Any = None
    logged_at: Any = None
    timestamp: Any = None
    created_at: Any = None
    latency_sec: Any = None
    response_time: Any = None


class Answer(msgspec.Struct):
    """A response, as far as it tells of usage, failure and output."""

    id: Any = None
    usage: Any = None
    model: Any = None
    choices: list[Any] | None = None
    content: Any = None
    output: list[Any] | None = None
    body: Any = None
    body_raw: Any = None
    status_code: Any = None
    timestamp: Any = None
    error: Any = None


ENVELOPES = msgspec.json.Decoder(Envelope)
LOOSE = msgspec.json.Decoder(dict[str, Raw])


def envelope_of(line: bytes | Raw) -> Envelope | None:
    """Return the envelope of a record; fields of other types than ours are left out.

    None where the line is no JSON object.
    """
    try:
        return ENVELOPES.decode(line)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    try:
        return _loosely(line, Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _loosely(data: bytes | Raw, kind: type[_Kind]) -> _Kind:
    """Decode field by field. Raises msgspec.DecodeError where the data is no object."""
    raws = LOOSE.decode(data)
    found = kind()
    for field in msgspec.structs.fields(kind):
        raw = raws.get(field.encode_name)
        if raw is None:
            continue
        try:
            value = msgspec.json.decode(raw, type=field.type)
        except (msgspec.DecodeError, UnicodeDecodeError):
            inner = _NESTED.get(field.name)
            if inner is None or not bytes(raw).startswith(b"{"):
                continue
            value = _loosely(raw, inner)
        setattr(found, field.name, value)
    return found


_Kind = TypeVar("_Kind", bound=Body)
_NESTED: dict[str, type[Body]] = {"body": Body, "request": Inner}


def body_of(record: Envelope) -> Body | None:
    """Return the part of a record that was sent to the model, or None."""
    request = record.request
    for body in (record.body, request.body if request else None, request, record):
        if body is not None and not body.is_empty:
            return body
    return None


def usage_in(record: Envelope, answer: Answer) -> Usage | None:
    """Return the usage of a call from wherever its record has it."""
    flat = {
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
    }
    places = (
        answer.usage,
        record.usage,
        table(record.metadata).get("usage_object"),
        record.usage_summary,
        flat,
    )
    return next((usage for place in places if (usage := usage_of(place)) is not None), None)


def has_failed(record: Envelope, answer: Answer) -> bool:
    """Tell whether the record says that no whole response came."""
    for status in (record.status, record.status_code, answer.status_code):
        if isinstance(status, int) and not isinstance(status, bool) and status >= 400:
            return True
        if isinstance(status, str) and status.lower() in _FAILED:
            return True
    error = record.error or answer.error
    return record.dropped is True or (bool(error) and usage_in(record, answer) is None)


def was_cached(record: Envelope) -> bool:
    """Tell whether a gateway answered from its own cache, without any model."""
    return record.cache_hit is True or record.cache_hit == "True"


def session_of(record: Envelope, body: Body) -> str | None:
    """Return the id of the conversation, where the record has one."""
    headers = _lowered(record.headers) | _lowered(record.request and record.request.headers)
    kwargs = table(record.kwargs)
    extra = table(body.extra_body) or table(kwargs.get("extra_body"))
    found = (
        *(headers.get(name) for name in _SESSION_HEADERS),
        record.session_id,
        record.conversation_id,
        record.session,
        table(record.metadata).get("session_id"),
        table(body.metadata).get("session_id"),
        table(extra.get("metadata")).get("session_id"),
        body.prompt_cache_key,
        kwargs.get("prompt_cache_key"),
        _anthropic_session(table(body.metadata).get("user_id")),
    )
    return next((name for name in map(_shown, found) if name is not None), None)


def parent_of(record: Envelope) -> str | None:
    """Return the id of the conversation that started this one, where the record has it."""
    headers = _lowered(record.headers)
    found = (
        headers.get("x-parent-session-id"),
        headers.get("x-codex-parent-thread-id"),
        record.parent_session,
        record.parent_session_id,
    )
    return next((name for name in map(_shown, found) if name is not None), None)


def agent_of(record: Envelope) -> str | None:
    """Return the name of the agent, where the record has it."""
    return text(record.agent) or text(record.agent_id) or text(table(record.metadata).get("agent"))


def kind_of(record: Envelope) -> str | None:
    """Return the kind of call, where the record tells one that we know."""
    return _KINDS.get(record.kind) if isinstance(record.kind, str) else None


def _lowered(headers: object) -> Record:
    return {key.lower(): value for key, value in table(headers).items() if isinstance(key, str)}


def _shown(value: object) -> str | None:
    name = text(value)
    return None if name in _HIDDEN else name


def _anthropic_session(user: object) -> str | None:
    """Return the session inside a user id (`..._session_<id>`, or JSON with `session_id`)."""
    name = text(user) or ""
    if name.startswith("{"):
        try:
            return text(table(msgspec.json.decode(name)).get("session_id"))
        except msgspec.DecodeError:
            return None
    return name.partition("_session_")[2] or None
