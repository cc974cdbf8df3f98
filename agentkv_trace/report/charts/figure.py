"""What a chart shows, before it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agentkv_trace.report.charts.axis import Axis


@dataclass(frozen=True, slots=True)
class Series:
    """A line through points, a step line or bars; None in `y` is a gap.

    `band`: the lowest and highest y at each point.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    shape: Literal["line", "step", "bars", "dots"] = "line"
    band: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across the plot at a value of the x axis, or of the y axis where `level`."""

    name: str
    value: float
    level: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """A strip below the plot that is filled over some stretches of the x axis."""

    name: str
    stretches: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart: `key` names it in the page, `title` and `words` say what it shows.

    `head` and `rows` are its table.
    """

    key: str
    title: str
    words: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    lanes: tuple[Lane, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    empty: str = ""
