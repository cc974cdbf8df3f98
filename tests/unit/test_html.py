"""The page: any trace, any name, one file that asks for nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report.build import build_report
from agentkv_trace.report.html.page import render
from agentkv_trace.report.json import as_dict
from agentkv_trace.report.model import ReportOptions
from agentkv_trace.report.workload import TraceWorkload
from replays import trace_of, trace_of_columns
from workload_agents import make_agents

HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"quoted\" & 'single' <b>",
    "\U0001f680 emoji",
    "x" * 300,
    "right \u202eto left",
    "bell \x07 and \x1b[31m red",
    "{{template}} ${js} %s",
)
EMPTY = ("base", "base_chunks", "prompt_chunks", "path_chunks")


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "rect", "path", "circle"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, text):
        if self._open and self._open[-1] == "script":
            self.scripts.append(text)
        elif "style" not in self._open:
            self.words += text


def made(trace, *gpus: str, **options):
    return build_report(
        TraceWorkload(trace),
        find_model("qwen3-8b"),
        [find_gpu(name) for name in gpus or ("rtx3090", "h100-sxm")],
        ReportOptions(**options),
        detailed=True,
    )


def traces():
    empty = dict.fromkeys(EMPTY, np.zeros(0, np.int32))
    return {
        "empty": trace_of_columns(empty, []),
        "one call": trace_of([[1, 2, 3]]),
        "no full chunk": trace_of([[]], tail=3),
        "nothing shared": trace_of([[1], [2], [3]]),
        "no times": trace_of([[1, 2]] * 12, time_source="order_only"),
        "one instant": trace_of([[1, 2]] * 12, starts=[0] * 12),
        "normal": make_agents(12, mean_tokens=4_000, calls_per_task=6, tasks=2, head_tokens=800),
    }


@pytest.mark.parametrize("name", traces())
def test_every_trace_has_a_page_with_all_charts_and_their_tables(name: str) -> None:
    text = render(made(traces()[name]))
    page = Page(text)
    charts = [each["data-chart"] for tag, each in page.tags if tag == "figure"]
    expected = ["curve", "context", "hits", "agents", "distances"]
    if name == "empty":
        expected.remove("agents")
    assert charts == expected
    assert "nan" not in text.lower().replace("nano", "")
    tables = [each for tag, each in page.tags if tag == "table"]
    assert len(tables) >= len(charts)


def test_nothing_is_fetched() -> None:
    page = Page(render(made(traces()["normal"])))
    for tag, attributes in page.tags:
        assert not {"src", "href", "srcset", "action"} & set(attributes), tag
        assert tag not in ("link", "img", "iframe", "base", "form")
    assert "@import" not in render(made(traces()["normal"]))


def test_the_page_holds_the_json_of_the_report() -> None:
    report = made(traces()["normal"])
    data = next(text for text in Page(render(report)).scripts if text.startswith('{"schema"'))
    assert json.loads(data) == as_dict(report)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_words_and_nothing_else(name: str) -> None:
    trace = trace_of([[1, 2]] * 3, sessions=[name] * 3, agent=name, model=name)
    report = made(trace)
    report = replace(report, model=replace(report.model, name=name))
    text = render(report)
    page = Page(text)
    plain = Page(render(made(trace_of([[1, 2]] * 3))))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    shown = "".join(each if each.isprintable() else "\ufffd" for each in name)
    assert page.words.count(shown) >= 3
    assert "\u202e" not in page.words
    assert "\x1b" not in text


def test_the_same_report_makes_the_same_page() -> None:
    assert render(made(traces()["normal"])) == render(made(traces()["normal"]))


def test_a_chart_without_values_has_no_legend_and_no_hint() -> None:
    text = render(made(traces()["empty"]))
    assert '<div class="legend"' not in text
    assert "use the arrow keys" not in text
    assert '<div class="legend"' in render(made(traces()["normal"]))


def test_many_sessions_are_summed_up() -> None:
    trace = trace_of([[n] for n in range(80)], sessions=[f"s{n}" for n in range(80)])
    words = Page(render(made(trace))).words
    assert "80 in all" in words
    assert "30 others" in words


def test_the_answer_comes_first() -> None:
    report = made(traces()["normal"], "rtx3090", gpu_kv_tokens=8_000)
    words = Page(render(report)).words
    _, _, rest = report.gpus[0].summary.partition(": ")
    answer = words.index(rest.partition(": ")[2])
    assert answer < words.index("What each GPU gives")
