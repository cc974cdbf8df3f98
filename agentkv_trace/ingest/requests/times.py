"""When a request began and ended, from whatever stamps its record has."""

from __future__ import annotations

from typing import NamedTuple

from agentkv_trace.ingest.codex.records import stamp

_SECONDS_BELOW, _MILLIS_BELOW, _MICROS_BELOW = 1e11, 1e14, 1e17
"""Which unit a number of the present age is in: seconds, milli-, micro- or nanoseconds."""


class Span(NamedTuple):
    """Start and end in UTC microseconds, and how far to trust them."""

    start_us: int
    end_us: int
    source: str


def micros(value: object) -> int | None:
    """Return a stamp (a number in any unit, ISO 8601, or digits) as UTC microseconds, or None."""
    if isinstance(value, str):
        found = stamp(value)
        if found is not None:
            return found
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1e8 < value < 1e20:
        return None
    if value < _SECONDS_BELOW:
        return round(value * 1e6)
    if value < _MILLIS_BELOW:
        return round(value * 1e3)
    return round(value) if value < _MICROS_BELOW else round(value / 1e3)


def span_of(
    start: object, end: object, at: object = None, seconds: object = None, order: int = 0
) -> Span:
    """Return when a call ran.

    `at` is a stamp that is the end where `seconds` (a duration) is known, else the start.
    Without any stamp calls keep their `order`.
    """
    began, ended, single = micros(start), micros(end), micros(at)
    lasted = round(seconds * 1e6) if isinstance(seconds, int | float) and seconds >= 0 else None
    if lasted is not None:
        ended = single if ended is None and began is None else ended
        if began is None and ended is not None:
            began = ended - lasted
        elif ended is None and began is not None:
            ended = began + lasted
    if began is None and ended is None:
        began = single
    if began is not None and ended is not None:
        return Span(began, max(began, ended), "logged")
    either = began if began is not None else ended
    if either is not None:
        return Span(either, either, "estimated")
    return Span(order, order, "order_only")
