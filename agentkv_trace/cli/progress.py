"""A progress bar on stderr for anything that takes longer than a second."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

_DELAY_S = 1.0


@contextmanager
def progress(what: str, total_bytes: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Give a function to report bytes done to; shows nothing unless stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    bar = _Bar(what, total_bytes)
    try:
        yield bar.advance
    finally:
        bar.stop()


class _Bar:
    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._start = time.monotonic()
        self._done = 0
        self._bar: Progress | None = None

    def advance(self, done: int) -> None:
        self._done += done
        if self._bar is None and time.monotonic() - self._start > _DELAY_S:
            self._bar = _rich_bar(self._what, self._total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _rich_bar(what: str, total: int) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(what, total=total or None)
    bar.start()
    return bar
