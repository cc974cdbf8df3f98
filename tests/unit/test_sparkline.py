"""The lines that draw a trace over time in the terminal."""

from __future__ import annotations

import pytest

from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report import markdown, terminal
from agentkv_trace.report.build import build_report
from agentkv_trace.report.model import ReportOptions
from agentkv_trace.report.sparkline import over_time, sparkline
from agentkv_trace.report.workload import TraceWorkload
from replays import CHUNK, trace_of


@pytest.fixture(scope="module")
def report():
    paths = [[1000 * (turn % 2) + i for i in range(20 + turn // 2)] for turn in range(20)]
    trace = trace_of(paths, sessions=[f"s{turn % 2}" for turn in range(20)])
    options = ReportOptions(gpu_kv_tokens=32 * CHUNK)
    workload = TraceWorkload(trace)
    gpus = [find_gpu("h100-sxm")]
    return build_report(workload, find_model("qwen3-8b"), gpus, options, detailed=True)


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 20, ".:-=+*#@@"),
        ([8, 0, 4, 0], 2, "@+"),
        ([None, 1, None], 20, " @ "),
        ([0, 0], 20, ".."),
        ([], 20, ""),
        ([None, None, 2, 1], 2, " @"),
    ],
)
def test_each_value_has_a_sign(values, width, drawn) -> None:
    assert sparkline(values, width, unicode=False) == drawn
    assert len(sparkline(values, width, unicode=True)) == len(drawn)


def test_what_thrashes_is_marked(report) -> None:
    lines = over_time(report, 80, unicode=False)
    assert lines[0] == "Tokens over time"
    assert lines[-1].split() == ["H100", "SXM", "alone", ".!!!", "!", "thrashes"]
    peak = max(report.detail.timeline.live_tokens)
    # While the first session's last prompt of 29 chunks is live, the other's has 28.
    assert peak == (29 + 28) * CHUNK
    assert lines[1].endswith("up to 912")


@pytest.mark.parametrize("width", [40, 60, 80, 160])
@pytest.mark.parametrize("unicode", [False, True])
def test_it_fits_the_terminal(report, width, unicode) -> None:
    text = terminal.render(report, width=width, unicode=unicode)
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() != unicode
    assert "Live context" in text


def test_markdown_has_it_as_code(report) -> None:
    text = markdown.render(report)
    assert "## Tokens over time\n\n```\nLive context" in text
