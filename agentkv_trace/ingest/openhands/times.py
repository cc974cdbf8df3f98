"""Local times without a zone to UTC, and when each call began and ended."""

from __future__ import annotations

from statistics import median_low
from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import stamp
from agentkv_trace.ingest.requests.times import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

QUARTER_US = 900 * 1_000_000
"""Zones differ from UTC by whole quarters of an hour."""
MAX_ZONE_US = 14 * 3600 * 1_000_000
_NEAR_US = 120 * 1_000_000
"""How far a local stamp may be from the time it stands for, to tell the zone."""
_COST_US = 2_000_000
"""How long before the event of a response its cost is noted, at most."""


def zone_us(pairs: Sequence[tuple[int, int]]) -> int | None:
    """Return the zone's distance from UTC, from pairs of local and true time; None if none fits."""
    zones = []
    for local, true in pairs:
        zone = round((local - true) / QUARTER_US) * QUARTER_US
        if abs(zone) <= MAX_ZONE_US and abs(local - true - zone) <= _NEAR_US:
            zones.append(zone)
    return median_low(zones) if zones else None


def zone_of_costs(locals_us: Sequence[int], costs_us: Sequence[int]) -> int | None:
    """Return the zone for which every cost is noted just before the event of its response."""
    if not locals_us or not costs_us:
        return None
    found: list[tuple[int, int]] = []
    for quarter in range(-MAX_ZONE_US // QUARTER_US, MAX_ZONE_US // QUARTER_US + 1):
        zone = quarter * QUARTER_US
        fits = sum(
            any(0 <= local - zone - cost <= _COST_US for local in locals_us) for cost in costs_us
        )
        found.append((fits, zone))
    best = max(fits for fits, _ in found)
    zones = [zone for fits, zone in found if fits == best]
    return min(zones, key=abs) if best * 2 > len(costs_us) else None


def local_us(value: object) -> int | None:
    """Return a stamp without a zone as microseconds of its local clock."""
    return stamp(value)


def has_zone(value: object) -> bool:
    """Tell whether a stamp says its zone."""
    return isinstance(value, str) and (
        value.endswith("Z") or "+" in value[10:] or "-" in value[10:]
    )


def span(end_us: int | None, latency_us: int | None, before_us: int | None, order: int) -> Span:
    """Return when a call ran: its end and latency, else from the event before it."""
    if end_us is None:
        return Span(order, order, "order_only")
    if latency_us is not None:
        return Span(end_us - latency_us, end_us, "logged")
    if before_us is not None and before_us <= end_us:
        return Span(before_us, end_us, "logged")
    return Span(end_us, end_us, "estimated")
