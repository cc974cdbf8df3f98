"""`agentkv-trace ingest`: logs to a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv_trace.cli.options import (
    AgentOption,
    ForceOption,
    QuietOption,
    SessionOption,
    SinceOption,
    UntilOption,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.run import Ingested, Options
    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.agreement import Agreement
    from agentkv_trace.trace.select import Filter


SHOWN_UNKNOWN = 3
"""How many files that no source knows are named."""


def ingest(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="Log, trace, folder, glob, - for standard input, or FORMAT:PATH. "
            "None: the agents' own folders on this machine.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Trace file to write.")] = Path(
        "trace.parquet"
    ),
    since: SinceOption = None,
    until: UntilOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "--logged-model", help="Only this model's calls, likewise."),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(help="bytes (no vocabulary), o200k, or the path of a tokenizer.json."),
    ] = "bytes",
    bytes_per_token: Annotated[
        float | None,
        typer.Option(help="Fix the bytes per token instead of fitting them to logged usage."),
    ] = None,
    chunk_tokens: Annotated[
        int | None, typer.Option(help="Chunk size in tokens; 16 for logs, else the trace's own.")
    ] = None,
    salt: Annotated[
        str | None,
        typer.Option(help="Make keys that tell nothing without this secret, to share the trace."),
    ] = None,
    with_layout: Annotated[
        bool,
        typer.Option(
            "--with-layout", help="Store the parts of each prompt for explain; never their text."
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", help="Processes that read; default: by the size of the logs."),
    ] = None,
    strict: Annotated[bool, typer.Option(help="Fail on anything that would be skipped.")] = False,
    verify: Annotated[bool, typer.Option(help="Read the trace back and check every row.")] = False,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn agents' logs into a trace file.

    Traces of other tools and of our own are sources too, so machines can be merged.

    Examples:
      agentkv-trace ingest -o trace.parquet
      agentkv-trace ingest ~/.codex/sessions/2026 --since 7d -o week.parquet
      agentkv-trace ingest one.parquet two.parquet -o all.parquet
      agentkv-trace ingest mooncake:conversation.jsonl -o mooncake.parquet
    """
    from agentkv_trace.cli.options import call_filter
    from agentkv_trace.cli.output import refuse_overwrite, replacing, say
    from agentkv_trace.errors import InputError

    refuse_overwrite(output, force=force)
    if bytes_per_token is not None and not 0.25 <= bytes_per_token <= 64:
        raise InputError("--bytes-per-token: must be between 0.25 and 64")
    if chunk_tokens is not None and chunk_tokens < 1:
        raise InputError("--chunk-tokens: must be at least 1")
    if salt == "":
        raise InputError("--salt: must not be empty")
    if jobs is not None and jobs < 1:
        raise InputError("--jobs: must be at least 1")
    from agentkv_trace.ingest.run import Options

    done = read_sources(
        sources or [],
        Options(
            bytes_per_token=bytes_per_token,
            chunk_tokens=chunk_tokens,
            salt=salt.encode() if salt else None,
            strict=strict,
            layout=with_layout,
            tokenizer=tokenizer,
            jobs=jobs,
        ),
        call_filter(since, until, session, agent, model),
        quiet=quiet,
    )
    from agentkv_trace.trace.store import read_trace, write_trace

    with replacing(output) as temporary:
        write_trace(done.trace, temporary)
        if verify:
            read_trace(temporary).new_chunks()
    if not quiet:
        say(summary(done))
        say(f"Wrote {output}. Next: agentkv-trace mrc {output}")


def read_sources(
    names: list[str], options: Options, only: Filter | None, *, quiet: bool
) -> Ingested:
    """Read all that is behind some names (none: the default folders) into one trace.

    Raises InputError where there is no call in them.
    """
    from tempfile import TemporaryDirectory

    from agentkv_trace.cli.progress import progress
    from agentkv_trace.errors import InputError
    from agentkv_trace.ingest.discover import default_logs, named_logs
    from agentkv_trace.ingest.run import ingest as run

    with TemporaryDirectory() as folder:
        names = [_standard_input(Path(folder), name) for name in names]
        found = named_logs(names) if names else default_logs()
        if not found.paths():
            raise InputError("no agents' logs on this machine; name a log file or a folder of logs")
        total = sum(path.stat().st_size for path in found.paths() if path.is_file())
        with progress("Reading", total, quiet=quiet) as on_bytes:
            return run(found, options, only, on_bytes)


def _standard_input(folder: Path, name: str) -> str:
    """Put standard input into a file where `-` is named: a log is looked at before it is read."""
    import shutil
    import sys

    from agentkv_trace.errors import InputError

    if name != "-" and not name.endswith(":-"):
        return name
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file")
    path = folder / "standard input"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return f"{name[:-1]}{path}"


def summary(done: Ingested) -> str:
    """Return what was read, in words."""
    from agentkv_trace.trace.agreement import agreement

    frame = done.trace.frame()
    agreed = agreement(done.trace)
    lines = []
    for name, notes in done.notes.items():
        counts = ", ".join(f"{times:,} {what}" for what, times in notes.counts.items() if times)
        lines.append(f"{name}: {counts or 'nothing'}")
        if done.merged:
            lines.extend(f"  skipped: {line}" for line in _skips(notes))
            continue
        rows = frame.filter(frame["source"] == name)
        for column in ("kind", "fidelity") if len(rows) else ():
            values = rows[column].cast(str).value_counts(sort=True)
            words = ", ".join(f"{count:,} {word}" for word, count in values.iter_rows())
            lines.append(f"  {column}: {words}")
        if name in agreed:
            lines.append(f"  {_agreement(agreed[name])}")
        lines.extend(f"  skipped: {line}" for line in _skips(notes))
    lines.extend(f"skipped: {reason}" for reason in done.unusable)
    lines.extend(f"left out: {reason}" for reason in done.unknown[:SHOWN_UNKNOWN])
    if (more := len(done.unknown) - SHOWN_UNKNOWN) > 0:
        lines.append(f"left out: {more:,} more files")
    tokens = int(done.trace.array("prompt_tokens").sum(dtype="int64"))
    chunk = done.trace.meta.tokenizer.get("bytes_per_chunk")
    rate = f" (at {chunk / done.trace.meta.chunk_tokens:.2f} bytes per token)" if chunk else ""
    lines.append(
        f"{len(frame):,} calls of {frame['session'].n_unique():,} sessions, "
        f"{tokens:,} prompt tokens{rate}"
    )
    return "\n".join(lines)


def _agreement(found: Agreement) -> str:
    said = (
        f"usage: logged less rebuilt prompt tokens: median {found.median_residual:+,.0f}, "
        f"worst {found.worst_residual:+,} in {found.calls:,} calls"
    )
    if found.cached_beyond:
        said += (
            f"; {found.cached_beyond:,} calls reused more than any earlier call here shares: "
            "calls are missing, or prompts are not rebuilt right"
        )
    return said


def _skips(notes: Notes) -> Iterator[str]:
    for reason, times in notes.skipped.items():
        places = notes.examples[reason]
        more = ", ..." if times > len(places) else ""
        yield f"{times:,} x {reason} ({', '.join(places)}{more})"
