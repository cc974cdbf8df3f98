"""From options to all replays of one command."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from agentkv_trace.errors import InputError
from agentkv_trace.replay.onset import MAX_AGENTS, Loads, best_cap, thrash_onset
from agentkv_trace.replay.setting import KV_DTYPES, quantised, setting_for
from agentkv_trace.replay.sweep import Run, rows, sweep
from agentkv_trace.report.replay_model import ReplayCap, ReplayFacts, ReplayOnset, ReplayReport
from agentkv_trace.report.replay_words import assumptions, rejections
from agentkv_trace.tiers.capacity import Deployment, DoesNotFitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.replay.timeline import Timeline
    from agentkv_trace.trace.store import Trace

    Place = tuple[Gpu, int, Setting]

MOST_SESSIONS = 100_000
"""More copies of sessions than anybody replays."""

_T = TypeVar("_T")
_SHOWN = (1, 4, 16)
"""Numbers of agents replayed for the curve of an onset, whatever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What `replay` is asked for. host_bytes: sizes over all ranks; agents: numbers to replay.

    kv_dtype may be of 4 or 2 bits, which `Deployment` does not know.
    """

    deployment: Deployment
    timeline: Timeline
    kv_dtype: str = "bf16"
    agents: tuple[int, ...] = (1,)
    host_bytes: tuple[int, ...] = (0,)
    backend: str = "vllm"
    connector: str | None = None
    host_chunk_tokens: int | None = None
    gpus_per_link: int = 1
    onset: bool = False
    cap: bool = False
    series: bool = False

    def check(self) -> None:
        """Raise InputError for values that cannot be meant, or not together."""
        if self.kv_dtype not in KV_DTYPES:
            raise InputError(f"--kv-dtype {self.kv_dtype}: use one of {', '.join(KV_DTYPES)}")
        if self.gpus_per_link < 1:
            raise InputError(f"--gpus-per-link {self.gpus_per_link}: must be at least 1")
        if self.host_chunk_tokens is not None and self.host_chunk_tokens < 1:
            raise InputError(f"--host-chunk-tokens {self.host_chunk_tokens}: must be at least 1")
        timeline = self.timeline
        for option, number in (
            ("--agents", max(self.agents)),
            ("--sessions", timeline.sessions or 0),
        ):
            if number > MOST_SESSIONS:
                raise InputError(f"{option} {number}: must be at most {MOST_SESSIONS}")
        if timeline.rate is not None and timeline.kind != "open-loop":
            raise InputError("--rate is for --timeline open-loop")
        if timeline.kind == "recorded" and timeline.sessions is not None:
            raise InputError(
                "--sessions: --timeline recorded runs the sessions of the log; drop it"
            )
        if timeline.kind == "recorded" and timeline.order != "trace":
            raise InputError(f"--order {timeline.order}: --timeline recorded keeps the log's order")
        self.deployment.check()
        timeline.check()


def build_replay(
    trace: Trace,
    model: Model,
    gpus: Sequence[Gpu],
    options: ReplayOptions,
    rules: dict[str, Any],
    *,
    advance: Callable[[int], object] = lambda done: None,
) -> ReplayReport:
    """Replay a trace on every GPU, host size and number of agents.

    rules: fields of `Setting` (routing, max_num_seqs, write_filter, ...). Closed-loop, all numbers
    of agents run the same sessions. `advance` hears of each replay. A GPU that the model does not
    fit is left out with a note, or raises InputError where it is the only one.
    """
    options.check()
    gpus = tuple({gpu.id: gpu for gpu in gpus}.values())
    facts = _facts(trace)
    options = _comparable(options, facts.families)
    places, notes = _places(trace, model, gpus, options, rules)
    runs = [_run(place, agents, options) for place in places for agents in options.agents]
    results = sweep(trace, runs, advance=advance)
    table = rows(runs, results)
    for row, result in zip(table, results, strict=True):
        row["sessions"] = int(result.session.max(initial=-1)) + 1
    notes += list(dict.fromkeys(note for result in results for note in result.notes))
    notes += rejections(gpus, table)
    series: tuple[dict[str, list[float]], ...] = ()
    if options.series:
        series = tuple(
            {name: column.tolist() for name, column in result.over_time().items()}
            for result in results
        )
    onsets: tuple[ReplayOnset, ...] = ()
    if options.onset:
        loads = Loads(trace, options.timeline, max_agents=max(MAX_AGENTS, *options.agents))
        for _, _, setting in places:
            loads.prepare(setting)
        onsets = _each(places, lambda place: _onset(loads, place), advance)
        notes += [f"onset: {note}" for note in loads.notes if note not in notes]
    caps: tuple[ReplayCap, ...] = ()
    if options.cap:
        caps = _each(places, lambda place: _cap(trace, place, options), advance)
    return ReplayReport(
        trace=facts,
        model=model.name,
        gpus={gpu.id: gpu.name for gpu, _, _ in places},
        options=_told(options, rules, runs[0].setting),
        timeline={k: v for k, v in asdict(options.timeline).items() if k != "agents"},
        runs=tuple(table),
        series=series,
        onsets=onsets,
        caps=caps,
        notes=tuple(notes),
        assumptions=assumptions(options.timeline),
    )


def _comparable(options: ReplayOptions, families: int) -> ReplayOptions:
    """Return the options with one number of sessions for all numbers of agents."""
    timeline = options.timeline
    if timeline.kind != "closed-loop" or timeline.sessions is not None:
        return options
    most = max(families, *options.agents)
    return replace(options, timeline=replace(timeline, sessions=most))


def _places(
    trace: Trace,
    model: Model,
    gpus: Sequence[Gpu],
    options: ReplayOptions,
    rules: dict[str, Any],
) -> tuple[list[Place], list[str]]:
    """Return every GPU with every host size, and which GPUs are left out."""
    deployment = quantised(model, options.deployment, options.kv_dtype)
    places: list[Place] = []
    notes = []
    for gpu in gpus:
        sizes = options.host_bytes
        if not gpu.host_link.peak_gbps and len(gpus) > 1 and any(sizes):
            sizes = tuple(size for size in sizes if not size)
            notes.append(f"{gpu.name} has unified memory: no host tier is replayed on it")
        try:
            places += [
                (
                    gpu,
                    size,
                    setting_for(
                        model,
                        gpu,
                        deployment,
                        backend=options.backend,
                        connector=options.connector,
                        host_bytes=size,
                        host_chunk_tokens=options.host_chunk_tokens,
                        chunk_tokens=trace.meta.chunk_tokens,
                        gpus_per_link=options.gpus_per_link,
                        **rules,
                    ),
                )
                for size in sizes
            ]
        except DoesNotFitError as error:
            if len(gpus) == 1:
                raise
            notes.append(f"{gpu.name} left out: {error}")
    if not places:
        raise InputError(f"{model.name} fits none of these GPUs; raise --tp")
    return places, notes


def _run(place: Place, agents: int, options: ReplayOptions) -> Run:
    gpu, size, setting = place
    closed = options.timeline.kind == "closed-loop"
    labels = {
        "gpu": gpu.id,
        "agents": agents if closed else None,
        "host_bytes": size,
        "backend": setting.backend.id,
        "replicas": setting.replicas,
        "pool_tokens": setting.pool_tokens,
        "host_tokens": setting.host_chunks * setting.host_chunk_tokens,
    }
    timeline = replace(options.timeline, agents=agents) if closed else options.timeline
    return Run(labels, timeline, setting)


def _each(
    places: Sequence[Place], found: Callable[[Place], _T], advance: Callable[[int], object]
) -> tuple[_T, ...]:
    """Return what is found at each place, as many at a time as there are cores."""

    def one(place: Place) -> _T:
        result = found(place)
        advance(1)
        return result

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return tuple(pool.map(one, places))


def _onset(loads: Loads, place: Place) -> ReplayOnset:
    gpu, size, setting = place
    found = thrash_onset(loads, setting, also=_SHOWN)
    return ReplayOnset(
        gpu=gpu.id,
        host_bytes=size,
        agents=found.agents,
        max_agents=found.max_agents,
        factor=found.factor,
        calls=found.calls,
        rejected_calls=found.rejected,
        computed_tokens=found.computed_tokens,
        compulsory_tokens=found.compulsory_tokens,
        points=found.points,
        words=found.in_words(),
    )


def _cap(trace: Trace, place: Place, options: ReplayOptions) -> ReplayCap:
    gpu, size, setting = place
    timeline = options.timeline
    if timeline.kind == "closed-loop":
        timeline = replace(timeline, agents=max(options.agents))
    found = best_cap(trace, setting, timeline)
    return ReplayCap(
        gpu=gpu.id,
        host_bytes=size,
        agents=found.agents,
        makespan_s=found.makespan_s,
        without_s=found.without_s,
        makespans={str(cap): seconds for cap, seconds in found.makespans.items()},
    )


def _told(options: ReplayOptions, rules: dict[str, Any], setting: Setting) -> dict[str, Any]:
    return {
        **{k: v for k, v in asdict(options.deployment).items() if k != "kv_dtype"},
        "kv_dtype": options.kv_dtype,
        "backend": setting.backend.id,
        "backend_name": setting.backend.name,
        "connector": options.connector or setting.backend.connector,
        "host_chunk_tokens": setting.host_chunk_tokens,
        "gpus_per_link": options.gpus_per_link,
        **rules,
    }


def _facts(trace: Trace) -> ReplayFacts:
    from agentkv_trace.replay.sessions import sessions_of

    if not len(trace):
        raise InputError("the trace has no calls to replay")
    return ReplayFacts(
        calls=len(trace),
        sessions=len(trace.codes("session")[1]),
        families=sessions_of(trace).families,
        prompt_tokens=int(trace.array("prompt_tokens").sum(dtype="int64")),
        chunk_tokens=trace.meta.chunk_tokens,
    )
