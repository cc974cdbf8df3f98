"""From options to all replays of one command."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from agentkv_trace.errors import InputError
from agentkv_trace.replay.onset import MAX_AGENTS, Loads, best_cap, thrash_onset
from agentkv_trace.replay.setting import MEMORY_SHARE, STEP_S, quantised, setting_for
from agentkv_trace.replay.sweep import Run, rows, sweep
from agentkv_trace.report.replay_model import ReplayCap, ReplayFacts, ReplayOnset, ReplayReport
from agentkv_trace.tiers.capacity import Deployment, DoesNotFitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.replay.timeline import Timeline
    from agentkv_trace.trace.store import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What `replay` is asked for. host_bytes: sizes over all ranks; agents: numbers to replay.

    rules: fields of `Setting` (routing, max_num_seqs, write_filter, ...). kv_dtype may be of 4 or 2
    bits, which `Deployment` does not know.
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
    max_agents: int = MAX_AGENTS
    series: bool = False


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

    `advance` hears of each replay. A GPU that the model does not fit is left out with a note, or
    raises InputError where it is the only one.
    """
    runs: list[Run] = []
    notes: list[str] = []
    places: list[tuple[Gpu, int, Setting]] = []
    for gpu in gpus:
        try:
            found = [(gpu, size, _setting(trace, model, gpu, size, options, rules))
                     for size in options.host_bytes]  # fmt: skip
        except DoesNotFitError as error:
            if len(gpus) == 1:
                raise
            notes.append(f"{gpu.name} left out: {error}")
            continue
        places += found
    for gpu, size, setting in places:
        for agents in options.agents:
            timeline = options.timeline
            if timeline.kind == "closed-loop":
                timeline = replace(timeline, agents=agents)
            labels = {
                "gpu": gpu.id,
                "agents": agents if timeline.kind == "closed-loop" else None,
                "host_bytes": size,
                "backend": setting.backend.id,
                "replicas": setting.replicas,
                "pool_tokens": setting.pool_tokens,
                "host_tokens": setting.host_chunks * setting.host_chunk_tokens,
            }
            runs.append(Run(labels, timeline, setting))
    if not runs:
        raise InputError(f"{model.name} fits none of these GPUs; raise --tp")
    results = sweep(trace, runs, advance=advance)
    for result in results:
        notes += [note for note in result.notes if note not in notes]
    series: tuple[dict[str, list[float]], ...] = ()
    if options.series:
        series = tuple(
            {name: column.tolist() for name, column in result.over_time().items()}
            for result in results
        )
    sessions = results[0].session
    loads = Loads(trace, options.timeline, max_agents=options.max_agents)
    return ReplayReport(
        trace=ReplayFacts(
            calls=len(trace),
            sessions=len(trace.codes("session")[1]),
            families=_families(trace),
            prompt_tokens=int(trace.array("prompt_tokens").sum(dtype="int64")),
            chunk_tokens=trace.meta.chunk_tokens,
        ),
        model=model.name,
        options=_told(options, rules, runs[0].setting),
        timeline=_timeline(options.timeline, int(sessions.max()) + 1 if len(sessions) else 0),
        runs=tuple(rows(runs, results)),
        series=series,
        onsets=tuple(_onset(loads, place) for place in places) if options.onset else (),
        caps=tuple(_cap(trace, place, options) for place in places) if options.cap else (),
        notes=tuple(notes),
        assumptions=_assumptions(options),
    )


def _setting(
    trace: Trace,
    model: Model,
    gpu: Gpu,
    host_bytes: int,
    options: ReplayOptions,
    rules: dict[str, Any],
) -> Setting:
    return setting_for(
        model,
        gpu,
        quantised(model, options.deployment, options.kv_dtype),
        backend=options.backend,
        connector=options.connector,
        host_bytes=host_bytes,
        host_chunk_tokens=options.host_chunk_tokens,
        chunk_tokens=trace.meta.chunk_tokens,
        gpus_per_link=options.gpus_per_link,
        **rules,
    )


def _onset(loads: Loads, place: tuple[Gpu, int, Setting]) -> ReplayOnset:
    gpu, size, setting = place
    found = thrash_onset(loads, setting)
    return ReplayOnset(
        gpu=gpu.id,
        host_bytes=size,
        agents=found.agents,
        max_agents=found.max_agents,
        computed_tokens=found.computed_tokens,
        compulsory_tokens=found.compulsory_tokens,
        words=found.in_words(),
    )


def _cap(trace: Trace, place: tuple[Gpu, int, Setting], options: ReplayOptions) -> ReplayCap:
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


def _timeline(timeline: Timeline, sessions: int) -> dict[str, Any]:
    return {k: v for k, v in asdict(timeline).items() if k != "agents"} | {
        "replayed_sessions": sessions
    }


def _families(trace: Trace) -> int:
    from agentkv_trace.replay.sessions import sessions_of

    return sessions_of(trace).families


def _assumptions(options: ReplayOptions) -> tuple[str, ...]:
    lines = [
        "Prefill runs at the profile's middle share of peak, attention growing with the position; "
        f"decoding reads weights and KV at {MEMORY_SHARE:.0%} of the memory bandwidth, and each "
        f"step costs {1000 * STEP_S:g} ms beside.",
        "A prompt's chunks can be hit as soon as the engine takes it up; outputs take their room "
        "when their call ends, which is when another may be preempted.",
    ]
    if options.timeline.kind == "closed-loop":
        lines.append("The gap from a call's end to the session's next call is kept as tool time.")
    return tuple(lines)
