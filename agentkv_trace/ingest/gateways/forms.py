"""The forms of logs that are read here, told by how a file begins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.codex.records import Record, table
from agentkv_trace.ingest.gateways import langfuse, litellm, otel, proxy, vllm

if TYPE_CHECKING:
    from pathlib import Path

LITELLM, LANGFUSE, OTEL, PAIRS, DATABASE, VLLM = (
    "litellm",
    "langfuse",
    "otel",
    "pairs",
    "database",
    "vllm",
)
_TESTS = (
    (OTEL, otel.is_one),
    (LANGFUSE, langfuse.is_one),
    (LITELLM, litellm.is_one),
    (PAIRS, proxy.is_pair),
)
_BEGINS = (
    (OTEL, re.compile(rb'\s*\{\s*"resource(Spans|Logs)"\s*:\s*\[')),
    (
        LANGFUSE,
        re.compile(rb'"observations"\s*:\s*\[|"parentObservationId"\s*:|"usageDetails"\s*:'),
    ),
    (LITELLM, re.compile(rb'"(litellm_call_id|call_type)"\s*:\s*"')),
    (PAIRS, re.compile(rb'\s*\{\s*"request"\s*:\s*\{.{0,400}"(url|method)"\s*:', re.DOTALL)),
)
"""For records that are longer than what we see."""
_AT_START = frozenset({OTEL, PAIRS})


def form_of(path: Path, head: bytes) -> str | None:
    """Return the form of a file, by the first bytes of its content; None where it has none."""
    if head.startswith(proxy.MAGIC):
        return DATABASE if proxy.is_database(path) else None
    start = head.lstrip(b"\xef\xbb\xbf\0 \t\r\n")
    if start[:1] not in (b"{", b"["):
        return VLLM if vllm.looks_like(head) else None
    record = _first(start)
    if record is not None:
        return next((name for name, test in _TESTS if test(record)), None)
    for name, pattern in _BEGINS:
        found = pattern.match(start) if name in _AT_START else pattern.search(start)
        if found is not None and not _is_inside(name, start, found.start()):
            return name
    return None


def _is_inside(name: str, start: bytes, at: int) -> bool:
    """Tell whether what looks like a form's mark is in what some other log's messages hold."""
    if name == LANGFUSE:
        return b'"traceId"' not in start
    messages = start.find(b'"messages"')
    return name == LITELLM and 0 <= messages < at


def _first(start: bytes) -> Record | None:
    """Return the first record where it can be seen as a whole."""
    for part in (start.split(b"\n", 1)[0], start):
        try:
            value = msgspec.json.decode(part)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        return table(value[0] if isinstance(value, list) and value else value)
    return None
