"""OpenTelemetry: spans of calls to models, in OTLP JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.gateways import otel_content
from agentkv_trace.ingest.gateways.values import count_of, first, usage
from agentkv_trace.ingest.requests.usage import total_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentkv_trace.notes import Notes

_OPERATIONS = frozenset({"chat", "text_completion", "generate_content"})
_TRACELOOP = frozenset({"chat", "completion"})
_VERCEL = (".doGenerate", ".doStream")
_FAILED = 2
_SESSIONS = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
)
_PROMPT = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
    "ai.usage.inputTokens",
    "ai.usage.promptTokens",
)
_OUTPUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
    "ai.usage.outputTokens",
    "ai.usage.completionTokens",
)
_READ = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
    "ai.usage.cachedInputTokens",
)
_WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "llm.token_count.prompt_details.cache_write",
)
_MODELS = (
    "gen_ai.request.model",
    "gen_ai.response.model",
    "llm.model_name",
    "ai.model.id",
)


def is_one(record: Record) -> bool:
    """Tell whether a record is a batch of spans, or of log records."""
    return isinstance(record.get("resourceSpans"), list) or has_logs(record)


def has_logs(record: Record) -> bool:
    """Tell whether a record is a batch of log records, which some libraries write messages to."""
    return isinstance(record.get("resourceLogs"), list)


def logged_events(records: Iterable[Record], into: dict[str, list[Record]]) -> None:
    """Collect log records of spans as events, by the id of the span."""
    for record in records:
        for resource in _tables(record.get("resourceLogs")):
            for scope in _tables(resource.get("scopeLogs")):
                for each in _tables(scope.get("logRecords")):
                    if span := text(each.get("spanId")):
                        into.setdefault(span, []).append(_event(each))


def _event(record: Record) -> Record:
    attributes = list(_tables(record.get("attributes")))
    name = text(record.get("eventName")) or text(attributes_of(attributes).get("event.name"))
    body = table(table(record.get("body")).get("kvlistValue")).get("values")
    return {"name": name, "attributes": [*attributes, *_tables(body)]}


def requests_of(
    records: Iterable[Record], notes: Notes, logged: dict[str, list[Record]]
) -> Iterator[Record]:
    """Yield the innermost spans of calls to models as raw requests.

    Spans of agents and chains around them repeat what is in them. All spans are held: those
    inside come before those around them. `logged` are events of spans that stand elsewhere.
    """
    parents: dict[str, str] = {}
    calls: list[tuple[str, Record, Record]] = []
    for record in records:
        if has_logs(record):
            logged_events([record], logged)
        for span in _spans(record):
            ident = text(span.get("spanId")) or ""
            parents[ident] = text(span.get("parentSpanId")) or ""
            attributes = attributes_of(span.get("attributes"))
            if _is_call(span, attributes):
                calls.append((ident, span, attributes))
    around: set[str] = set()
    for ident, _, _ in calls:
        above = parents.get(ident, "")
        while above and above not in around:
            around.add(above)
            above = parents.get(above, "")
    for ident, span, attributes in calls:
        if ident and ident in around:
            notes.count("spans around others")
        elif table(span.get("status")).get("code") in (_FAILED, "STATUS_CODE_ERROR"):
            notes.count("failed requests")
        else:
            if events := logged.get(ident):
                span = {**span, "events": [*_tables(span.get("events")), *events]}
            yield _request(span, attributes)


def _spans(record: Record) -> Iterator[Record]:
    for resource in _tables(record.get("resourceSpans")):
        # Older exporters name the libraries that made the spans otherwise.
        scopes = first(resource.get("scopeSpans"), resource.get("instrumentationLibrarySpans"))
        for scope in _tables(scopes):
            yield from _tables(scope.get("spans"))


def _tables(value: object) -> Iterator[Record]:
    if isinstance(value, list):
        yield from filter(None, map(table, value))


def attributes_of(value: object) -> Record:
    """Return attributes as plain values by their names."""
    found: Record = {}
    for attribute in _tables(value):
        name = text(attribute.get("key"))
        if name is not None:
            found[name] = _plain(attribute.get("value"))
    return found


def _plain(value: object) -> Any:
    """Return a value of OTLP, which names its type, as it is."""
    fields = table(value)
    for kind, inner in fields.items():
        if kind == "intValue":
            return count_of(inner)
        if kind == "arrayValue":
            values = table(inner).get("values")
            return [_plain(each) for each in values] if isinstance(values, list) else []
        if kind == "kvlistValue":
            return attributes_of(table(inner).get("values"))
        return inner
    return None


def _is_call(span: Record, attributes: Record) -> bool:
    kind = attributes.get("openinference.span.kind")
    if isinstance(kind, str):
        return kind.upper() == "LLM"
    operation = text(attributes.get("ai.operationId"))
    if operation is not None:
        return operation.endswith(_VERCEL)
    if attributes.get("gen_ai.operation.name") is not None:
        return text(attributes["gen_ai.operation.name"]) in _OPERATIONS
    if attributes.get("llm.request.type") is not None:
        return text(attributes["llm.request.type"]) in _TRACELOOP
    asks = any(attributes.get(name) is not None for name in (*_PROMPT, "gen_ai.prompt"))
    return asks and "gen_ai.agent.id" not in attributes and bool(span.get("name"))


def _request(span: Record, attributes: Record) -> Record:
    body = otel_content.body_of(span, attributes)
    model = first(*(text(attributes.get(name)) for name in _MODELS))
    session = first(*(text(attributes.get(name)) for name in _SESSIONS))
    return {
        # Without its prompt, a call's trace is all that tells what it belongs to.
        "session_id": session or (text(span.get("traceId")) if body is None else None),
        "agent": text(attributes.get("gen_ai.agent.name")),
        "t_start": _nanos(span.get("startTimeUnixNano")),
        "t_end": _nanos(span.get("endTimeUnixNano")),
        "model": model,
        "request": body and {**body, "model": model},
        "response": otel_content.response_of(span, attributes),
        "usage": _usage(attributes),
    }


def _nanos(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() else _whole(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _usage(attributes: Record) -> Record | None:
    prompt, output, read, written = (
        first(*(count_of(attributes.get(name)) for name in names))
        for names in (_PROMPT, _OUTPUT, _READ, _WRITTEN)
    )
    if prompt is None:
        return None
    # Some instrumentations leave out what was cached, some count it in.
    return usage(total_prompt(prompt, read or 0, written or 0), read, output)
