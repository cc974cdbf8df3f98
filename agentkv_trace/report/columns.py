"""Tables as plain lines: which columns fit a width, and how they are set."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.rows import Column

_GAP = "  "
_MAX_TITLE_LINES = 3


def fitted(columns: Sequence[Column], width: int, keys: int = 1) -> list[list[Column]]:
    """Return one table that fits, without its least important columns, or else several.

    Further tables repeat the first `keys` columns.
    """
    kept = list(columns)
    while _width(kept) > width and any(column.rank for column in kept):
        kept.remove(max(reversed(kept), key=lambda column: column.rank))
    first, others = kept[:keys], kept[keys:]
    tables = [list(first)]
    for column in others:
        if len(tables[-1]) > keys and _width([*tables[-1], column]) > width:
            tables.append(list(first))
        tables[-1].append(column)
    return tables


def set_lines(columns: Sequence[Column], width: int) -> tuple[list[str], list[str]]:
    """Return the lines of a table's head and of its body, titles broken where they must be."""
    for title_lines in range(1, _MAX_TITLE_LINES + 1):
        if _width(columns, title_lines) <= width:
            break
    widths = [_column_width(column, title_lines) for column in columns]
    titles = [
        textwrap.wrap(column.title, size) for column, size in zip(columns, widths, strict=True)
    ]
    height = max(len(title) for title in titles)
    head = zip(*([""] * (height - len(title)) + title for title in titles), strict=True)
    body = zip(*(column.cells for column in columns), strict=True)
    return [_line(columns, widths, cells) for cells in head], [
        _line(columns, widths, cells) for cells in body
    ]


def wrapped(text: str, width: int) -> list[str]:
    """Return a sentence as lines, those after the first set in."""
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _width(columns: Sequence[Column], title_lines: int = _MAX_TITLE_LINES) -> int:
    widths = (_column_width(column, title_lines) for column in columns)
    return sum(widths) + len(_GAP) * (len(columns) - 1)


def _column_width(column: Column, title_lines: int) -> int:
    """Return the least width for the cells and for a title of at most so many lines."""
    width = max((len(text) for text in (*column.cells, *column.title.split())), default=1)
    while len(textwrap.wrap(column.title, max(width, 1))) > title_lines:
        width += 1
    return max(width, 1)


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    return _GAP.join(
        cell.rjust(width) if column.numeric else cell.ljust(width)
        for column, width, cell in zip(columns, widths, cells, strict=True)
    )
