"""The picture of a curve: what it draws is what the JSON says."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from agentkv_trace.cli.app import main
from agentkv_trace.engine.mrc import curves_of_groups, miss_ratio_curve, trace_runs
from agentkv_trace.report.charts.figure import Mark
from agentkv_trace.report.charts.mrc import curve_figure, to_svg
from agentkv_trace.report.mrc import MrcResult, to_markdown
from agentkv_trace.trace.store import write_trace
from replays import trace_of

TRACE = trace_of([[1, 2], [3], [1, 2, 4], [3, 5], [1, 2]], sessions=["a", "b", "a", "b", "c"])
TRACE_COLD = 5 / 10
"""Of 2 + 1 + 3 + 2 + 2 references, five are to a chunk that is new."""


def result(**fields) -> MrcResult:
    return MrcResult(curve=miss_ratio_curve(TRACE), capacities=(0, 1, 2, 4, 8), next_call_reuse=None, **fields)  # fmt: skip  # noqa: E501


def test_the_line_has_the_points_of_the_curve() -> None:
    (series,) = curve_figure(result()).series
    assert series.x == (16, 32, 64, 128)
    assert series.y == tuple(point["miss_ratio"] for point in result().points()[1:])


def test_groups_are_series_of_their_own() -> None:
    groups = curves_of_groups(TRACE, trace_runs(TRACE), "session")
    shown = curve_figure(result(by="session", groups=groups)).series
    assert [each.name for each in shown] == ["a", "b", "c"]


def test_a_sampled_curve_has_its_band(tmp_path, capsys) -> None:
    from agentkv_trace.engine.mrc import sampled_curve

    curve = sampled_curve(TRACE, rate=1.0)
    made = MrcResult(curve=curve, capacities=(1, 4), next_call_reuse=None)
    (series,) = curve_figure(made).series
    bound = curve.sampling["error_bound"]
    for y, (low, high) in zip(series.y, series.band, strict=True):
        assert low == max(y - bound, 0)
        assert high == min(y + bound, 1)


@pytest.mark.parametrize("name", ["</svg><script>", '"\x07&', "x" * 300])
def test_any_name_is_a_word(name) -> None:
    groups = {name: miss_ratio_curve(TRACE)}
    svg = ElementTree.fromstring(to_svg(result(by="session", groups=groups)))
    assert not list(svg.iter("script"))


def test_marks_stand_at_their_capacity() -> None:
    made = curve_figure(result(), [Mark("40GiB", 64.0), Mark("1TiB", 1024.0)])
    assert [mark.value for mark in made.marks] == [64, 1024]
    (series,) = made.series
    # The curve is drawn as far as the marks.
    assert series.x == (16, 32, 64, 128, 1024)
    assert series.y[-1] == TRACE_COLD


def test_the_command_writes_it(tmp_path) -> None:
    path, out = tmp_path / "trace.parquet", tmp_path / "curve.svg"
    write_trace(TRACE, path)
    asked = ["mrc", str(path), "--capacity", "2chunks", "--format", "svg", "-q", "-o", str(out)]
    assert main(asked) == 0
    svg = ElementTree.fromstring(out.read_text())
    assert "2chunks" in [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_json_is_as_before(tmp_path, capsys) -> None:
    path = tmp_path / "trace.parquet"
    write_trace(TRACE, path)
    assert main(["mrc", str(path), "--capacity", "2chunks", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["capacity_chunks"] for point in found["points"]] == [2]


def test_a_name_is_no_markup_in_markdown() -> None:
    groups = {"<img src=x> | y": miss_ratio_curve(TRACE)}
    text = to_markdown(result(by="session", groups=groups))
    assert "&lt;img src=x&gt; \\| y" in text
    assert "<img" not in text
