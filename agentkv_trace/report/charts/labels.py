"""Where the names of marks and series go, so that none lies on another or sticks out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.charts.figure import Figure, Mark

CHAR = 7.3
"""Width of a character of 12 px sans serif: of a wide face, with digits."""

_APART = 13


def cut(name: str, wide: float) -> str:
    """Return a name no wider than `wide` pixels; the figure's table has it whole."""
    most = max(int(wide / CHAR), 2)
    return name if len(name) <= most else name[: most - 1] + "…"


def rows_of_marks(figure: Figure, left: float, inside: float) -> list[tuple[int, Mark, str]]:
    """Give each mark of the x axis a row in which its name overlaps no other, and a side.

    `left` is the room beside a plot that is `inside` pixels wide.
    """
    ends: list[list[tuple[float, float]]] = []
    found = []
    for mark in sorted((m for m in figure.marks if not m.level), key=lambda m: m.value):
        x, wide = figure.x.at(mark.value) * inside, len(cut(mark.name, inside)) * CHAR + 10
        cramped = x + wide > inside
        roomier = room(x, "end", left, inside) > room(x, "start", left, inside)
        anchor = "end" if cramped and roomier else "start"
        wide = min(wide, room(x, anchor, left, inside))
        low, high = (x - wide, x) if anchor == "end" else (x, x + wide)
        row = next(
            (n for n, taken in enumerate(ends) if all(high < a or low > b for a, b in taken)),
            len(ends),
        )
        if row == len(ends):
            ends.append([])
        ends[row].append((low, high))
        found.append((row, mark, anchor))
    return found


def room(x: float, anchor: str, left: float, inside: float) -> float:
    """Return how many pixels a name at `x` of the plot has on its side."""
    return x + left - 6 if anchor == "end" else inside - x


def legend_rows(figure: Figure, width: int) -> list[list[tuple[float, int, str]]]:
    """Return the rows of a legend: of each series its x, number and name."""
    rows: list[list[tuple[float, int, str]]] = []
    x = float(width)
    for number, series in enumerate(figure.series):
        name = cut(series.name, width - 28 - 24)
        wide = 28 + len(name) * CHAR + 18
        if x + wide > width:
            rows.append([])
            x = 12.0
        rows[-1].append((x, number, name))
        x += wide
    return rows


def spread(places: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move places apart on which names would lie on each other, inside `top` to `bottom`.

    The order stays; what does not fit hangs out at the top.
    """
    order = sorted(range(len(places)), key=lambda n: places[n])
    found = list(places)
    last = top - _APART
    for n in order:
        last = found[n] = max(places[n], last + _APART)
    last = bottom + _APART
    for n in reversed(order):
        last = found[n] = min(found[n], last - _APART)
    return found
