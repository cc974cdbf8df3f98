"""A curve in the terminal: braille dots, or ASCII where the terminal has no UTF-8."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEIGHT = 15
"""Rows of the plotting area."""

_LEFT = 6  # "100% |"
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_TICK_COLUMNS = 9
_UNITS = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))


def plot(
    ratio_at: Callable[[Sequence[float]], Sequence[float]],
    first: float,
    last: float,
    *,
    title: str,
    x_label: str,
    width: int,
    unicode: bool,
    markers: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw a ratio (0 to 1) over a logarithmic axis from `first` to `last`.

    `ratio_at` is asked at every column, so the drawing is exact wherever the curve jumps.
    `markers` are positions with a name each: a vertical line, and a line in the legend.
    Returns lines no wider than `width` (at least 32), without trailing spaces.
    """
    first = max(first, 1.0)
    last = max(last, 2 * first)
    columns = max(32, width) - _LEFT - 1
    across, down = (2, 4) if unicode else (1, 1)
    dots = columns * across
    span = log2(last / first)
    xs = [first * 2 ** (span * i / (dots - 1)) for i in range(dots)]
    bottom = HEIGHT * down - 1
    ys = [round((1 - min(max(ratio, 0.0), 1.0)) * bottom) for ratio in ratio_at(xs)]
    rows = _braille(ys, columns) if unicode else _ascii(ys, columns)
    legend = []
    for number, (position, name) in enumerate(markers):
        letter = chr(ord("A") + number)
        beyond = "" if position <= last else " (beyond the axis)"
        legend.append(f"{letter}: {name}{beyond}")
        if position <= last:
            column = round(log2(max(position, first) / first) / span * (columns - 1))
            _mark(rows, column, letter, "┊" if unicode else ":")
    bar, corner, rule, tick = ("│", "└", "─", "┴") if unicode else ("|", "+", "-", "+")
    lines = [title]
    for row, cells in enumerate(rows):
        label = f"{100 - 100 * row // (HEIGHT - 1):3d}%" if row % 7 == 0 else ""
        lines.append(f"{label:>4} {bar}{''.join(cells)}".rstrip())
    axis, labels = _axis(first, last, columns, rule, tick)
    lines.append(f"{'':4} {corner}{axis}")
    lines.append(f"{'':{_LEFT}}{labels}".rstrip())
    lines.append(f"{x_label:^{columns + _LEFT}}".rstrip())
    return "\n".join([*lines, *legend])


def _braille(ys: list[int], columns: int) -> list[list[str]]:
    cells = [[0] * columns for _ in range(HEIGHT)]
    for x, y in _stroke(ys):
        cells[y // 4][x // 2] |= _BRAILLE[x % 2][y % 4]
    return [[chr(0x2800 + bits) if bits else " " for bits in row] for row in cells]


def _ascii(ys: list[int], columns: int) -> list[list[str]]:
    cells = [[" "] * columns for _ in range(HEIGHT)]
    for x, y in _stroke(ys):
        cells[y][x] = "*"
    return cells


def _stroke(ys: list[int]) -> list[tuple[int, int]]:
    """Return the dots of a line through `ys`, without gaps where it falls steeply."""
    dots = [(0, ys[0])]
    for x in range(1, len(ys)):
        before, y = ys[x - 1], ys[x]
        if y == before:
            dots.append((x, y))
        else:
            step = 1 if y > before else -1
            dots.extend((x, between) for between in range(before + step, y + step, step))
    return dots


def _mark(rows: list[list[str]], column: int, letter: str, line: str) -> None:
    for row in rows:
        if row[column] == " ":
            row[column] = line
    rows[0][column] = letter


def _axis(first: float, last: float, columns: int, rule: str, tick: str) -> tuple[str, str]:
    """Return the axis line and its labels, at powers of two."""
    span = log2(last / first)
    every = ceil(span / max(1, columns // _TICK_COLUMNS))
    axis, labels = [rule] * columns, [" "] * (columns + 1)
    power = ceil(log2(first))
    while 2.0**power <= last:
        column = round((power - log2(first)) / span * (columns - 1))
        label = human(2.0**power)
        start = min(max(0, column - len(label) // 2), columns - len(label))
        if all(cell == " " for cell in labels[max(0, start - 1) : start + len(label)]):
            axis[column] = tick
            labels[start : start + len(label)] = label
        power += every
    return "".join(axis), "".join(labels)


def human(value: float) -> str:
    """Return a number of the axis in powers of two, such as `64Ki`."""
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.3g}"
