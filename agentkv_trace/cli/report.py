"""`agentkv-trace report`: how much host memory, per GPU profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv_trace.cli.options import (
    ForceOption,
    Format,
    KvBytesOption,
    OutputOption,
    QuietOption,
    TraceArgument,
)

if TYPE_CHECKING:
    from agentkv_trace.report.model import TraceFacts
    from agentkv_trace.trace.store import Trace


def report(
    trace: TraceArgument,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model profile; a unique prefix is enough.")
    ],
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", help="GPU profile, may be repeated; none: five common ones."),
    ] = None,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    kv_dtype: Annotated[str, typer.Option(help="Type of the KV cache: bf16 or fp8.")] = "bf16",
    weight_dtype: Annotated[str, typer.Option(help="Type of the weights.")] = "bf16",
    gpu_memory_utilization: Annotated[
        float, typer.Option(help="Share of GPU memory that the engine takes.")
    ] = 0.9,
    gpu_kv_tokens: Annotated[
        int | None, typer.Option(help="KV pool in tokens as the engine logged it.")
    ] = None,
    kv_bytes_per_token: KvBytesOption = None,
    recover: Annotated[
        float, typer.Option(help="Share of what an unlimited host tier would add to recover.")
    ] = 0.95,
    output_format: Annotated[
        Format, typer.Option("--format", "-f", help="Form of the result.")
    ] = Format.table,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Recommend the size of the host-memory tier for each GPU.

    Examples:
      agentkv-trace report trace.parquet --model qwen3-8b
      agentkv-trace report trace.parquet --model qwen3-coder-30b --gpu h20 --gpu h800 --tp 8
      agentkv-trace report trace.parquet --model llama-3.1-70b --tp 4 --format json
    """
    from agentkv_trace.cli.output import color_wanted, emit, refuse_overwrite, terminal_width
    from agentkv_trace.profiles.load import find_gpu, find_model

    refuse_overwrite(output, force=force)
    from agentkv_trace.report import build, csv, json, markdown, terminal
    from agentkv_trace.report.model import ReportOptions

    options = ReportOptions(
        tp=tp,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_dtype=kv_dtype,
        weight_dtype=weight_dtype,
        kv_bytes_per_token=kv_bytes_per_token,
        gpu_kv_tokens=gpu_kv_tokens,
        recover=recover,
    )
    options.check()
    profile = find_model(model)
    gpus = [find_gpu(name) for name in gpu or build.COMMON_GPUS]
    from agentkv_trace.engine.mrc import miss_ratio_curve
    from agentkv_trace.trace.store import read_trace

    loaded = read_trace(trace)
    result = build.build_report(miss_ratio_curve(loaded), _facts(loaded), profile, gpus, options)
    if output_format is Format.table:
        text = terminal.render(
            result, width=terminal_width(), color=output is None and color_wanted()
        )
    else:
        renderer = {Format.json: json, Format.csv: csv, Format.markdown: markdown}[output_format]
        text = renderer.render(result)
    emit(text, output, quiet=quiet)


def _facts(trace: Trace) -> TraceFacts:
    from agentkv_trace.report.model import TraceFacts

    tokens = trace.array("prompt_tokens")
    return TraceFacts(
        calls=len(trace),
        sessions=len(trace.codes("session")[1]),
        longest_prompt_tokens=int(tokens.max()) if len(trace) else 0,
        tokenizer=trace.meta.tokenizer["name"],
    )
