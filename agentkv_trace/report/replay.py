"""The renderings of `replay` for people: table and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report import replay_rows
from agentkv_trace.report.columns import fitted, set_lines, wrapped
from agentkv_trace.report.replay_rows import duration, host_size
from agentkv_trace.report.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.replay_model import ReplayReport
    from agentkv_trace.report.rows import Column

MIN_WIDTH = 40
"""Narrower terminals get lines of this width."""


def to_table(report: ReplayReport, width: int = 80) -> str:
    """Return the replays as plain columns, then findings, notes and assumptions.

    A few replays stand side by side with all figures; more get a line each, with the figures that
    fit the width.
    """
    width = max(width, MIN_WIDTH)
    lines = [line for fact in _facts(report) for line in wrapped(fact, width)]
    keys, columns = 1, replay_rows.by_figure(report)
    if len(report.runs) > replay_rows.MOST_ACROSS:
        keys, columns = len(replay_rows.labels(report)), replay_rows.by_run(report)
    tables = fitted(columns, width, keys)
    for table in tables:
        lines += ["", *_lines(table, width)]
    if len({id(column) for table in tables for column in table}) < len(columns):
        lines += ["", *wrapped("More figures in a wider terminal, all with --format csv.", width)]
    for number in range(len(report.series)):
        lines += ["", *wrapped(_over_time_title(report, number), width)]
        for table in fitted(replay_rows.over_time(report, number), width):
            lines += _lines(table, width)
    lines.append("")
    for one in _findings(report):
        lines += wrapped(one, width)
    lines += [line for note in report.notes for line in wrapped(f"Mind: {note}", width)]
    lines += [line for one in report.assumptions for line in wrapped(f"- {one}", width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def to_markdown(report: ReplayReport) -> str:
    """Return the report as Markdown with a final newline."""
    few = len(report.runs) <= replay_rows.MOST_ACROSS
    columns = replay_rows.by_figure(report) if few else replay_rows.by_run(report)
    parts = [
        "# Replay",
        "\n".join(f"- {_escaped(fact)}" for fact in _facts(report)),
        _markdown(columns),
    ]
    for number in range(len(report.series)):
        parts.append(f"## {_over_time_title(report, number)}")
        parts.append(_markdown(replay_rows.over_time(report, number)))
    for title, said in (
        ("Found", _findings(report)),
        ("Mind", list(report.notes)),
        ("Assumptions", list(report.assumptions)),
    ):
        if said:
            parts.append(f"## {title}\n\n" + "\n".join(f"- {_escaped(one)}" for one in said))
    return "\n\n".join(parts) + "\n"


def _facts(report: ReplayReport) -> list[str]:
    trace, timeline, options = report.trace, report.timeline, report.options
    calls = "call" if trace.calls == 1 else "calls"
    sessions = "session" if trace.families == 1 else "sessions"
    more = trace.sessions - trace.families
    children = f" with {more:,} sub-agent{'' if more == 1 else 's'}" if more else ""
    pools = {run["gpu"]: run["pool_tokens"] for run in report.runs}
    kv = f"{options['kv_dtype']} KV" if options["kv_bytes_per_token"] is None else "KV"
    layout = "".join(
        f", {name.upper()} {options[name]}" for name in ("tp", "pp", "dp") if options[name] > 1
    )
    routing = f", {options['routing']} routing" if options["dp"] > 1 else ""
    filtered = ""
    if options["write_filter"] != "off":
        filtered = f", write filter {options['write_filter']} (kappa {options['kappa']})"
    each = " a replica" if options["dp"] > 1 else ""
    return [
        f"Trace: {trace.calls:,} {calls} in {trace.families:,} {sessions}{children}, "
        f"{format_tokens(trace.prompt_tokens)} tokens of prompts",
        f"Model: {report.model}, {kv}{layout}{routing}",
        "GPU: "
        + "; ".join(
            f"{name}, KV pool of {format_tokens(pools[gpu])} tokens{each}"
            for gpu, name in report.gpus.items()
        ),
        f"Backend: {options['backend_name']}{filtered}",
        f"Timeline: {_timeline(report)}; seed {timeline['seed']}",
    ]


def _timeline(report: ReplayReport) -> str:
    timeline = report.timeline
    order = {"trace": "", "longest": ", longest first", "random": " in random order"}
    sessions = timeline["sessions"] or report.trace.families
    cap = "" if timeline["max_agents"] is None else f", at most {timeline['max_agents']} active"
    if timeline["kind"] == "recorded":
        return f"recorded, as in the log{cap}"
    many = f"{sessions:,} {'session' if sessions == 1 else 'sessions'}{order[timeline['order']]}"
    if timeline["kind"] == "open-loop":
        return f"open-loop, {many}, {timeline['rate']:g} begin a minute{cap}"
    return f"closed-loop, {many}{cap}"


def _findings(report: ReplayReport) -> list[str]:
    said = [
        f"Onset: {_where(report, onset.gpu, onset.host_bytes)}: {onset.words}"
        for onset in report.onsets
    ]
    for cap in report.caps:
        where = _where(report, cap.gpu, cap.host_bytes)
        saved = f"{duration(cap.makespan_s)} instead of {duration(cap.without_s)}"
        if cap.makespan_s >= cap.without_s:
            saved = f"{duration(cap.makespan_s)}: a cap gains nothing"
        agents = "agent" if cap.agents == 1 else "agents"
        said.append(f"Cap: {where}: fastest with {cap.agents} active {agents}, {saved}")
    return said


def _where(report: ReplayReport, gpu: str, host_bytes: int) -> str:
    tier = f" with {format_bytes(host_bytes)} host memory" if host_bytes else " alone"
    return report.gpus[gpu] + tier


def _over_time_title(report: ReplayReport, number: int) -> str:
    run = report.runs[number]
    agents = "" if run["agents"] is None else f", agents {run['agents']}"
    return f"Over time: {report.gpus[run['gpu']]}{agents}, host {host_size(run['host_bytes'])}"


def _lines(columns: Sequence[Column], width: int) -> list[str]:
    head, body = set_lines(columns, width)
    return [*head, *body]


def _markdown(columns: Sequence[Column]) -> str:
    lines = [
        [column.title for column in columns],
        ["--:" if column.numeric else "---" for column in columns],
        *map(list, zip(*(column.cells for column in columns), strict=True)),
    ]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
