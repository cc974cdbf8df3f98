"""`agentkv-trace explain`: which calls lost their prefix, where, why, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentkv_trace.cli.options import (
    AgentOption,
    ForceOption,
    Format,
    ModelFilterOption,
    ModelOption,
    OutputOption,
    QuietOption,
    SessionOption,
    SinceOption,
    UntilOption,
)

if TYPE_CHECKING:
    from agentkv_trace.advise.break_cost import Cost


def explain(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="TRACE|LOG...", help="A trace made by ingest, or logs as there."),
    ],
    model: ModelOption = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", help="GPU to count the cost on; may be repeated."),
    ] = None,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    weight_dtype: Annotated[str, typer.Option(help="Type of the weights.")] = "bf16",
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="Most calls to list, those that lost most.")
    ] = 20,
    show_text: Annotated[
        bool,
        typer.Option(
            "--show-text", help="Show what changed, from the logs; on a terminal, never in a file."
        ),
    ] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    logged_model: ModelFilterOption = None,
    output_format: Annotated[
        Format, typer.Option("--format", "-f", help="Form of the result.")
    ] = Format.table,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say which calls lost their prefix, where, why, and what it cost.

    A trace tells parts and causes if it was made with `ingest --with-layout`; logs always do.

    Examples:
      agentkv-trace explain trace.parquet
      agentkv-trace explain ~/.codex/sessions/2026 --model qwen3-8b --gpu h100-sxm
      agentkv-trace explain trace.parquet --format json --limit 1000000
      agentkv-trace explain rollout.jsonl --show-text
    """
    from agentkv_trace.cli.options import call_filter
    from agentkv_trace.cli.output import emit, refuse_overwrite, terminal_width
    from agentkv_trace.errors import InputError

    refuse_overwrite(output, force=force)
    if limit < 1:
        raise InputError(f"--limit {limit}: must be at least 1")
    if show_text:
        _demand_screen(output_format is Format.table and output is None)
    costs = _costs(model, gpu or [], tp, weight_dtype)
    from agentkv_trace.cli.trace_or_logs import load_any

    only = call_filter(since, until, session, agent, logged_model)
    loaded = load_any(sources, only, quiet=quiet)
    from agentkv_trace.report.breaks import csv, json, markdown, terminal
    from agentkv_trace.report.breaks.build import build_explanation

    found = build_explanation(loaded, costs, limit)
    if output_format is Format.table:
        text = terminal.render(found, width=terminal_width(), show_breaks=limit)
    else:
        forms = {Format.json: json, Format.csv: csv, Format.markdown: markdown}
        text = forms[output_format].render(found)
    emit(text, output, quiet=quiet)
    if show_text:
        from agentkv_trace.cli.break_text import print_texts

        print_texts(sources, loaded, limit, terminal_width())


def _demand_screen(to_screen: bool) -> None:
    """Raise InputError where text of prompts could end up elsewhere than on the screen."""
    from agentkv_trace.errors import InputError

    if not to_screen or not _on_screen():
        raise InputError("--show-text: shows prompts on a terminal only; leave out -o and --format")


def _on_screen() -> bool:
    import sys

    return sys.stdout.isatty()


def _costs(model: str | None, gpus: list[str], tp: int, weight_dtype: str) -> list[Cost]:
    """Return what to count costs on. Raises InputError unless model and GPU come together."""
    from agentkv_trace.errors import InputError

    if (model is None) != (not gpus):
        raise InputError("--model and --gpu: give both, the cost of prefill depends on both")
    if model is None:
        return []
    from agentkv_trace.advise.break_cost import Cost
    from agentkv_trace.profiles.load import find_gpu, find_model
    from agentkv_trace.tiers.capacity import Deployment

    deployment = Deployment(tp=tp, weight_dtype=weight_dtype)
    deployment.check()
    profile = find_model(model)
    return [Cost(find_gpu(name), profile, deployment) for name in gpus]
