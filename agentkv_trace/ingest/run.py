"""From files to one trace: logs are built, foreign traces read, our own traces merged in."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.reading import lines
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkv_trace.ingest.discover import Found
    from agentkv_trace.trace.select import Filter
    from agentkv_trace.trace.store import Trace


PARALLEL_BYTES = 256 << 20
"""Logs below this are read sooner than further processes start."""


@dataclass(frozen=True, slots=True)
class Options:
    """How logs become a trace."""

    bytes_per_token: float | None = None
    chunk_tokens: int | None = None
    salt: bytes | None = None
    strict: bool = False
    layout: bool = False
    tokenizer: str = "bytes"
    jobs: int | None = None


@dataclass(slots=True)
class Ingested:
    """A trace, and what was read and skipped on the way, by source."""

    trace: Trace
    notes: dict[str, Notes]
    unusable: list[str]
    merged: bool
    """Whether traces of our own are among it, so that counts by source are not of the notes."""
    unknown: list[str] = field(default_factory=list)
    """Files inside named folders that are no logs we know, with what they begin with."""


def ingest(
    found: Found,
    options: Options,
    only: Filter | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Ingested:
    """Read everything that was found into one trace; `on_bytes` is told of bytes read.

    Raises InputError where no call is left, or options do not go together.
    """
    _check(found, options)
    from agentkv_trace.trace.select import merge, select
    from agentkv_trace.trace.store import read_trace

    notes: dict[str, Notes] = {}
    traces = []
    if found.logs:
        trace = _from_logs(found, options, notes, on_bytes)
        if trace is not None:
            traces.append(trace)
    for kind, paths in found.foreign.items():
        notes[kind.name] = kept = Notes(strict=options.strict)
        files = [(str(path), lines(path, kept, on_bytes)) for path in paths]
        traces.append(
            kind.reader.read(files, kept, chunk_tokens=options.chunk_tokens, salt=options.salt)
        )
    own = [read_trace(path) for path in found.traces]
    if options.chunk_tokens is not None:
        own = [trace.coarsen(options.chunk_tokens) for trace in own]
    traces.extend(own)
    if not traces:
        raise InputError(_nothing_found(notes))
    trace = merge(traces) if len(traces) > 1 else traces[0]
    if only is not None:
        trace = select(trace, only.mask(trace))
        if not len(trace):
            raise InputError("no call is left by --since, --until, --session, --agent, --model")
    return Ingested(trace, notes, found.unusable, bool(own), found.unknown)


def _check(found: Found, options: Options) -> None:
    if options.bytes_per_token is not None and options.tokenizer != "bytes":
        raise InputError("--bytes-per-token: goes with --tokenizer bytes only")
    if options.salt is not None and found.traces:
        raise InputError("--salt: a trace's keys are made; give it when its logs are ingested")
    if not found.logs and (options.bytes_per_token is not None or options.tokenizer != "bytes"):
        raise InputError("--bytes-per-token, --tokenizer: only for logs, and there is none here")
    if options.strict and found.unusable:
        raise InputError(found.unusable[0])


def _from_logs(
    found: Found,
    options: Options,
    notes: dict[str, Notes],
    on_bytes: Callable[[int], None] | None,
) -> Trace | None:
    from agentkv_trace.trace.build import TraceBuilder
    from agentkv_trace.trace.tokenizers import load

    notes |= {source.name: Notes(strict=options.strict) for source in found.logs}
    jobs = _jobs(found, options)
    with TraceBuilder(load(options.tokenizer), layout=options.layout) as builder:
        if jobs > 1:
            from agentkv_trace.ingest import parallel

            parallel.read(
                found.logs,
                builder,
                notes,
                jobs=jobs,
                tokenizer=options.tokenizer,
                strict=options.strict,
                on_bytes=on_bytes,
            )
        else:
            for source, paths in found.logs.items():
                for call in source.calls.read(paths, notes[source.name], on_bytes):
                    builder.add(call)
        if not len(builder):
            return None
        trace = builder.finish(
            {name: _counts(kept) for name, kept in notes.items()},
            fixed_bytes_per_token=options.bytes_per_token,
            salt=options.salt,
        )
    return trace if options.chunk_tokens is None else trace.coarsen(options.chunk_tokens)


def _jobs(found: Found, options: Options) -> int:
    """Return how many processes read: one where more would not pay, or the layout is kept."""
    if options.layout:
        return 1
    if options.jobs is not None:
        return options.jobs
    size = sum(path.stat().st_size for path in found.paths() if path.is_file())
    return (os.cpu_count() or 1) if size > PARALLEL_BYTES else 1


def _counts(notes: Notes) -> dict[str, object]:
    return {**dict(sorted(notes.counts.items())), "skipped": dict(sorted(notes.skipped.items()))}


def _nothing_found(all_notes: dict[str, Notes]) -> str:
    reasons = [
        f"{notes.examples[reason][0]}: {reason}"
        for notes in all_notes.values()
        for reason in notes.skipped
    ]
    shown = "; ".join(reasons[:3]) or "the logs hold no call to a model"
    return f"{shown}; nothing was written: name other logs"
