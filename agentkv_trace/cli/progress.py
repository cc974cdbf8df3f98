"""A progress bar on stderr for anything that takes longer than a second."""

from __future__ import annotations

import sys
import threading
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


def say_if_compiling(*, quiet: bool) -> None:
    """Say on a terminal that kernels are compiled first, where those that take long are not yet."""
    from agentkv_trace._jit import kept
    from agentkv_trace.cli.output import say

    if not quiet and sys.stderr.isatty() and not kept("replay", "loop"):
        say("Compiling kernels, once for this version: half a minute or so ...")


@contextmanager
def counted(what: str, *, quiet: bool, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Give a function to report things done to, of `total` if that is known.

    Shows nothing unless stderr is a terminal. It appears after a second also while nothing is done.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    bar = _counting_bar(total)
    task = bar.add_task(what, total=total)
    late = threading.Timer(_DELAY_S, bar.start)
    late.daemon = True
    late.start()
    try:
        yield lambda done: bar.advance(task, done)
    finally:
        late.cancel()
        late.join()
        bar.stop()


def _counting_bar(total: int | None) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    done = TextColumn("{task.completed}") if total is None else MofNCompleteColumn()
    times = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        done,
        times,
        console=Console(stderr=True),
        transient=True,
    )


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
