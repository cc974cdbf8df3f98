"""Options and choices that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentkv_trace.trace.select import Filter
    from agentkv_trace.trace.store import Trace

TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="Trace file made by ingest.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write here instead of to standard output.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", help="Model profile; a unique prefix is enough.")
]
KvBytesOption = Annotated[
    int | None,
    typer.Option("--kv-bytes-per-token", help="KV bytes per token and rank, of any other model."),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Only calls from this time on: 2026-11-30, or 7d ago. UTC."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Only calls before this time.")]
SessionOption = Annotated[
    list[str] | None,
    typer.Option("--session", help="Only sessions of this name; * and ? match; repeatable."),
]
AgentOption = Annotated[
    list[str] | None, typer.Option("--agent", help="Only this agent's calls, likewise.")
]
ModelFilterOption = Annotated[
    list[str] | None,
    typer.Option("--logged-model", help="Only calls of this model in the logs, likewise."),
]

# The deployment, for report and replay.
ProfileOption = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="Model profile (a unique prefix is enough) or a config.json."
    ),
]
TpOption = Annotated[int, typer.Option(help="Tensor-parallel ranks.")]
PpOption = Annotated[int, typer.Option(help="Pipeline stages.")]
WeightDtypeOption = Annotated[
    str, typer.Option(help="Type of the weights: bf16, fp8, int4 or fp4.")
]
MemoryShareOption = Annotated[
    float, typer.Option(help="Share of GPU memory that the engine takes.")
]
KvTokensOption = Annotated[
    int | None, typer.Option(help="KV pool in tokens as the engine logged it.")
]
ConnectorOption = Annotated[
    str | None,
    typer.Option(help="Generation of the connector, whose waits count; see `profiles`."),
]
GpusPerLinkOption = Annotated[int, typer.Option(help="GPUs that share one host link.")]
BackendOption = Annotated[
    str,
    typer.Option(
        help="ideal, vllm, vllm-simple, vllm-lazy, lmcache, lmcache-server, sglang, "
        "sglang-selective or sglang-write-back."
    ),
]


class Format(StrEnum):
    """Forms of a result."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def call_filter(
    since: str | None,
    until: str | None,
    session: list[str] | None,
    agent: list[str] | None,
    model: list[str] | None,
) -> Filter | None:
    """Return the filter that some options mean, None where none is given."""
    from agentkv_trace.trace.select import Filter, parse_time

    if not (since or until or session or agent or model):
        return None
    return Filter(
        None if since is None else parse_time(since),
        None if until is None else parse_time(until),
        tuple(session or ()),
        tuple(agent or ()),
        tuple(model or ()),
    )


def load(path: Path, only: Filter | None, chunk_tokens: int | None = None) -> Trace:
    """Read a trace, or what a filter leaves of it, at its own or a coarser chunk size.

    Raises InputError where nothing is left.
    """
    from agentkv_trace.errors import InputError
    from agentkv_trace.trace.store import read_trace

    trace = read_trace(path)
    if not len(trace):
        raise InputError(f"{path}: holds no call; ingest logs that do")
    if only is not None:
        from agentkv_trace.trace.select import select

        trace = select(trace, only.mask(trace))
        if not len(trace):
            raise InputError(f"{path}: no call is left by the filters given")
    return trace if chunk_tokens is None else trace.coarsen(chunk_tokens)
