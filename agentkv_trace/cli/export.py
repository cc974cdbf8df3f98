"""`agentkv-trace export`: a trace in another tool's form."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

# typer reads the annotations, so these are needed when the command runs.
from agentkv_trace.cli.options import ForceOption, OutputOption, QuietOption, TraceArgument

if TYPE_CHECKING:
    from typing import BinaryIO

    from agentkv_trace.trace.interchange.registry import Export


class Form(StrEnum):
    """Forms in which a trace leaves; the names of `interchange.registry.EXPORTS`."""

    mooncake = "mooncake"
    oracle_general = "oracle-general"
    csv = "csv"
    references = "references"


def export(
    trace: TraceArgument,
    to: Annotated[
        Form,
        typer.Option(
            help="mooncake: JSON lines; oracle-general, csv: libCacheSim; references: Parquet."
        ),
    ] = Form.mooncake,
    chunk_tokens: Annotated[
        int | None, typer.Option(help="Chunk size in tokens, a multiple of the trace's own.")
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the prompts' chunks for another tool.

    Examples:
      agentkv-trace export trace.parquet --chunk-tokens 512 -o trace.jsonl
      agentkv-trace export trace.parquet --to oracle-general -o trace.oracleGeneral.bin
      agentkv-trace export trace.parquet --to references -o references.parquet
    """
    from agentkv_trace.cli.output import refuse_overwrite, replacing, say
    from agentkv_trace.errors import InputError
    from agentkv_trace.trace.interchange.registry import EXPORTS

    form = next(form for form in EXPORTS if form.name == to)
    refuse_overwrite(output, force=force)
    if output is None and form.binary:
        raise InputError(f"--to {form.name}: is binary; name a file with -o")
    from agentkv_trace.trace.store import read_trace

    loaded = read_trace(trace)
    if chunk_tokens is not None:
        loaded = loaded.coarsen(chunk_tokens)
    if output is None:
        form.write(loaded, _standard_output())
        return
    with replacing(output) as temporary, temporary.open("wb") as file:
        form.write(loaded, file)
    if not quiet:
        references = int(loaded.array("prompt_chunks").sum(dtype="int64"))
        say(f"Wrote {output}: {len(loaded):,} calls, {references:,} chunk references{_hint(form)}")


def _standard_output() -> BinaryIO:
    import sys

    return sys.stdout.buffer


def _hint(form: Export) -> str:
    """Return what the other tool has to be told to read the file."""
    if form.name == "csv":
        return (
            "\nFor cachesim: csv -t "
            '"time-col=1,obj-id-col=2,obj-size-col=3,delimiter=,,has-header=true"'
        )
    if form.name == "oracle-general":
        return "\nFor cachesim: oracleGeneral (every object has size 1: a capacity is in chunks)"
    return ""
