"""`agentkv-trace mrc`: the miss-ratio curve of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv_trace.cli.options import (
    ForceOption,
    Format,
    KvBytesOption,
    ModelOption,
    OutputOption,
    QuietOption,
    TraceArgument,
)

if TYPE_CHECKING:
    from agentkv_trace.engine.curve import MissRatioCurve


def mrc(
    trace: TraceArgument,
    capacity: Annotated[
        str | None,
        typer.Option(
            help="Capacities, separated by commas: 4096chunks, 2Mtok, 40GiB (with --model)."
        ),
    ] = None,
    model: ModelOption = None,
    kv_bytes_per_token: KvBytesOption = None,
    chunk_tokens: Annotated[
        int | None, typer.Option(help="Chunk size in tokens, a multiple of the trace's own.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the curve too.")] = False,
    output_format: Annotated[
        Format, typer.Option("--format", "-f", help="Form of the result.")
    ] = Format.table,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print the miss-ratio curve: cache capacity to share of misses.

    Examples:
      agentkv-trace mrc trace.parquet --plot
      agentkv-trace mrc trace.parquet --capacity 4096chunks,2Mtok
      agentkv-trace mrc trace.parquet --model qwen3-8b --capacity 40GiB --format json
    """
    from agentkv_trace.cli.output import emit, refuse_overwrite, speaks_utf8, terminal_width
    from agentkv_trace.report import mrc as render

    refuse_overwrite(output, force=force)
    name, kv_bytes = _kv_bytes(model, kv_bytes_per_token)
    sizes = None
    if capacity is not None:
        from agentkv_trace.tiers.size import parse_sizes

        sizes = parse_sizes(capacity)
    from agentkv_trace.engine.mrc import miss_ratio_curve, trace_next_call_reuse
    from agentkv_trace.trace.store import read_trace

    loaded = read_trace(trace)
    if chunk_tokens is not None:
        loaded = loaded.coarsen(chunk_tokens)
    curve = miss_ratio_curve(loaded)
    if sizes is not None:
        asked = tuple(size.chunks(curve.chunk_tokens, kv_bytes) for size in sizes)
    else:
        asked = _shown(
            curve, 200 if output_format in (Format.json, Format.csv) else render.TABLE_ROWS
        )
    result = render.MrcResult(curve, asked, trace_next_call_reuse(loaded), name, kv_bytes)
    if output_format is Format.table:
        text = render.to_table(result)
        if plot:
            drawn = render.to_plot(result, width=terminal_width(), unicode=speaks_utf8())
            text += "\n" + drawn
    else:
        text = {
            Format.json: render.to_json,
            Format.csv: render.to_csv,
            Format.markdown: render.to_markdown,
        }[output_format](result)
    emit(text, output, quiet=quiet)


def _shown(curve: MissRatioCurve, limit: int) -> tuple[int, ...]:
    return tuple(int(point) for point in curve.points(limit))


def _kv_bytes(model: str | None, given: int | None) -> tuple[str | None, int | None]:
    """Return the name and the KV bytes per token of the model that turns tokens into bytes."""
    from agentkv_trace.errors import InputError

    if given is not None:
        if given < 1:
            raise InputError(f"--kv-bytes-per-token {given}: must be at least 1")
        return model or "given", given
    if model is None:
        return None, None
    from agentkv_trace.profiles.load import find_model
    from agentkv_trace.tiers.capacity import kv_bytes_per_token

    profile = find_model(model)
    return profile.id, kv_bytes_per_token(profile)
