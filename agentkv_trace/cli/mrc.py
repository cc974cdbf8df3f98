"""`agentkv-trace mrc`: the miss-ratio curve of a trace."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from agentkv_trace.cli.options import (
    AgentOption,
    ForceOption,
    KvBytesOption,
    ModelFilterOption,
    ModelOption,
    OutputOption,
    QuietOption,
    SessionOption,
    SinceOption,
    TraceArgument,
    UntilOption,
)


class Engine(StrEnum):
    """Engines: the names of `engine.mrc`."""

    path = "path"
    chunk = "chunk"
    shards = "shards"


class Order(StrEnum):
    """In which order a call touches its chunks."""

    tail_first = "tail-first"
    head_first = "head-first"


class Timing(StrEnum):
    """When a call looks up and touches."""

    sequential = "sequential"
    overlap = "overlap"


class Group(StrEnum):
    """Columns by which a curve is split; the names of `engine.mrc.GROUPS`."""

    session = "session"
    agent = "agent"
    model = "model"
    source = "source"


class MrcFormat(StrEnum):
    """Forms of a curve; svg is a picture of it."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    svg = "svg"


def mrc(
    trace: TraceArgument,
    engine: Annotated[
        Engine,
        typer.Option(help="path and chunk are exact; shards samples streams of any size."),
    ] = Engine.path,
    order: Annotated[
        Order, typer.Option(help="Order of a call's touches; head-first needs --engine chunk.")
    ] = Order.tail_first,
    timing: Annotated[
        Timing,
        typer.Option(help="overlap: look up at a call's start, touch its outputs at its end."),
    ] = Timing.sequential,
    backend: Annotated[
        str | None,
        typer.Option(help="Follow a backend's cache: vllm, sglang, lmcache, lmcache-server."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Share of chunks that shards samples, such as 0.01.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Most chunks that shards holds, instead of a rate.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    by: Annotated[
        Group | None, typer.Option(help="Curves of groups of calls in the shared cache too.")
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            help="Capacities, separated by commas: 4096chunks, 2Mtok, 40GiB (with --model)."
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(help="Hits of a hosted model's cache by time to live: 5m,1h (s, m, h, d)."),
    ] = None,
    model: ModelOption = None,
    kv_bytes_per_token: KvBytesOption = None,
    chunk_tokens: Annotated[
        int | None, typer.Option(help="Chunk size in tokens, a multiple of the trace's own.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    logged_model: ModelFilterOption = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the curve too.")] = False,
    output_format: Annotated[
        MrcFormat, typer.Option("--format", "-f", help="Form of the result.")
    ] = MrcFormat.table,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print the miss-ratio curve: cache capacity to share of misses.

    Examples:
      agentkv-trace mrc trace.parquet --plot
      agentkv-trace mrc trace.parquet --capacity 4096chunks,2Mtok --by session
      agentkv-trace mrc trace.parquet --model qwen3-8b --capacity 40GiB --format json
      agentkv-trace mrc trace.parquet --engine shards --samples 8192
      agentkv-trace mrc trace.parquet --ttl 5m,1h --by agent
      agentkv-trace mrc trace.parquet --model qwen3-8b --format svg -o curve.svg
    """
    from agentkv_trace.cli.options import call_filter, load
    from agentkv_trace.cli.output import emit, refuse_overwrite, speaks_utf8, terminal_width
    from agentkv_trace.report import mrc as render

    refuse_overwrite(output, force=force)
    name, kv_bytes = _kv_bytes(model, kv_bytes_per_token)
    only = call_filter(since, until, session, agent, logged_model)
    sizes = None
    if capacity is not None:
        from agentkv_trace.tiers.size import parse_sizes

        sizes = parse_sizes(capacity)
    from agentkv_trace.errors import InputError
    from agentkv_trace.report.mrc_build import MrcOptions, build_mrc

    if plot and output_format is not MrcFormat.table:
        raise InputError("--plot: goes with --format table only")
    if ttl is not None and output_format is MrcFormat.svg:
        raise InputError("--ttl: is in no picture; leave out --format svg")
    if backend is not None:
        backend = _backend(backend, chunk_tokens, quiet=quiet)

    options = MrcOptions(
        engine=engine.value,
        order=order.value,
        timing=timing.value,
        backend=backend,
        rate=rate,
        samples=samples,
        seed=seed,
        by=by and by.value,
        ttl=ttl,
    )
    options.check()
    loaded = load(trace, only, chunk_tokens)
    chunk = loaded.meta.chunk_tokens
    asked = [size.chunks(chunk, kv_bytes) for size in sizes or ()]
    read = (MrcFormat.table, MrcFormat.markdown)
    drawn = output_format is MrcFormat.svg
    result = build_mrc(
        loaded,
        options,
        capacities=None if sizes is None or drawn else tuple(asked),
        limit=render.TABLE_ROWS if output_format in read else 200,
        model=name,
        bytes_per_token=kv_bytes,
        hosted=output_format in read,
    )
    if output_format is MrcFormat.table:
        text = render.to_table(result, terminal_width())
        if plot:
            text += "\n"
            text += render.to_plot(result, width=terminal_width(), unicode=speaks_utf8())
    elif drawn:
        from agentkv_trace.report.charts.figure import Mark
        from agentkv_trace.report.charts.mrc import to_svg

        names = capacity.split(",") if capacity else ()
        marks = [Mark(n.strip(), a * chunk) for n, a in zip(names, asked, strict=True) if a]
        text = to_svg(result, marks)
    else:
        text = {
            MrcFormat.json: render.to_json,
            MrcFormat.csv: render.to_csv,
            MrcFormat.markdown: render.to_markdown,
        }[output_format](result)
    emit(text, output, quiet=quiet)


def _backend(name: str, chunk_tokens: int | None, *, quiet: bool) -> str:
    """Return the backend that a name means, with a word where its own chunks are larger."""
    from agentkv_trace.cli.output import say
    from agentkv_trace.profiles.names import resolve
    from agentkv_trace.tiers.hit_curve import BACKENDS, REPLAYS

    backend = resolve(name, dict.fromkeys(BACKENDS, ()), "backend")
    own = REPLAYS[backend].chunk_tokens if backend in REPLAYS else None
    if own is not None and chunk_tokens is None:
        say(f"LMCache's chunks are {own} tokens: --chunk-tokens {own} follows it", quiet=quiet)
    return backend


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
