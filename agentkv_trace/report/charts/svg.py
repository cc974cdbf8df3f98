"""A figure as SVG: for a page, whose style sheet colours it, or as a file of its own.

Why not a charting library: the smallest that draws in a page adds a megabyte of script, draws on a
canvas that no screen reader sees, or needs a hundred megabytes to make an SVG (README.md here).
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING

from agentkv_trace.report.charts.labels import (
    CHAR,
    cut,
    legend_rows,
    room,
    rows_of_marks,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.charts.figure import Figure, Series

WIDE, NARROW = 760, 360
"""Widths in pixels: beside text, and on a phone."""

COLOURS = 8
"""Series have as many colours and dashes; further ones begin again."""

_LINE = 16
_PLOT = 240
_LANE, _STRIP = 22, 7
"""Of a lane in all, and of its strip below its name."""
_LEFT, _RIGHT = 58, 14
_BESIDE, _LEADER = 170, 22
"""Room for the names of levels beside the plot, and for the lines that lead to them."""


@dataclass(frozen=True, slots=True)
class Box:
    """Where the plot lies in the drawing, in pixels; `height` is that of all."""

    left: float
    right: float
    top: float
    bottom: float
    height: float


def draw(figure: Figure, width: int = WIDE, *, alone: bool = False) -> str:
    """Return the chart as an `svg` element; `alone` adds style and legend for a file."""
    return _Drawing(figure, width, alone=alone).svg()


def box_of(figure: Figure, width: int = WIDE, *, alone: bool = False) -> Box:
    """Return where `draw` puts the plot."""
    return _Drawing(figure, width, alone=alone).box


class _Drawing:
    def __init__(self, figure: Figure, width: int, *, alone: bool) -> None:
        self.figure, self.width, self.alone = figure, width, alone
        self.legend = legend_rows(figure, width) if alone else []
        self.levels = [mark for mark in figure.marks if mark.level]
        # Names of levels stand beside the plot where there is room for them.
        names = [len(mark.name) * CHAR for mark in self.levels]
        self.beside = bool(names) and width >= WIDE
        right = _RIGHT + (min(max(names), _BESIDE) + _LEADER if self.beside else 0)
        self.inside = width - _LEFT - right
        self.labels = rows_of_marks(figure, _LEFT, self.inside)
        rows = 1 + max((row for row, _, _ in self.labels), default=-1)
        above = rows + bool(figure.y.label) + (1 + len(self.legend) if alone else 0)
        top = 18 + _LINE * above
        bottom = top + _PLOT
        below = _LANE * len(figure.lanes) + (2 if figure.x.under else 1) * _LINE + 26
        self.box = Box(_LEFT, width - right, top, bottom, bottom + below)

    def svg(self) -> str:
        figure, box = self.figure, self.box
        ids = f"{figure.key}-{self.width}"
        style = f"<style>{chart_style()}</style>" if self.alone else ""
        return (
            f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {self.width} {_n(box.height)}" width="{self.width}" '
            f'height="{_n(box.height)}" aria-labelledby="{ids}-title {ids}-desc">'
            f'<title id="{ids}-title">{escape(figure.title)}</title>'
            f'<desc id="{ids}-desc">{escape(figure.words)}</desc>{style}'
            f"{self._heading()}{self._axes()}{self._lanes()}{self._marks()}"
            f"{''.join(self._series(n, each) for n, each in enumerate(figure.series))}"
            f"{self._names()}{self._nothing()}</svg>"
        )

    def px(self, value: float) -> float:
        return self.box.left + self.figure.x.at(value) * (self.box.right - self.box.left)

    def py(self, value: float) -> float:
        return self.box.bottom - self.figure.y.at(value) * (self.box.bottom - self.box.top)

    def _heading(self) -> str:
        if not self.alone:
            return ""
        parts = [
            f'<rect class="paper" width="{self.width}" height="{_n(self.box.height)}"/>',
            _text(12, 16, self.figure.title, "title", "start"),
        ]
        for row, found in enumerate(self.legend):
            for x, number, name in found:
                y = 16 + _LINE * (row + 1)
                parts.append(
                    f'<path class="s{number % COLOURS}" d="M{_n(x)} {y - 4}h22"/>'
                    + _text(x + 28, y, name, "", "start")
                )
        return "".join(parts)

    def _axes(self) -> str:
        figure, box = self.figure, self.box
        parts = []
        for value in figure.y.ticks(5):
            y = _n(self.py(value))
            parts.append(f'<path class="grid" d="M{_n(box.left)} {y}H{_n(box.right)}"/>')
            parts.append(_text(box.left - 6, self.py(value) + 4, figure.y.form(value), "", "end"))
        if figure.y.label:
            above = box.top - 14 - _LINE * (1 + max((row for row, _, _ in self.labels), default=-1))
            parts.append(_text(box.left - 50, above, figure.y.label, "", "start"))
        base = box.bottom + _LANE * len(figure.lanes)
        for value in figure.x.ticks(int((box.right - box.left) // 78)):
            x = self.px(value)
            parts.append(f'<path class="grid" d="M{_n(x)} {_n(box.top)}V{_n(base + 4)}"/>')
            words = [figure.x.form(value), figure.x.under(value) if figure.x.under else ""]
            near = _anchor(x, max(map(len, words)) * CHAR, self.width)
            parts.append(_text(x, base + _LINE, words[0], "", near))
            if words[1]:
                parts.append(_text(x, base + 2 * _LINE, words[1], "quiet", near))
        middle = (box.left + box.right) / 2
        parts.append(_text(middle, box.height - 6, figure.x.label, "", "middle"))
        parts.append(f'<path class="axis" d="M{_n(box.left)} {_n(box.bottom)}H{_n(box.right)}"/>')
        return "".join(parts)

    def _lanes(self) -> str:
        parts = []
        for row, lane in enumerate(self.figure.lanes):
            y = self._lane_y(row) + _LANE - _STRIP - 2
            width = self.box.right - self.box.left
            parts.append(
                f'<rect class="lane" x="{_n(self.box.left)}" y="{_n(y)}" width="{_n(width)}" '
                f'height="{_STRIP}"/>'
            )
            for low, high in lane.stretches:
                x = self.px(low)
                wide = max(self.px(high) - x, 2)
                parts.append(
                    f'<rect class="thrash" x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" '
                    f'height="{_STRIP}"/>'
                )
        return "".join(parts)

    def _marks(self) -> str:
        box, parts = self.box, []
        for row, mark, _ in self.labels:
            y = self._label_y(row) - 10
            parts.append(
                f'<path class="mark" d="M{_n(self.px(mark.value))} {_n(y)}V{_n(box.bottom)}"/>'
            )
        for mark in self.figure.marks:
            if mark.level:
                y = self.py(mark.value)
                parts.append(f'<path class="mark" d="M{_n(box.left)} {_n(y)}H{_n(box.right)}"/>')
        return "".join(parts)

    def _names(self) -> str:
        """Return the names of marks and lanes, on top of all lines."""
        box, parts = self.box, []
        for row, mark, anchor in self.labels:
            x = self.px(mark.value)
            name = cut(mark.name, room(x - box.left, anchor, _LEFT, self.inside))
            x += -4 if anchor == "end" else 4
            parts.append(_text(x, self._label_y(row), name, "halo", anchor))
        places = [self.py(mark.value) for mark in self.levels]
        shift = 0 if self.beside else -9
        for mark, at, y in zip(
            self.levels,
            places,
            spread([y + shift for y in places], box.top + 4, box.bottom - 4),
            strict=True,
        ):
            if self.beside:
                end = box.right + _LEADER - 4
                parts.append(
                    f'<path class="lead" d="M{_n(box.right)} {_n(at)}L{_n(end)} {_n(y)}"/>'
                    + _text(end + 4, y + 4, cut(mark.name, _BESIDE), "", "start")
                )
            else:
                name = cut(mark.name, self.inside)
                parts.append(_text(box.right - 4, y + 4, name, "halo", "end"))
        for row, lane in enumerate(self.figure.lanes):
            y = self._lane_y(row) + 10
            parts.append(_text(box.left + 4, y, lane.name, "small", "start"))
        return "".join(parts)

    def _label_y(self, row: int) -> float:
        rows = 1 + max(row for row, _, _ in self.labels)
        return self.box.top - _LINE * (rows - row - 1) - 8

    def _lane_y(self, row: int) -> float:
        return self.box.bottom + 4 + row * _LANE

    def _series(self, number: int, series: Series) -> str:
        shape = f"s{number % COLOURS}"
        places = [
            (self.px(x), None if y is None else self.py(y))
            for x, y in zip(series.x, series.y, strict=True)
        ]
        known = [(x, y) for x, y in places if y is not None]
        parts = []
        if series.band:
            upper = [
                (x, self.py(high)) for (x, _), (_, high) in zip(places, series.band, strict=True)
            ]
            lower = [
                (x, self.py(low)) for (x, _), (low, _) in zip(places, series.band, strict=True)
            ]
            if series.shape == "step":
                upper, lower = _stairs(upper), _stairs(lower)
            outline = [*upper, *reversed(lower)]
            parts.append(f'<path class="band" d="{_line(outline)}Z"/>')
        if series.shape == "bars":
            parts += self._bars(series)
        elif series.shape == "dots" or len(known) == 1:
            parts += [f'<circle cx="{_n(x)}" cy="{_n(y)}" r="3.5"/>' for x, y in known]
        if series.shape in ("line", "step"):
            for piece in _pieces(places):
                path = _stairs(piece) if series.shape == "step" else piece
                parts.append(f'<path class="line" d="{_line(path)}"/>')
        return (
            f'<g class="series {shape}" data-series="{number}">'
            f"<title>{escape(series.name)}</title>{''.join(parts)}</g>"
        )

    def _bars(self, series: Series) -> list[str]:
        """Return bars that end at their x, each from the x before it."""
        starts = (self.figure.x.low, *series.x[:-1])
        found = []
        for low, high, y in zip(starts, series.x, series.y, strict=False):
            if not y:
                continue
            x = self.px(low) + 1
            wide = max(self.px(high) - x - 1, 1)
            found.append(
                f'<rect x="{_n(x)}" y="{_n(self.py(y))}" width="{_n(wide)}" '
                f'height="{_n(self.box.bottom - self.py(y))}"/>'
            )
        return found

    def _nothing(self) -> str:
        if any(y is not None for series in self.figure.series for y in series.y):
            return ""
        middle = (self.box.left + self.box.right) / 2
        words = self.figure.empty or "Nothing to show"
        return _text(middle, (self.box.top + self.box.bottom) / 2, words, "quiet", "middle")


def chart_style() -> str:
    """Return the style sheet of charts."""
    return files(__package__).joinpath("chart.css").read_text(encoding="utf-8")


def _pieces(places: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Split a line where it has gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in places:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x, y))
    return [piece for piece in pieces if piece]


def _stairs(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a step line: each value holds until the next x."""
    found = list(line[:1])
    for (_, before), (x, y) in pairwise(line):
        if y != before:
            found += [(x, before), (x, y)]
    if len(line) > 1 and found[-1] != line[-1]:
        found.append(line[-1])
    return found


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def _anchor(x: float, wide: float, width: float) -> str:
    return "end" if x + wide / 2 > width else "middle"


def _text(x: float, y: float, words: str, kind: str, anchor: str) -> str:
    name = f' class="{kind}"' if kind else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{name} x="{_n(x)}" y="{_n(y)}"{side}>{escape(words)}</text>'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
