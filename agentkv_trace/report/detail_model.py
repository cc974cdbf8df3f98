"""What the page shows beside the advice; the JSON output has exactly these fields.

All lists are bounded, whatever the trace. Times are seconds since the first call, with pauses
longer than `Timeline.longest_pause_s` cut to it; where the log has no times, or one for all, `by`
is `call` and times count calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

POINTS = 200
BUCKETS = 200
CALLS = 5
"""Calls that a bucket holds on average at least."""
ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The curve at one capacity; bytes are over all ranks of a replica."""

    capacity_tokens: int
    capacity_bytes: int
    miss_ratio: float
    prefix_hit_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceBin:
    """Share of all references with a stack distance above `above_tokens`, at most `to_tokens`."""

    above_tokens: int
    to_tokens: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOverTime:
    """One GPU, alone or with its judged tier, over the buckets of the timeline.

    A bucket thrashes where the working set is above both capacities and more than twice the
    compulsory prefill is computed. `hit_ratio` is None where no call starts. `written_tokens` go to
    the host tier.
    """

    gpu: str
    host_bytes: int
    pool_tokens: int
    host_tokens: int
    hit_ratio: tuple[float | None, ...]
    written_tokens: tuple[int, ...]
    thrashes: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The trace in buckets of equal length, one value each.

    `live_tokens`: most tokens of context held by sessions that go on (the last prompt of each);
    `agents`: most such sessions. `working_set_tokens`: the smallest cache with the asked share of
    the hits that the bucket's calls can have; None where they can have none. `longest_pause_s` is
    0 where no pause was cut.
    """

    by: Literal["time", "call"]
    longest_pause_s: float
    end_s: float
    live_tokens: tuple[int, ...]
    agents: tuple[int, ...]
    working_set_tokens: tuple[int | None, ...]
    prompt_tokens: tuple[int, ...]
    gpus: tuple[GpuOverTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """The calls of one session, model or source; `hit_ratio` is that of a cache without limit.

    `gpu_hit_ratio` is that of the first GPU alone that holds the model. `agent`, `model` and `kind`
    are those of a session's first call.
    """

    name: str
    agent: str | None
    model: str | None
    kind: str | None
    calls: int
    prompt_tokens: int
    output_tokens: int
    hit_ratio: float
    gpu_hit_ratio: float | None
    folds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The largest groups by prompt tokens; `others` sums the rest of `total`."""

    total: int
    rows: tuple[GroupRow, ...]
    others: GroupRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPrefix:
    """All calls that lost reuse for one cause; see `explain`."""

    cause: str
    fix: str | None
    calls: int
    sessions: int
    lost_tokens: int
    lost_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The curve, the trace over time, its parts, and where prefixes broke."""

    curve: tuple[CurvePoint, ...]
    distances: tuple[DistanceBin, ...]
    cold_share: float
    timeline: Timeline
    sessions: Groups
    models: Groups
    sources: Groups
    broken: tuple[BrokenPrefix, ...]
    methods: tuple[str, ...]
