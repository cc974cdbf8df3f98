"""Axes and charts: edge cases, and that a chart says what its figure does."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.report.charts.axis import Axis, log_axis
from agentkv_trace.report.charts.figure import Figure, Lane, Mark, Series
from agentkv_trace.report.charts.svg import NARROW, WIDE, box_of, chart_style, draw

SVG = "{http://www.w3.org/2000/svg}"
SHARE = Axis("", 0.0, 1.0, lambda value: f"{100 * value:.0f}%")


def figure(*series: Series, x: Axis | None = None, **fields) -> Figure:
    values = [value for each in series for value in each.x]
    return Figure("key", "Title", "Words", x or log_axis("x", values), SHARE, series, **fields)


def parsed(made: Figure, width: int = WIDE, **fields) -> ElementTree.Element:
    return ElementTree.fromstring(draw(made, width, **fields))


def paths(svg: ElementTree.Element, kind: str) -> list[str]:
    return [each.get("d") for each in svg.iter(f"{SVG}path") if each.get("class") == kind]


def texts(svg: ElementTree.Element) -> list[str]:
    return [each.text for each in svg.iter(f"{SVG}text")]


def test_a_log_axis_has_powers_of_two_for_ends_and_ticks() -> None:
    axis = log_axis("x", [5, 0, 1000])
    assert (axis.low, axis.high) == (4, 1024)
    assert axis.ticks(9) == [4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert axis.ticks(4) == [8, 64, 512]
    assert [axis.at(4), axis.at(64), axis.at(1024), axis.at(1), axis.at(9e9)] == [0, 0.5, 1, 0, 1]


@pytest.mark.parametrize("values", [[], [0], [7], [1, 1], [1e9, 4e12]])
def test_an_axis_has_a_length_whatever_the_values(values) -> None:
    axis = log_axis("x", values)
    assert 0 < axis.low < axis.high
    assert axis.ticks(5)


@pytest.mark.parametrize(
    ("last", "most", "ticks"),
    [
        (10, 5, [0, 2, 4, 6, 8, 10]),
        (1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.03, 3, [0, 0.01, 0.02, 0.03]),
        (2e9, 4, [0, 5e8, 1e9, 1.5e9, 2e9]),
    ],
)
def test_linear_ticks_are_round(last, most, ticks) -> None:
    assert Axis("y", 0, last).ticks(most) == pytest.approx(ticks)


def test_ticks_of_time_are_those_of_clocks() -> None:
    assert Axis("t", 0, 3600, time=True).ticks(4) == [0, 900, 1800, 2700, 3600]
    assert Axis("t", 0, 86_400 * 30, time=True).ticks(4)[1] == 10 * 86_400


@given(st.floats(1e-3, 1e12), st.floats(1e-3, 1e12), st.integers(1, 12), st.booleans())
def test_ticks_ascend_inside_the_axis(low, span, most, log) -> None:
    axis = log_axis("x", [low, low + span]) if log else Axis("x", 0, span)
    ticks = axis.ticks(most)
    assert ticks == sorted(set(ticks))
    spare = 1e-6 * (axis.high - axis.low)
    assert all(axis.low - spare <= tick <= axis.high + spare for tick in ticks)
    assert len(ticks) <= most + 2


def test_a_line_goes_through_its_points() -> None:
    made = figure(Series("s", (1.0, 4.0, 16.0), (1.0, 0.5, 0.0)))
    box = box_of(made, WIDE)
    (line,) = paths(parsed(made), "line")
    points = [tuple(map(float, each.split())) for each in re.split("[ML]", line)[1:]]
    middle = (box.left + box.right) / 2
    expected = [
        (box.left, box.top),
        (middle, (box.top + box.bottom) / 2),
        (box.right, box.bottom),
    ]
    assert np.array(points) == pytest.approx(np.array(expected), abs=0.06)


def test_a_step_line_holds_each_value_until_the_next() -> None:
    made = figure(Series("s", (1.0, 2.0, 4.0), (0.0, 1.0, 1.0), "step"))
    box = box_of(made, WIDE)
    (line,) = paths(parsed(made), "line")
    ys = [float(each.split()[1]) for each in re.split("[ML]", line)[1:]]
    assert ys == [box.bottom, box.bottom, box.top, box.top]


def test_a_gap_splits_a_line_and_a_single_point_is_a_dot() -> None:
    svg = parsed(figure(Series("s", (1.0, 2.0, 4.0, 8.0, 16.0), (0.1, 0.2, None, 0.3, 0.4))))
    assert len(paths(svg, "line")) == 2
    svg = parsed(figure(Series("s", (5.0,), (0.5,))))
    assert len(list(svg.iter(f"{SVG}circle"))) == 1


@pytest.mark.parametrize("values", [(), (None, None)])
def test_an_empty_figure_says_so(values) -> None:
    made = figure(Series("s", tuple(map(float, range(1, len(values) + 1))), values), empty="None")
    assert "None" in texts(parsed(made))
    assert not paths(parsed(made), "line")


def test_a_flat_curve_and_large_numbers_stay_inside() -> None:
    made = figure(Series("s", (1e9, 4e12), (1.0, 1.0)))
    box = box_of(made, WIDE)
    (line,) = paths(parsed(made), "line")
    numbers = [float(each) for each in re.findall(r"[\d.]+", line)]
    assert all(math.isfinite(each) for each in numbers)
    assert max(numbers) <= box.right


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_names_of_marks_lie_on_no_other(width) -> None:
    names = [Mark(f"GPU number {n} pool", 2.0**n) for n in range(1, 9)]
    made = figure(Series("s", (1.0, 512.0), (1.0, 0.0)), marks=tuple(names))
    svg = parsed(made, width)
    places = []
    for each in svg.iter(f"{SVG}text"):
        if not each.text.startswith("GPU"):
            continue
        x, y, wide = float(each.get("x")), float(each.get("y")), 6.2 * len(each.text)
        low = x - wide if each.get("text-anchor") == "end" else x
        assert low >= 0
        assert low + wide <= width
        places.append((low, low + wide, y))
    assert len(places) == 8
    for n, (low, high, y) in enumerate(places):
        for a, b, other in places[n + 1 :]:
            assert other != y or high <= a or b <= low


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_names_of_levels_lie_on_no_other(width) -> None:
    levels = (0.001, 0.5, 0.97, 0.98, 0.99, 1.0)
    names = tuple(Mark(f"level {n}", y, level=True) for n, y in enumerate(levels))
    made = figure(Series("s", (1.0, 512.0), (1.0, 0.0)), marks=names)
    box = box_of(made, width)
    shown = [each for each in parsed(made, width).iter(f"{SVG}text") if each.text.startswith("lev")]
    at = {each.text: float(each.get("y")) for each in shown}
    assert sorted(at, key=at.get) == [mark.name for mark in reversed(names)]
    heights = sorted(at.values())
    assert min(np.diff(heights)) >= 12.9
    assert heights[0] >= box.top
    assert heights[-1] <= box.bottom
    for each in shown:
        wide = 7 * len(each.text)
        x = float(each.get("x"))
        assert x + (0 if each.get("text-anchor") == "end" else wide) <= width


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_long_name_is_cut_to_the_drawing(width) -> None:
    long = "x" * 300
    marks = (Mark(long, 20.0), Mark(long, 400.0), Mark(long, 0.5, level=True))
    made = figure(Series(long, (1.0, 512.0), (1.0, 0.0)), marks=marks)
    shown = [
        each for each in parsed(made, width, alone=True).iter(f"{SVG}text") if "x…" in each.text
    ]
    assert len(shown) == 4
    for each in shown:
        x, wide = float(each.get("x")), 7 * len(each.text)
        low = x - wide if each.get("text-anchor") == "end" else x
        assert low >= 0
        assert low + wide <= width


def test_a_band_follows_its_line() -> None:
    band = ((0.8, 1.0), (0.1, 0.3))
    svg = parsed(figure(Series("s", (1.0, 2.0), (0.9, 0.2), band=band)))
    (outline,) = paths(svg, "band")
    assert len(re.split("[ML]", outline)) - 1 == 4
    svg = parsed(figure(Series("s", (1.0, 2.0), (0.9, 0.2), "step", band=band)))
    (outline,) = paths(svg, "band")
    assert len(re.split("[ML]", outline)) - 1 == 6


def test_lanes_and_bands_are_drawn() -> None:
    series = Series("s", (1.0, 2.0), (0.5, 0.5), band=((0.4, 0.6), (0.4, 0.6)))
    svg = parsed(figure(series, lanes=(Lane("thrashes", ((1.0, 1.5), (1.8, 2.0))),)))
    assert len(paths(svg, "band")) == 1
    assert sum(each.get("class") == "thrash" for each in svg.iter(f"{SVG}rect")) == 2


def test_a_file_of_its_own_has_style_title_and_legend() -> None:
    made = figure(Series("one <&>", (1.0, 2.0), (1.0, 0.0)), Series("two", (1.0,), (0.5,)))
    svg = parsed(made, alone=True)
    assert next(svg.iter(f"{SVG}style")).text
    assert {"Title", "one <&>", "two"} <= set(texts(svg))
    assert svg.get("role") == "img"


def luminance(colour: str) -> float:
    """Return the relative luminance that WCAG defines for `#rrggbb`."""
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_have_contrast_in_every_scheme() -> None:
    schemes = re.findall(r"\.chart \{([^}]*--ink[^}]*)\}", chart_style())
    assert len(schemes) == 3  # light, dark, print
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})\b", scheme))
        whole = {
            name: each if len(each) == 7 else "#" + "".join(2 * digit for digit in each[1:])
            for name, each in colours.items()
        }
        paper = luminance(whole["paper"])
        for name in ("ink", "faint", "warn", *(f"c{n}" for n in range(8))):
            low, high = sorted((paper, luminance(whole[name])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_no_two_series_have_the_same_dash() -> None:
    dashes = re.findall(r"--d: ([^;]+);", chart_style())
    assert len(set(dashes)) == 8
