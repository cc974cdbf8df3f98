"""Measures all figures of a trace that a configuration asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.advise.break_causes import mark_patterns
from agentkv_trace.advise.break_words import HEAD_CLASSES
from agentkv_trace.advise.breaks import find_breaks
from agentkv_trace.advise.sizing import working_set
from agentkv_trace.check.model import Measured
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.size import Size
from agentkv_trace.trace.call import FIDELITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.advise.breaks import Break
    from agentkv_trace.advise.sizing import Curve
    from agentkv_trace.check.config import Config
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.report.model import GpuFinding, ReportOptions
    from agentkv_trace.trace.store import Trace


@dataclass(frozen=True, slots=True)
class Place:
    """A cache that hit ratios are of: its name in figures, in words, and its chunks (None: any)."""

    name: str
    words: str
    chunks: int | None


@dataclass(slots=True)
class Figures:
    """What was measured, and the breaks behind it."""

    measured: list[Measured]
    breaks: list[Break]
    sampling: dict[str, Any] | None


def measure(trace: Trace, config: Config) -> Figures:
    """Return the figures of a trace, of all calls and of each scope that has gates.

    Raises InputError where the configuration does not fit the trace, or itself.
    """
    breaks = find_breaks(trace)
    mark_patterns(trace, breaks)
    # What a server forgot is no fault of the prompts.
    lost = [one for one in breaks if one.kind != "resumed_expired"]
    curve, error = _curve(trace, config)
    machines = _machines(config)
    places = _places(config, curve.chunk_tokens, machines)
    measured = list(_of_curve("all", curve, error, places))
    measured += _of_calls(trace, "all", None, lost)
    for scope in sorted({gate.scope for gate in config.gates} - {"all"}):
        mask = _mask(trace, scope)
        if mask.any():
            measured += _of_curve(scope, _group_curve(trace, scope), 0.0, places)
            measured += _of_calls(trace, scope, mask, lost)
    measured += _of_gpus(trace, config, machines)
    return Figures(measured, breaks, curve.sampling)


def _curve(trace: Trace, config: Config) -> tuple[Any, float]:
    """Return the curve, and how far a ratio of it may be off."""
    from agentkv_trace.engine.mrc import miss_ratio_curve, sampled_curve

    samples = config.get("samples")
    if samples is None:
        return miss_ratio_curve(trace), 0.0
    curve = sampled_curve(trace, samples=samples, seed=config.get("seed", 0))
    sampling = curve.sampling or {}
    return curve, float(sampling.get("error_bound") or sampling.get("expected_error") or 0.0)


def _of_curve(scope: str, curve: Any, error: float, places: list[Place]) -> Iterator[Measured]:
    for place in places:
        ratio = curve.ceiling if place.chunks is None else curve.prefix_hit_ratio(place.chunks)
        yield Measured(
            name=f"hit_ratio{place.name}",
            figure="hit_ratio",
            scope=scope,
            where=place.words,
            value=float(ratio),
            error=error,
        )
    tokens = working_set(curve) * curve.chunk_tokens
    yield Measured(
        name="working_set_tokens",
        figure="working_set_tokens",
        scope=scope,
        where="",
        value=tokens,
        error=_working_set_error(curve, error, tokens),
    )


def _working_set_error(curve: Curve, error: float, tokens: int) -> float:
    """Return how far the working set moves where all hit ratios are off by as much."""
    if not error:
        return 0.0
    fewer = curve.capacity_for(prefix_hit_ratio=max(curve.ceiling - error, 0.0))
    return float(tokens - (fewer or 0) * curve.chunk_tokens)


def _of_calls(trace: Trace, scope: str, mask: Any, breaks: list[Break]) -> Iterator[Measured]:
    """Yield what is measured call by call; `mask` is bool[calls], None for all."""
    import numpy as np

    prompts = trace.array("prompt_tokens").astype(np.int64)
    total = int(prompts.sum() if mask is None else prompts[mask].sum())
    mine = [one for one in breaks if mask is None or mask[one.call]]
    lost = sum(one.lost_tokens for one in mine)
    heads = sum(one.lost_tokens for one in mine if one.kind in HEAD_CLASSES)
    values: list[tuple[str, Any]] = [
        ("lost_tokens", lost),
        ("lost_share", lost / total if total else 0.0),
    ]
    if trace.layout() is not None:
        values += [
            ("head_change_tokens", heads),
            ("head_change_share", heads / total if total else 0.0),
        ]
    reuse = _next_call_reuse(trace, mask)
    if reuse is not None:
        values.append(("next_call_reuse", reuse))
    values.append(("fidelity", _weakest(trace, mask)))
    for name, value in values:
        yield Measured(name=name, figure=name, scope=scope, where="", value=value)


def _next_call_reuse(trace: Trace, mask: Any) -> float | None:
    import numpy as np

    from agentkv_trace.engine.path_stack import next_call_reuse

    sessions = trace.codes("session")[0].astype(np.int64)
    if mask is not None:
        # Calls out of scope get sessions of their own, which have no next call.
        sessions = np.where(mask, sessions, sessions.size + np.arange(sessions.size))
    columns = ("base", "base_chunks", "prompt_chunks", "path_chunks")
    return next_call_reuse(sessions, *map(trace.array, columns))


def _weakest(trace: Trace, mask: Any) -> str:
    codes, names = trace.codes("fidelity")
    found = set((codes if mask is None else codes[mask]).tolist())
    return max((names[code] for code in found), key=FIDELITIES.index, default=FIDELITIES[0])


# Scopes


def _mask(trace: Trace, scope: str) -> Any:
    column, _, name = scope.partition(" ")
    codes, names = trace.codes(column)
    return codes == (names.index(name) if name in names else -2)


def _group_curve(trace: Trace, scope: str) -> Any:
    """Return the curve of a scope's calls inside the cache that all share; always exact."""
    from agentkv_trace.engine.mrc import curves_of_groups, trace_runs

    column, _, name = scope.partition(" ")
    return curves_of_groups(trace, trace_runs(trace), column)[name]


# GPUs


@dataclass(frozen=True, slots=True)
class Machines:
    """The deployment that figures on GPUs are of."""

    model: Model | None
    gpus: tuple[Gpu, ...]
    options: ReportOptions


def _machines(config: Config) -> Machines:
    from agentkv_trace.profiles.load import find_gpu, find_model
    from agentkv_trace.report.model import ReportOptions

    profile = config.get("profile")
    gpus = tuple(find_gpu(name) for name in config.get("gpu", ()))
    if gpus and profile is None:
        raise InputError("check: `gpu` needs a model: set `profile`, or give --model")
    fields = ("tp", "kv-dtype", "weight-dtype", "gpu-memory-utilization", "gpu-kv-tokens",
              "kv-bytes-per-token", "recover", "backend", "agents")  # fmt: skip
    given = {
        key.replace("-", "_"): config.get(key) for key in fields if config.get(key) is not None
    }
    host = config.get("host-size")
    options = ReportOptions(**given, host_bytes=(_bytes(host),) if host else ())
    options.check()
    return Machines(find_model(profile) if profile else None, gpus, options)


def _bytes(text: str) -> int:
    size = Size.parse(text)
    if size.unit != "bytes":
        raise InputError(f"check: host-size {text!r} must be in bytes, such as 64GiB")
    return int(size.amount)


def bytes_per_token(config: Config) -> int | None:
    """Return what a token takes over all ranks, None without a model. Raises InputError."""
    from agentkv_trace.profiles.load import find_model
    from agentkv_trace.tiers.capacity import Deployment, kv_bytes_per_token

    profile: str | None = config.get("profile")
    given: int | None = config.get("kv-bytes-per-token")
    tp: int = config.get("tp", 1)
    if profile is None:
        return given * tp if given else None
    deployment = Deployment(
        tp=tp, kv_dtype=config.get("kv-dtype", "bf16"), kv_bytes_per_token=given
    )
    return kv_bytes_per_token(find_model(profile), deployment) * tp


def _places(config: Config, chunk_tokens: int, machines: Machines) -> list[Place]:
    capacity = config.get("capacity")
    if capacity is not None:
        chunks = Size.parse(capacity).chunks(chunk_tokens, bytes_per_token(config))
        return [Place("", f"in {capacity}", chunks)]
    if not machines.gpus or machines.model is None:
        return [Place("", "in a cache without limit", None)]
    from agentkv_trace.tiers.capacity import kv_pool

    return [
        Place(
            f" on {gpu.id}",
            f"in the KV pool of {gpu.name}",
            kv_pool(machines.model, gpu, machines.options).chunks(chunk_tokens),
        )
        for gpu in machines.gpus
    ]


def _of_gpus(trace: Trace, config: Config, machines: Machines) -> Iterator[Measured]:
    """Yield what the report says about each GPU: memory needed, and thrashing."""
    wanted = {"host_bytes", "thrash"} & {gate.rule.figure for gate in config.gates}
    if not machines.gpus or machines.model is None or not wanted:
        return
    from agentkv_trace.report.build import build_report
    from agentkv_trace.report.workload import TraceWorkload

    report = build_report(
        TraceWorkload(trace, machines.options.agents),
        machines.model,
        list(machines.gpus),
        machines.options,
        onset="thrash" in wanted and machines.options.agents is not None,
    )
    for found in report.gpus:
        if found.verdict == "does_not_fit":
            raise InputError(f"check: {found.summary}")
        where = f"on {found.name}"
        if "host_bytes" in wanted:
            yield Measured(
                name=f"host_bytes on {found.gpu}",
                figure="host_bytes",
                scope="all",
                where=where,
                value=found.need_bytes or 0,
            )
        if "thrash" in wanted and found.thrash is not None:
            agents = report.workload.agents
            yield Measured(
                name=f"thrash on {found.gpu}",
                figure="thrash",
                scope="all",
                where=f"{where} at {agents} agents",
                value=found.thrash.predicted or _is_past_onset(found, machines.options.agents),
            )


def _is_past_onset(found: GpuFinding, agents: int | None) -> bool:
    """Tell whether so many agents double the prefill with the tier that is judged, by replay."""
    judged = found.thrash.judged_bytes if found.thrash else 0
    return any(
        onset.host_bytes == judged and onset.agents is not None and agents >= onset.agents
        for onset in found.onsets
        if agents is not None
    )
