"""`agentkv-trace ingest`: logs to a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentkv_trace.ingest.discover import Found
    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.build import TraceBuilder
    from agentkv_trace.trace.store import Trace


def ingest(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="Log file, folder, glob, - for standard input, or FORMAT:PATH. "
            "None: the agents' own folders on this machine.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Trace file to write.")] = Path(
        "trace.parquet"
    ),
    bytes_per_token: Annotated[
        float | None,
        typer.Option(help="Fix the bytes per token instead of fitting them to logged usage."),
    ] = None,
    salt: Annotated[
        str | None,
        typer.Option(help="Make keys that tell nothing without this secret, to share the trace."),
    ] = None,
    strict: Annotated[bool, typer.Option(help="Fail on anything that would be skipped.")] = False,
    verify: Annotated[bool, typer.Option(help="Read the trace back and check every row.")] = False,
    force: Annotated[bool, typer.Option(help="Overwrite the output file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Turn agents' logs into a trace file.

    Examples:
      agentkv-trace ingest -o trace.parquet
      agentkv-trace ingest ~/.codex/sessions/2026 -o trace.parquet
      agentkv-trace ingest codex:rollout.jsonl --salt "$SECRET" -o shared.parquet
    """
    from agentkv_trace.cli.output import refuse_overwrite, replacing, say
    from agentkv_trace.errors import InputError

    refuse_overwrite(output, force=force)
    if bytes_per_token is not None and not 0.25 <= bytes_per_token <= 64:
        raise InputError("--bytes-per-token: must be between 0.25 and 64")
    trace, notes = read_logs(
        sources or [], bytes_per_token=bytes_per_token, salt=salt, strict=strict, quiet=quiet
    )
    from agentkv_trace.trace.store import read_trace, write_trace

    with replacing(output) as temporary:
        write_trace(trace, temporary)
        if verify:
            read_trace(temporary).new_chunks()
    if not quiet:
        say(summary(trace, notes))
        say(f"Wrote {output}. Next: agentkv-trace mrc {output}")


def read_logs(
    names: list[str],
    *,
    bytes_per_token: float | None = None,
    salt: str | None = None,
    strict: bool = False,
    quiet: bool = False,
) -> tuple[Trace, dict[str, Notes]]:
    """Read all logs behind some names (none: the default folders) into one trace.

    Raises InputError where there is no call in them.
    """
    from tempfile import TemporaryDirectory

    from agentkv_trace.errors import InputError
    from agentkv_trace.ingest.discover import default_logs, named_logs
    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.build import TraceBuilder

    with TemporaryDirectory() as folder, TraceBuilder() as builder:
        names = [_standard_input(Path(folder)) if name == "-" else name for name in names]
        found = named_logs(names) if names else default_logs()
        if not found:
            raise InputError("no agents' logs on this machine; name a log file or a folder of logs")
        all_notes = {source.name: Notes(strict=strict) for source in found}
        _read(found, all_notes, builder, quiet=quiet)
        if not len(builder):
            raise InputError(_nothing_found(all_notes))
        trace = builder.finish(
            {name: _counts(notes) for name, notes in all_notes.items()},
            fixed_bytes_per_token=bytes_per_token,
            salt=salt.encode() if salt else None,
        )
    return trace, all_notes


def _read(found: Found, all_notes: dict[str, Notes], builder: TraceBuilder, *, quiet: bool) -> None:
    from agentkv_trace.cli.progress import progress

    total = sum(path.stat().st_size for paths in found.values() for path in paths if path.exists())
    with progress("Reading logs", total, quiet=quiet) as on_bytes:
        for source, paths in found.items():
            for call in source.calls.read(paths, all_notes[source.name], on_bytes):
                builder.add(call)


def _standard_input(folder: Path) -> str:
    """Copy standard input to a file, since a log is looked at before it is read."""
    import shutil
    import sys

    path = folder / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


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


def summary(trace: Trace, all_notes: dict[str, Notes]) -> str:
    """Return what was read, in words."""
    frame = trace.frame()
    lines = []
    for name, notes in all_notes.items():
        rows = frame.filter(frame["source"] == name)
        counts = ", ".join(f"{notes.counts[what]:,} {what}" for what in notes.counts)
        lines.append(f"{name}: {counts or 'nothing'}")
        for column in ("kind", "fidelity"):
            values = rows[column].cast(str).value_counts(sort=True)
            lines.append(
                f"  {column}: " + ", ".join(f"{n:,} {word}" for word, n in values.iter_rows())
            )
        lines.extend(
            f"  skipped: {times:,} x {reason} ({', '.join(notes.examples[reason])}"
            f"{', ...' if times > len(notes.examples[reason]) else ''})"
            for reason, times in notes.skipped.items()
        )
    tokens = int(trace.array("prompt_tokens").sum())
    size = trace.meta.tokenizer["bytes_per_chunk"] / trace.meta.chunk_tokens
    lines.append(
        f"{len(trace):,} calls of {frame['session'].n_unique():,} sessions, "
        f"{tokens:,} prompt tokens (at {size:.2f} bytes per token)"
    )
    return "\n".join(lines)
