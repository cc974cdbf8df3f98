"""A report as one HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from agentkv_trace.report import rows
from agentkv_trace.report.charts.figures import figures
from agentkv_trace.report.charts.svg import COLOURS, NARROW, WIDE, box_of, chart_style, draw
from agentkv_trace.report.json import as_dict
from agentkv_trace.report.units import format_ratio, format_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentkv_trace.report.charts.figure import Figure
    from agentkv_trace.report.detail_model import Detail, GroupRow, Groups
    from agentkv_trace.report.model import Report
    from agentkv_trace.report.rows import Column

_HINT = "Point at the chart, or focus it and use the arrow keys, to read values."


def render(report: Report) -> str:
    """Return the page of a report with detail: no request, no prompt text, the same every time."""
    style, script = _asset("page.css") + chart_style(), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(as_dict(report), ensure_ascii=False, separators=(",", ":"))
    title = "Host memory for the KV cache"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{title}: {_e(report.model.name)}</title>",
            f"<style>{style}</style></head><body>",
            _top(report, title),
            "<main>",
            *_sections(report),
            "</main>",
            f"<footer>agentkv-trace {_e(report.version)}, {_e(report.schema)}. This page makes no "
            "request and holds no prompt text.</footer>",
            f'<script type="application/json" id="report">{_data(data)}</script>',
            f"<script>{script}</script></body></html>",
            "",
        ]
    )


def _top(report: Report, title: str) -> str:
    answers = []
    for finding in report.gpus:
        name, _, rest = finding.summary.partition(": ")
        word, _, rest = rest.partition(": ")
        answers.append(
            f'<li class="{finding.verdict}"><b>{_e(name)} <span class="word">{_e(word)}</span></b>'
            f"{_e(rest)}</li>"
        )
    facts = "".join(
        f"<dt>{_e(label)}</dt><dd>{_e(text)}</dd>" for label, text in rows.facts(report)
    )
    return (
        f'<header><h1>{title}</h1><p class="faint">{_e(report.model.name)}, '
        f"{report.workload.calls:,} calls of {report.workload.sessions:,} sessions</p>"
        f'<ul class="answers">{"".join(answers)}</ul><dl>{facts}</dl></header>'
    )


def _sections(report: Report) -> Iterable[str]:
    drawn = {figure.key: _figure(figure) for figure in figures(report)}
    yield _section("What each GPU gives", _columns(rows.gpu_columns(report), "All GPUs"))
    if "curve" in drawn:
        yield drawn["curve"]
    yield from _sizes(report)
    for said, title in (
        (rows.pressure(report), "Thrashing"),
        (rows.onsets(report), "Where prefill doubles"),
        (rows.settings(report), "What to set"),
        (rows.notes(report), "Mind"),
    ):
        if said:
            yield _section(title, _list(said))
    for key in ("context", "hits", "agents", "distances"):
        if key in drawn:
            yield drawn[key]
    if report.detail:
        yield _section("Sessions", _groups(report.detail.sessions, "Session"))
        yield _section("Models", _groups(report.detail.models, "Model"))
        yield _section("Where prefixes broke", _broken(report.detail))
    yield _section("Assumptions", _list(report.assumptions))
    if report.detail:
        tokens = f"Tokens: {report.workload.tokenizer}; chunks of {report.workload.chunk_tokens}."
        yield _section("How the numbers were computed", _list([*report.detail.methods, tokens]))


def _sizes(report: Report) -> Iterable[str]:
    for finding in report.gpus:
        if finding.host_sizes:
            table = _columns(
                rows.depth_columns(report, finding), f"{finding.name}, * is the judged size"
            )
            yield _section(f"{finding.name} by size of host memory", table)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_e(title)}</h2>{body}</section>"


def _figure(figure: Figure) -> str:
    """Return a chart in both widths with its legend, read-out, data and table."""
    charts = "".join(
        draw(figure, width).replace(
            'class="chart"', f'class="chart {name}" data-width="{width}"', 1
        )
        for width, name in ((WIDE, "wide"), (NARROW, "narrow"))
    )
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-series="{number}">'
        f'<svg class="chart" viewBox="0 0 24 8" aria-hidden="true">'
        f'<path class="s{number % COLOURS}" d="M0 4h24"/></svg>{_e(series.name)}</button>'
        for number, series in enumerate(figure.series)
    )
    legend = f'<div class="legend" role="group" aria-label="Series">{buttons}</div>'
    known = any(y is not None for series in figure.series for y in series.y)
    hint = _HINT if known else ""
    table = _table(figure.head, [(row, "") for row in figure.rows], figure.title)
    return _section(
        figure.title,
        f'<figure data-chart="{figure.key}"><figcaption>{_e(figure.words)}</figcaption>{charts}'
        f"{legend if known and len(figure.series) > 1 else ''}"
        f'<div class="readout" aria-live="polite" data-hint="{hint}">{hint}</div>'
        f'<script type="application/json">{_data(_readings(figure))}</script>'
        f"<details><summary>Table: {_e(figure.title)}</summary>{table}</details></figure>",
    )


def _readings(figure: Figure) -> str:
    """Return what the read-out says at each x of a chart, and where that is."""
    xs = sorted({x for series in figure.series for x in series.x})
    series = []
    for each in figure.series:
        known = dict(zip(each.x, each.y, strict=True))
        values = [known.get(x) for x in xs]
        series.append(
            {
                "name": each.name,
                "y": [None if y is None else _value(figure, y) for y in values],
            }
        )
    places = {}
    for width in (WIDE, NARROW):
        box = box_of(figure, width)
        inside = box.right - box.left
        places[str(width)] = {
            "x": [round(box.left + figure.x.at(x) * inside, 1) for x in xs],
            "top": box.top,
            "bottom": box.bottom,
        }
    words = [figure.x.form(x) if not figure.x.log else format_tokens(round(x)) for x in xs]
    return json.dumps({"x": words, "series": series, "places": places}, ensure_ascii=False)


def _value(figure: Figure, y: float) -> str:
    return format_tokens(round(y)) if figure.y.log else f"{y:.1%}"


def _columns(columns: Sequence[Column], caption: str) -> str:
    body = [(row, "") for row in zip(*(column.cells for column in columns), strict=True)]
    head = tuple(column.title for column in columns)
    return _table(head, body, caption, [column.numeric for column in columns])


def _groups(groups: Groups, noun: str) -> str:
    known = any(row.gpu_hit_ratio is not None for row in groups.rows)
    plain = noun == "Model"
    head = (
        noun,
        *(() if plain else ("Agent", "Model")),
        "Calls",
        "Prompt tokens",
        "Output tokens",
        "Reuse",
        *(("Hits on the first GPU alone",) if known else ()),
        "Folds",
    )
    listed = [*groups.rows, *([groups.others] if groups.others else [])]
    body = [(_group(row, plain=plain, known=known), row.name) for row in listed]
    numeric = [n >= (1 if plain else 3) for n in range(len(head))]
    caption = f"{groups.total:,} in all, most prompt tokens first"
    return _table(head, body, caption, numeric)


def _group(row: GroupRow, *, plain: bool, known: bool) -> tuple[str, ...]:
    gpu = "-" if row.gpu_hit_ratio is None else format_ratio(row.gpu_hit_ratio)
    return (
        row.name,
        *(() if plain else (row.agent or "-", row.model or "-")),
        f"{row.calls:,}",
        format_tokens(row.prompt_tokens),
        format_tokens(row.output_tokens),
        format_ratio(row.hit_ratio),
        *((gpu,) if known else ()),
        f"{row.folds:,}",
    )


def _broken(detail: Detail) -> str:
    if not detail.broken:
        return "<p>No prompt left its session's path.</p>"
    head = ("Cause", "What to do", "Calls", "Sessions", "Lost tokens", "Of all prompts")
    body = [
        (
            (
                each.cause,
                each.fix or "-",
                f"{each.calls:,}",
                f"{each.sessions:,}",
                format_tokens(each.lost_tokens),
                format_ratio(each.lost_share),
            ),
            "",
        )
        for each in detail.broken
    ]
    numeric = [False, False, True, True, True, True]
    return _table(
        head, body, "Most lost tokens first; agentkv-trace explain names the calls", numeric
    )


def _table(
    head: Sequence[str],
    body: Sequence[tuple[Sequence[str], str]],
    caption: str,
    numeric: Sequence[bool] | None = None,
) -> str:
    """Return a table; each row comes with the whole name that its first cell may cut."""
    right = numeric or [n > 0 for n in range(len(head))]
    titles = "".join(
        f'<th scope="col"{" class=n" if number else ""}>{_e(title)}</th>'
        for title, number in zip(head, right, strict=True)
    )
    lines = []
    for cells, name in body:
        shown = "".join(
            f"<td{' class=n' if number else ' class=name'}>{_e(cell)}</td>"
            for cell, number in zip(cells, right, strict=True)
        )
        lines.append(f"<tr{_title(name)}>{shown}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_e(caption)}"><table>'
        f"<caption>{_e(caption)}</caption><thead><tr>{titles}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _title(name: str) -> str:
    return f' title="{_e(name)}"' if name else ""


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{_e(line)}</li>" for line in lines) + "</ul>"


def _e(text: str) -> str:
    """Return text for the page: markup escaped, and what would turn or hide it shown as a mark."""
    return escape("".join(each if each.isprintable() else "\ufffd" for each in text))


def _data(text: str) -> str:
    """Return JSON that no parser of HTML takes for markup."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
