"""From a trace to the result of `mrc`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv_trace.engine.mrc import (
    curve_of_runs,
    curves_of_groups,
    miss_ratio_curve,
    sampled_curve,
    trace_next_call_reuse,
    trace_runs,
)
from agentkv_trace.errors import InputError
from agentkv_trace.report.mrc import MrcResult
from agentkv_trace.report.ttl_build import (
    HOSTED_US,
    build_ttl,
    parse_lifetimes,
    tells_of_hosted_cache,
)

if TYPE_CHECKING:
    from agentkv_trace.engine.chunk_stack import Order
    from agentkv_trace.engine.curve import MissRatioCurve
    from agentkv_trace.engine.mrc import Engine
    from agentkv_trace.engine.path_stack import Timing
    from agentkv_trace.report.mrc import Curve
    from agentkv_trace.report.ttl import TtlHits
    from agentkv_trace.trace.store import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class MrcOptions:
    """Which curve is wanted; the fields carry the names of the options."""

    engine: str = "path"
    order: Order = "tail-first"
    timing: Timing = "sequential"
    backend: str | None = None
    rate: float | None = None
    samples: int | None = None
    seed: int = 0
    by: str | None = None
    ttl: str | None = None

    def check(self) -> None:
        """Raise InputError for options that do not go together."""
        sampled = self.engine == "shards"
        if (self.rate is not None or self.samples is not None) != sampled:
            raise InputError("--rate and --samples go with --engine shards, and it needs one")
        if self.rate is not None and self.samples is not None:
            raise InputError("--rate and --samples: give one of them")
        plain = (self.engine, self.order, self.timing) == ("path", "tail-first", "sequential")
        if self.backend is not None and not plain:
            raise InputError("--backend: has an order and timing of its own")
        if self.by is not None and not self.by_path:
            raise InputError("--by: only --engine path splits its curve")
        if self.ttl is not None and not self.by_path:
            raise InputError("--ttl: goes with --engine path only")

    @property
    def by_path(self) -> bool:
        """Whether the curve is that of the path engine's runs."""
        return (self.engine, self.order, self.backend) == ("path", "tail-first", None)


def build_mrc(
    trace: Trace,
    options: MrcOptions,
    *,
    capacities: tuple[int, ...] | None = None,
    limit: int = 200,
    model: str | None = None,
    bytes_per_token: int | None = None,
    hosted: bool = False,
) -> MrcResult:
    """Return the curve that the options ask for, at `capacities` (chunks), or at `limit` points.

    `hosted` adds usual times to live where none is asked for and the trace tells of a provider's
    cache. Raises InputError for options that do not go together.
    """
    options.check()
    lifetimes = parse_lifetimes(options.ttl) if options.ttl is not None else ()
    groups: dict[str, MissRatioCurve] = {}
    ttl: TtlHits | None = None
    ttl_groups: dict[str, TtlHits] = {}
    curve: Curve
    if options.engine == "shards":
        curve = sampled_curve(trace, rate=options.rate, samples=options.samples, seed=options.seed)
    elif options.backend is not None:
        from agentkv_trace.tiers.hit_curve import backend_curve

        curve = backend_curve(trace, options.backend, capacities)
    elif options.by_path:
        runs = trace_runs(trace, options.timing)
        curve = curve_of_runs(trace, runs)
        if options.by is not None:
            groups = curves_of_groups(trace, runs, options.by)
        if lifetimes:
            ttl, ttl_groups = build_ttl(trace, runs, options.timing, lifetimes, options.by)
        elif hosted and tells_of_hosted_cache(trace):
            ttl, _ = build_ttl(trace, runs, options.timing, HOSTED_US)
    else:
        engine: Engine = "chunk" if options.engine == "chunk" else "path"
        curve = miss_ratio_curve(trace, engine=engine, order=options.order, timing=options.timing)
    shown = capacities or tuple(int(point) for point in curve.points(limit))
    reuse = trace_next_call_reuse(trace)
    return MrcResult(
        curve, shown, reuse, model, bytes_per_token, options.by, groups, ttl, ttl_groups
    )
