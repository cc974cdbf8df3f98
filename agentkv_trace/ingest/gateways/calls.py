"""Logs of gateways and tracers to calls, by way of raw requests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.gateways import forms, langfuse, litellm, otel, proxy, vllm
from agentkv_trace.ingest.gateways.values import objects
from agentkv_trace.ingest.reading import chunks
from agentkv_trace.ingest.requests.calls import calls_of
from agentkv_trace.ingest.requests.reader import SOURCE as RAW
from agentkv_trace.ingest.requests.reader import Reader
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.ingest.codex.records import Record
    from agentkv_trace.ingest.requests.reader import Request
    from agentkv_trace.trace.call import LoggedCall

SOURCE = "gateways"
_BEGIN = 64
NO_PROMPT = "calls without their prompt (all of it counts as missed)"


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of all files, session by session.

    All requests are taken in before the first call comes out. A file that cannot be read is
    skipped and counted. Raises InputError in strict mode.
    """
    reader = Reader(notes)
    servers: list[Path] = []
    formed: list[tuple[Path, str | None]] = []
    logged: dict[str, list[Record]] = {}
    for path in dict.fromkeys(files):
        notes.count("files")
        try:
            head = next(chunks(path, Notes()), b"")
            form = forms.form_of(path, head)
            if form == forms.VLLM:
                servers.append(path)
            elif form == forms.OTEL and b'"resourceLogs"' in head[:_BEGIN]:
                # What spans said stands beside them, before or after.
                batches = (record for _, record in objects(path, notes, on_bytes))
                otel.logged_events(batches, logged)
            else:
                formed.append((path, form))
        except OSError:
            notes.skip("unreadable file", str(path))
    for path, form in formed:
        try:
            for number, record in _records(path, form, logged, notes, on_bytes):
                reader.take(msgspec.json.encode(record), path, number)
        except OSError:
            notes.skip("unreadable file", str(path))
    _drop_lone_names(reader.found)
    found = sorted(reader.found, key=lambda one: (one.span.start_us, one.span.end_us, one.place))
    for call in calls_of(found, reader.prompts, notes):
        call.source = SOURCE
        call.agent = SOURCE if call.agent == RAW else call.agent
        if call.fidelity == "usage_only":
            notes.count(NO_PROMPT)
        yield call
    sessions: set[str] = set()
    for path in servers:
        try:
            for call in vllm.read(path, notes, on_bytes):
                sessions.add(call.session)
                yield call
        except OSError:
            notes.skip("unreadable file", str(path))
    notes.count("sessions", len(sessions))


def parts(files: Sequence[Path]) -> list[list[Path]]:
    """Split files: each server's log is by itself, requests of all others may go on from another.

    A file that cannot be read is among those, where that is counted.
    """
    servers: list[Path] = []
    others: list[Path] = []
    for path in dict.fromkeys(files):
        try:
            form = forms.form_of(path, next(chunks(path, Notes()), b""))
        except OSError:
            form = None
        (servers if form == forms.VLLM else others).append(path)
    return [*([others] if others else []), *([path] for path in servers)]


def _records(
    path: Path,
    form: str | None,
    logged: dict[str, list[Record]],
    notes: Notes,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[tuple[int, Record]]:
    """Yield the records of a file as raw requests, with their lines."""
    if form == forms.DATABASE:
        yield from proxy.rows_of(path, notes)
        return
    numbered = objects(path, notes, on_bytes)
    plain = (record for _, record in numbered)
    if form == forms.OTEL:
        for record in otel.requests_of(plain, notes, logged):
            yield 1, record
        return
    if form == forms.LANGFUSE:
        for record in langfuse.requests_of(plain, notes):
            yield 1, record
        return
    if form is None:
        notes.skip("log of an unknown form", str(path))
        return
    for number, record in numbered:
        if litellm.is_one(record):
            request = litellm.request_of(record, notes)
        elif proxy.is_pair(record):
            request = proxy.pair_of(record, notes)
        else:
            notes.skip("record of an unknown form", str(path), number)
            continue
        if request is not None:
            yield number, request


def _drop_lone_names(found: list[Request]) -> None:
    """Forget ids that only one request has: they name the request, not its conversation."""
    names = Counter(request.session for request in found)
    for request in found:
        if names[request.session] == 1 and request.fidelity is None:
            request.session = None
