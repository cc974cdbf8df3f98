"""`agentkv-trace check`: gates for CI."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv_trace.cli.options import (
    AgentOption,
    ForceOption,
    ModelFilterOption,
    ModelOption,
    OutputOption,
    QuietOption,
    SessionOption,
    SinceOption,
    UntilOption,
)

if TYPE_CHECKING:
    from agentkv_trace.check.config import Config
    from agentkv_trace.check.model import CheckResult

DEFAULT_BASELINE = "agentkv-baseline.json"


class Form(StrEnum):
    """Forms of a check."""

    text = "text"
    github = "github"
    junit = "junit"
    json = "json"
    markdown = "markdown"


def check(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TRACE|LOG]...",
            help="A trace, or logs as for ingest; none: `sources` of the configuration.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Configuration; none: the nearest one from here upwards."),
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print the configuration in force and stop.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Baseline to compare with.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write the baseline instead of comparing.")
    ] = False,
    max_regression: Annotated[
        str | None, typer.Option(help="How far figures may regress: 1pp of ratios, 5% of sizes.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Cache that hit ratios are of: 2Mtok, 40GiB.")
    ] = None,
    model: ModelOption = None,
    gpu: Annotated[list[str] | None, typer.Option("--gpu", "-g", help="GPU profile.")] = None,
    agents: Annotated[int | None, typer.Option(help="Agents at once, for no-thrash.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    logged_model: ModelFilterOption = None,
    output_format: Annotated[
        Form, typer.Option("--format", "-f", help="Form of the result.")
    ] = Form.text,
    output: OutputOption = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 also where a gate failed.")
    ] = False,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fail where prompts reuse less of the cache than they should, and say why.

    Gates are set in [tool.agentkv-trace.check] of pyproject.toml or [check] of
    agentkv-trace.toml. Exit codes: 0 all gates passed, 1 a gate failed, 2 wrong usage,
    configuration or input.

    Examples:
      agentkv-trace check logs/ --update-baseline
      agentkv-trace check logs/ --format github
      agentkv-trace check trace.parquet --config agentkv-trace.toml --format junit -o check.xml
    """
    from agentkv_trace.cli.options import call_filter
    from agentkv_trace.cli.output import emit, refuse_overwrite, say

    refuse_overwrite(output, force=force)
    settings = _config(config, max_regression).with_options(
        capacity=capacity, profile=model, gpu=gpu, agents=agents
    )
    if show_config:
        from agentkv_trace.check.config import shown

        emit(shown(settings), output, quiet=quiet)
        return
    stored = _baseline_path(baseline, settings)
    names = _sources(sources, settings)
    from agentkv_trace.check import baseline as baselines
    from agentkv_trace.errors import InputError

    known = baselines.read(stored) if stored and not update_baseline else None
    if not settings.gates and known is None and not update_baseline:
        raise InputError(
            "check: nothing to check: set gates in [tool.agentkv-trace.check] of pyproject.toml, "
            "or make a baseline with --update-baseline"
        )
    rate = settings.get("bytes-per-token") or _pinned_rate(stored)
    from agentkv_trace.check.figures import measure
    from agentkv_trace.check.judge import judge
    from agentkv_trace.cli.trace_or_logs import load_any

    only = call_filter(since, until, session, agent, logged_model)
    loaded = load_any(names, only, bytes_per_token=rate, quiet=quiet)
    if update_baseline and rate is None and loaded.path is None:
        # Later checks read the logs at the rate of the baseline, and so must the baseline.
        fitted = loaded.meta.tokenizer.get("bytes_per_chunk")
        if fitted is not None:
            rate = fitted / loaded.meta.chunk_tokens
            loaded = load_any(names, only, bytes_per_token=rate, quiet=True)
    if known is not None and stored is not None:
        baselines.demand_comparable(known, loaded, settings, stored)
    figures = measure(loaded, settings)
    if update_baseline:
        path = stored or Path(DEFAULT_BASELINE)
        emit(baselines.render(baselines.make(loaded, figures, settings)), path, quiet=quiet)
        return
    result = judge(loaded, figures, settings, known)
    source = " ".join(names)
    emit(_rendered(result, output_format, source), output, quiet=quiet)
    if output_format is Form.github:
        _append_summary(result, source)
    if not result.passed:
        if output is not None:
            say(f"{len(result.failed)} of {len(result.findings)} gates failed", quiet=quiet)
        if not exit_zero:
            raise typer.Exit(1)


def _config(file: Path | None, max_regression: str | None) -> Config:
    from agentkv_trace.check.config import Config, find_config, load_config, parse_config

    found = file or find_config(Path.cwd())
    if found is not None and found.is_relative_to(Path.cwd()):
        found = found.relative_to(Path.cwd())
    config = load_config(found) if found else Config()
    if max_regression is not None:
        from dataclasses import replace

        values = {"max-regression": max_regression}
        given = parse_config(values, Path("--max-regression")).tolerances
        config = replace(config, tolerances=config.tolerances | given)
    return config


def _baseline_path(given: Path | None, config: Config) -> Path | None:
    """Return the baseline's path: as given, else as configured, else where one lies."""
    if given is not None:
        return given
    named: str | None = config.get("baseline")
    if named is not None:
        return config.folder / named
    return Path(DEFAULT_BASELINE) if Path(DEFAULT_BASELINE).is_file() else None


def _sources(given: list[str] | None, config: Config) -> list[str]:
    from agentkv_trace.errors import InputError

    if given:
        return given
    names = config.get("sources")
    if not names:
        raise InputError(
            "check: name a trace or logs, or set `sources` in [tool.agentkv-trace.check]"
        )
    return [_beside(name, config.folder) for name in names]


def _beside(name: str, folder: Path) -> str:
    """Return a source relative to the configuration's folder, its `format:` kept."""
    prefix, colon, rest = name.partition(":")
    return f"{prefix}:{folder / rest}" if colon else str(folder / name)


def _pinned_rate(stored: Path | None) -> float | None:
    """Return the bytes per token of a baseline that is there, so that logs compare with it."""
    from agentkv_trace.check import baseline as baselines

    return baselines.read(stored).bytes_per_token if stored and stored.is_file() else None


def _rendered(result: CheckResult, form: Form, source: str) -> str:
    from agentkv_trace.check import github, json, junit, markdown, text
    from agentkv_trace.cli.output import terminal_width

    if form is Form.text:
        return text.render(result, width=terminal_width(), source=source)
    if form is Form.json:
        return json.render(result)
    if form is Form.github:
        return github.render(result, source=source)
    if form is Form.junit:
        return junit.render(result, source=source)
    return markdown.render(result, source=source)


def _append_summary(result: CheckResult, source: str) -> None:
    """Append the findings to the page that GitHub shows for a job, where there is one."""
    import os

    from agentkv_trace.check import markdown

    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        with Path(page).open("a", encoding="utf-8", newline="\n") as file:
            file.write(markdown.render(result, source=source) + "\n")
