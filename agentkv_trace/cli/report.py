"""`agentkv-trace report`: does host memory pay, how much of it, per GPU profile."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from agentkv_trace.cli.options import (
    AgentOption,
    BackendOption,
    ConnectorOption,
    ForceOption,
    GpusPerLinkOption,
    KvBytesOption,
    KvTokensOption,
    MemoryShareOption,
    ModelFilterOption,
    OutputOption,
    PpOption,
    ProfileOption,
    QuietOption,
    SessionOption,
    SinceOption,
    TpOption,
    TraceArgument,
    UntilOption,
    WeightDtypeOption,
)


class ReportFormat(StrEnum):
    """Forms of a report; html is one page with charts."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    html = "html"


def report(
    trace: TraceArgument,
    model: ProfileOption,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", help="GPU profile, may be repeated; none: five common ones."),
    ] = None,
    backend: BackendOption = "ideal",
    host_size: Annotated[
        str | None,
        typer.Option(
            help="Host memory to judge: 64GiB over all ranks or 8GiB/rank; several by comma."
        ),
    ] = None,
    tp: TpOption = 1,
    pp: PpOption = 1,
    dp: Annotated[int, typer.Option(help="Replicas.")] = 1,
    agents: Annotated[
        int | None,
        typer.Option(help="Replay the sessions as so many agents; none: calls as in the trace."),
    ] = None,
    kv_dtype: Annotated[str, typer.Option(help="Type of the KV cache: bf16 or fp8.")] = "bf16",
    weight_dtype: WeightDtypeOption = "bf16",
    gpu_memory_utilization: MemoryShareOption = 0.9,
    gpu_kv_tokens: KvTokensOption = None,
    kv_bytes_per_token: KvBytesOption = None,
    recover: Annotated[
        float, typer.Option(help="Share of what an unlimited host tier would add to recover.")
    ] = 0.95,
    connector: ConnectorOption = None,
    gpus_per_link: GpusPerLinkOption = 1,
    prefill_tokens_per_s: Annotated[
        float | None, typer.Option(help="Prefill rate you measured, whole deployment, no hits.")
    ] = None,
    h2d_gbps: Annotated[
        float | None, typer.Option(help="GB/s you measured from host to one GPU.")
    ] = None,
    store_sync_ms: Annotated[
        float | None, typer.Option(help="Wait per prefill step for the store that you measured.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the arithmetic for one GPU, step by step.")
    ] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    logged_model: ModelFilterOption = None,
    output_format: Annotated[
        ReportFormat, typer.Option("--format", "-f", help="Form of the result.")
    ] = ReportFormat.table,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say whether a host-memory tier pays on each GPU, how large, and when it thrashes.

    Examples:
      agentkv-trace report trace.parquet --model qwen3-8b
      agentkv-trace report trace.parquet --model qwen3-coder-30b --gpu h20 --gpu h800 --tp 8
      agentkv-trace report trace.parquet --model qwen3-8b --backend lmcache --explain
      agentkv-trace report trace.parquet --model ./config.json --host-size 8GiB/rank --tp 4
      agentkv-trace report trace.parquet --model qwen3-8b --agents 16 --format html -o report.html
    """
    from agentkv_trace.cli.options import call_filter, load
    from agentkv_trace.cli.output import (
        color_wanted,
        emit,
        refuse_overwrite,
        speaks_utf8,
        terminal_width,
    )
    from agentkv_trace.cli.progress import counted, say_if_compiling
    from agentkv_trace.profiles.load import find_gpu, find_model

    refuse_overwrite(output, force=force)
    from agentkv_trace.report import build, csv, json, markdown, terminal
    from agentkv_trace.report.model import ReportOptions
    from agentkv_trace.report.workload import TraceWorkload
    from agentkv_trace.tiers.backends import find_backend

    options = ReportOptions(
        tp=tp,
        pp=pp,
        dp=dp,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_dtype=kv_dtype,
        weight_dtype=weight_dtype,
        kv_bytes_per_token=kv_bytes_per_token,
        gpu_kv_tokens=gpu_kv_tokens,
        recover=recover,
        backend=find_backend(backend).id,
        connector=connector,
        agents=agents,
        host_bytes=_host_bytes(host_size, tp * pp * dp),
        gpus_per_link=gpus_per_link,
        prefill_tokens_per_s=prefill_tokens_per_s,
        h2d_gbps=h2d_gbps,
        store_sync_ms=store_sync_ms,
    )
    options.check()
    profile = find_model(model)
    gpus = [find_gpu(name) for name in gpu or build.COMMON_GPUS]
    only = call_filter(since, until, session, agent, logged_model)
    loaded = load(trace, only)
    say_if_compiling(quiet=quiet)
    with counted("Replaying", quiet=quiet) as advance:
        result = build.build_report(
            TraceWorkload(loaded, agents, advance=advance),
            profile,
            gpus,
            options,
            detailed=output_format is not ReportFormat.csv,
        )
    if output_format is ReportFormat.table:
        text = terminal.render(
            result,
            width=terminal_width(),
            color=output is None and color_wanted(),
            explained=explain,
            unicode=output is None and speaks_utf8(),
        )
    elif output_format is ReportFormat.markdown:
        text = markdown.render(result, explained=explain)
    elif output_format is ReportFormat.html:
        from agentkv_trace.report.html.page import render

        text = render(result)
    else:
        text = (json if output_format is ReportFormat.json else csv).render(result)
    emit(text, output, quiet=quiet)


def _host_bytes(text: str | None, ranks: int) -> tuple[int, ...]:
    """Return the sizes over all ranks that `64GiB,8GiB/rank` means."""
    from agentkv_trace.errors import InputError
    from agentkv_trace.tiers.size import Size

    sizes = []
    for part in text.split(",") if text else ():
        amount, _, each = part.strip().partition("/")
        size = Size.parse(amount)
        if size.unit != "bytes" or each not in ("", "rank") or size.amount < 1:
            raise InputError(f"--host-size {part.strip()!r}: write it like 64GiB or 8GiB/rank")
        sizes.append(int(size.amount) * (ranks if each else 1))
    return tuple(sizes)
