"""What stays of the logs of gateways and tracers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.gateways import forms, langfuse, litellm
from agentkv_trace.ingest.gateways.values import is_by_lines
from agentkv_trace.ingest.reading import chunks
from agentkv_trace.ingest.scrub import requests
from agentkv_trace.ingest.scrub.document import NOTHING, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LITELLM = """
    call_type litellm_call_id trace_id request_id completionStartTime proxy_server_request
    additional_usage_values hidden_params total_tokens
    """
_LANGFUSE = f"""
    trace observations traceId parentObservationId sessionId level usageDetails modelParameters
    input output total promptTokens completionTokens totalTokens
    {" ".join((*langfuse.CACHED, *langfuse.WRITTEN))}
    """
_SPANS = """
    resourceSpans scopeSpans instrumentationLibrarySpans spans spanId parentSpanId attributes
    events key value stringValue intValue doubleValue boolValue arrayValue kvlistValue values
    startTimeUnixNano endTimeUnixNano code parts response result modality mime_type
    toolCallId toolName args
    """
_PROXIES = "method url statusCode bodyText streamingChunks responseTime completedAt"
_WORDS = """
    LLM chat text_completion generate_content completion ai.generateText.doGenerate
    ai.streamText.doStream system developer user assistant tool function
    """
"""What attributes say of a span and of a message, whose name stands beside it, not above it."""
_INSIDE: dict[bytes, Kept] = {**requests.KEPT.inside, b"arguments": NOTHING}
_KEYS = requests.KEPT.keys | named(_LITELLM + _LANGFUSE + _SPANS + _PROXIES)
_VALUES = requests.KEPT.values | named(
    "call_type level key intValue startTimeUnixNano endTimeUnixNano code completionStartTime "
    "modality mime_type"
)
_KEPT_WORDS = requests.KEPT.words | named(_WORDS) | frozenset((litellm.REDACTED.encode(),))
KEPT = Kept(_KEYS, _VALUES, _KEPT_WORDS, requests.KEPT.blobs, _INSIDE, numbers=True)
_EVENTS = Kept(_KEYS, _VALUES | named("name"), _KEPT_WORDS, KEPT.blobs, _INSIDE, numbers=True)
# Any of these may be JSON inside a string.
for _key in ("metadata", "messages", "response", "proxy_server_request", "model_parameters",
             "body", "body_raw", "bodyText", "input", "output", "usage", "usageDetails",
             "modelParameters", "stringValue"):  # fmt: skip
    _INSIDE[_key.encode()] = KEPT
_INSIDE[b"events"] = _EVENTS
_MARKERS = (rb"/v1/messages\b", rb"/chat/completions\b", rb"/responses\b")


def members(path: Path) -> Iterator[Member]:
    """Yield the one file of a log. Raises InputError for forms that cannot be scrubbed."""
    form = forms.form_of(path, next(chunks(path, Notes()), b""))
    if form in (forms.VLLM, forms.DATABASE):
        what = "a server's log" if form == forms.VLLM else "a proxy's database"
        raise InputError(
            f"{path}: {what} cannot be scrubbed; share a trace of it, made with ingest --salt"
        )
    yield Member(path, path.parent, Form.lines if is_by_lines(path) else Form.document)


RULES = Rules(KEPT, None, members, (*requests.RULES.markers, *_MARKERS))
