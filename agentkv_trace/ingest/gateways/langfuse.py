"""Langfuse: generations of exported traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.gateways.values import count_of, first, unpacked, usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentkv_trace.notes import Notes

CACHED = (
    "input_cached_tokens",
    "input_cache_read",
    "cache_read_input_tokens",
    "prompt_details.cache_read",
    "input_cached",
)
WRITTEN = (
    "input_cache_creation",
    "cache_creation_input_tokens",
    "prompt_details.cache_write",
    "input_cache_creation_5m",
    "input_cache_creation_1h",
)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def is_one(record: Record) -> bool:
    """Tell whether a record is an exported trace, a page of observations or one of them."""
    if isinstance(record.get("observations"), list):
        return True
    page = record.get("data")
    if isinstance(page, list) and page:
        return is_one(table(page[0]))
    return "traceId" in record and record.get("type") in ("GENERATION", "SPAN", "EVENT")


def requests_of(records: Iterable[Record], notes: Notes) -> Iterator[Record]:
    """Yield the generations among some records as raw requests.

    Of generations inside one another only the innermost asked a model. All records are held,
    since exports are in no order.
    """
    found = [one for record in records for one in _observations(record)]
    parents = {text(one.get("id")): text(one.get("parentObservationId")) for one, _ in found}
    generations = [(one, trace) for one, trace in found if one.get("type") == "GENERATION"]
    wrappers: set[str | None] = set()
    for one, _ in generations:
        above = text(one.get("parentObservationId"))
        while above is not None and above not in wrappers:
            wrappers.add(above)
            above = parents.get(above)
    for one, trace in generations:
        if text(one.get("id")) in wrappers:
            notes.count("generations around others")
        elif one.get("level") == "ERROR":
            notes.count("failed requests")
        else:
            yield _request(one, trace)


def _observations(record: Record) -> Iterator[tuple[Record, Record]]:
    """Yield observations with what is known of their trace."""
    inside = first(record.get("observations"), record.get("data"))
    if isinstance(inside, list):
        trace = table(record.get("trace")) or record
        for one in map(table, inside):
            if one.get("observations") is not None:
                yield from _observations(one)
            else:
                yield one, trace
    else:
        yield record, {}


def _request(one: Record, trace: Record) -> Record:
    metadata = table(unpacked(one.get("metadata")))
    body = _body(unpacked(one.get("input")), table(unpacked(one.get("modelParameters"))))
    session = first(
        text(trace.get("sessionId")), text(one.get("sessionId")), text(metadata.get("sessionId"))
    )
    return {
        # Without its prompt, a call's trace is all that tells what it belongs to.
        "session_id": session or (text(one.get("traceId")) if body is None else None),
        "startTime": one.get("startTime"),
        "endTime": one.get("endTime"),
        "model": one.get("model"),
        "request": body and {**body, "model": one.get("model")},
        "response": _response(unpacked(one.get("output"))),
        "usage": usage_of(one),
    }


def _body(given: Any, parameters: Record) -> Record | None:
    tools = parameters.get("tools")
    if isinstance(given, dict):
        tools = given.get("tools") or tools
        system = first(given.get("system"), given.get("instructions"))
        inner = first(given.get("messages"), given.get("input"))
        if isinstance(inner, list):
            found = _body(inner, {"tools": unpacked(tools)})
            if found is not None and system is not None:
                found["system"] = system
            return found
        given = [given]
    if isinstance(given, str) and given:
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        return None
    messages = [unpacked(each) for each in given]
    if not all(_is_message(table(each)) for each in messages):
        return None
    body: Record = {"messages": messages}
    return body | ({"tools": tools} if isinstance(tools, list) and tools else {})


def _is_message(fields: Record) -> bool:
    return text(fields.get("role")) in _ROLES or bool(fields.get("type"))


def _response(output: Any) -> Record | None:
    if isinstance(output, str) and output:
        output = {"role": "assistant", "content": output}
    if isinstance(output, list) and output:
        return {"output": [each for each in output if isinstance(each, dict)]}
    fields = table(output)
    if "choices" in fields or "output" in fields:
        return fields
    return {"choices": [{"message": fields}]} if fields else None


def usage_of(one: Record) -> Record | None:
    """Return the usage of a generation; its prompt includes what was cached.

    Some routes take cached tokens out of the input, some do not. The total, where it is there,
    is the provider's: the prompt is what it holds beside the output.
    """
    fields = table(unpacked(one.get("usageDetails"))) or table(unpacked(one.get("usage")))
    cached = [count for name in CACHED if (count := count_of(fields.get(name))) is not None]
    written = [count for name in WRITTEN if (count := count_of(fields.get(name))) is not None]
    prompt = first(
        count_of(fields.get("input")),
        count_of(fields.get("promptTokens")),
        count_of(fields.get("prompt_tokens")),
        count_of(fields.get("input_tokens")),
        count_of(one.get("promptTokens")),
    )
    output = first(
        count_of(fields.get("output")),
        count_of(fields.get("completionTokens")),
        count_of(fields.get("completion_tokens")),
        count_of(fields.get("output_tokens")),
        count_of(one.get("completionTokens")),
    )
    total = first(count_of(fields.get("total")), count_of(fields.get("totalTokens")))
    read = max(cached, default=None)
    if total is not None and output is not None and total >= output and (prompt or read):
        prompt = max(total - output, read or 0)
    elif prompt is not None:
        prompt += (read or 0) + sum(written)
    return usage(prompt, read, output)
