"""Axes: from values to places, and the ticks people read."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING

from agentkv_trace.report.plot import human

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NICE = (1.0, 2.0, 5.0, 10.0)
_TIMES = (1.0, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200)
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis from `low` to `high`, in powers of two where `log`.

    `form` writes a tick, `under` a second line below it (x axes). `time`: steps of clocks.
    """

    label: str
    low: float
    high: float
    form: Callable[[float], str] = human
    log: bool = False
    under: Callable[[float], str] | None = None
    time: bool = False

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1; values beyond the ends lie on them."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return log2(value / self.low) / log2(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Return at most about `most` values to label, ascending."""
        if self.log:
            powers = range(ceil(log2(self.low) - 1e-9), floor(log2(self.high) + 1e-9) + 1)
            every = max(1, ceil(len(powers) / max(most, 1)))
            return [2.0**power for power in powers if power % every == 0] or [self.low]
        step = self._step((self.high - self.low) / max(most, 1))
        first = ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, floor(self.high / step + 1e-9) + 1)]

    def _step(self, least: float) -> float:
        if self.time and least <= _TIMES[-1]:
            return next(step for step in _TIMES if step >= least)
        if self.time:
            return _DAY * self._decimal(least / _DAY)
        return self._decimal(least)

    @staticmethod
    def _decimal(least: float) -> float:
        size = 10.0 ** floor(log10(least))
        return next(size * step for step in _NICE if size * step >= least * (1 - 1e-9))


def log_axis(
    label: str,
    values: Iterable[float],
    form: Callable[[float], str] = human,
    under: Callable[[float], str] | None = None,
) -> Axis:
    """Return an axis in powers of two around all positive values; 1 to 2 where there are none."""
    known = [value for value in values if value > 0] or [1.0]
    low = 2.0 ** floor(log2(min(known)))
    high = 2.0 ** ceil(log2(max(known)))
    return Axis(label, low, high if high > low else 2 * low, form, log=True, under=under)
