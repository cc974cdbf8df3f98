"""Options and choices that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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


class Format(StrEnum):
    """Forms of a result."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
