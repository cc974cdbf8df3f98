"""A load on a deployment: the public face of the simulator.

What it follows exactly, at the level of whole calls: LRU pools with the chunks of running calls
held, room for prompts, partial chunks and outputs, queueing when the pool is short, preemption,
the rules of each backend's host tier, the restore link, and the time of prefill with its work
growing with the position. What is simplified: a prompt's chunks can be hit as soon as the engine
takes it up; copies of a chunk that two calls compute at once are one; outputs take their room when
the call ends, and only then may another call be preempted; the calls that decode read the mean of
their growing contexts.
"""

# ruff: noqa: TID253
from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace.errors import InputError
from agentkv_trace.replay.host import NONE, POLICIES
from agentkv_trace.replay.loop import _run
from agentkv_trace.replay.result import Result
from agentkv_trace.replay.state import FINISHED, PREEMPTIONS, start
from agentkv_trace.replay.state import SAMPLES as SAMPLES_TAKEN
from agentkv_trace.replay.timeline import Timeline, plan
from agentkv_trace.replay.tracks import tracks_of
from agentkv_trace.replay.work import (
    CALL,
    FAMILY,
    LONG_AGO,
    ROUTINGS,
    SERIES,
    TRACK,
    WRITE_FILTERS,
    Engine,
    records,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.replay.timeline import Plan
    from agentkv_trace.replay.tracks import Tracks
    from agentkv_trace.trace.store import Trace

SAMPLES = 512
"""Most samples over time that a result keeps."""

_UNLIMITED = 1 << 48


class Load:
    """The sessions of a trace on a timeline, to be replayed on any number of settings."""

    def __init__(self, trace: Trace, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or Timeline()
        self.chunk_tokens = trace.meta.chunk_tokens
        self.plan: Plan = plan(trace, self.timeline)
        self._prompt = trace.array("prompt_tokens")[self.plan.call].astype(np.int64)
        self._output = trace.array("output_tokens")[self.plan.call].astype(np.int64)
        self._tracks: dict[int, Tracks] = {}

    def __len__(self) -> int:
        return int(self.plan.call.size)

    def run(self, setting: Setting) -> Result:
        """Replay the load on a setting; the same result every time.

        O(calls log calls) time and O(calls) memory. Raises InputError for a setting that cannot be
        meant.
        """
        setting.check()
        found, engine = self.plan, self._engine(setting)
        count, families = len(self), len(self.plan.release)
        waits = np.bincount(found.edge_to, minlength=count)
        roots = np.flatnonzero(waits == 0)
        order = np.argsort(found.edge_from, kind="stable")
        calls = records(
            CALL,
            count,
            session=found.session,
            family=found.family,
            prompt=self._prompt,
            output=self._output,
            earliest=found.earliest,
            gap=found.gap,
            later=_starts(found.edge_from, count),
            **self._columns(engine),
        )
        groups = records(
            FAMILY,
            families,
            release=found.release,
            root=_starts(found.family[roots], families),
            left=np.bincount(found.family, minlength=families),
            met_at=LONG_AGO,
        )
        longest = int(self._prompt.max(initial=0)) // self.chunk_tokens
        positions = np.arange(longest + 2, dtype=np.float64) * self.chunk_tokens
        batches = np.arange(min(setting.max_num_seqs, count) + 2, dtype=np.float64)
        weights = setting.speed.weights(batches)
        # A step that computes prompts reads all weights.
        weights[-1] = setting.speed.dense_s + setting.speed.experts_s
        sim = start(
            engine,
            calls,
            groups,
            waits,
            (self._track_records(1), self._track_records(self._factor(engine))),
            (found.edge_to[order].astype(np.int64), roots.astype(np.int64)),
            setting.speed.prefill(positions),
            weights,
        )
        series = np.zeros((SAMPLES, len(SERIES)))
        counts = _run(sim, series, max(1, -(-count // SAMPLES)))
        assert sim.numbers[FINISHED] == count
        return Result(
            setting=setting,
            timeline=self.timeline,
            agents=min(found.agents, families),
            chunk_tokens=self.chunk_tokens,
            host_chunk_tokens=engine.host_chunk_tokens,
            pool_tokens=None if setting.pool_tokens is None else engine.pool * self.chunk_tokens,
            prompt=self._prompt,
            output=self._output,
            call=found.call,
            session=found.session,
            done=sim.done,
            counts=counts,
            series=series[: sim.numbers[SAMPLES_TAKEN]],
            preemptions=int(sim.numbers[PREEMPTIONS]),
            notes=(*found.notes, *_notes(setting)),
        )

    def with_agents(self, agents: int) -> Load:
        """Return the same load for another number of agents; both share what was computed.

        Who takes up what does not depend on how many they are.
        """
        load = copy(self)
        load.timeline = replace(load.timeline, agents=agents)
        load.plan = replace(load.plan, agents=agents)
        return load

    def prepare(self, setting: Setting) -> None:
        """Compute what runs of settings like this one share."""
        self.tracks(1)
        self.tracks(self._factor(self._engine(setting)))

    def _engine(self, setting: Setting) -> Engine:
        replay = setting.backend.replay
        pool = _UNLIMITED
        if setting.pool_tokens is not None:
            # vLLM keeps one block of its pool for itself.
            null = replay not in ("ideal", "hicache")
            pool = setting.pool_tokens // self.chunk_tokens - null
            if pool < 1:
                raise InputError(
                    f"a GPU pool of {setting.pool_tokens} tokens holds no chunk of "
                    f"{self.chunk_tokens}; give more"
                )
        unit = setting.host_chunk_tokens or self.chunk_tokens
        if unit % self.chunk_tokens:
            raise InputError(
                f"host chunks of {unit} tokens: must be a multiple of the trace's "
                f"{self.chunk_tokens}"
            )
        policy = POLICIES[replay] if setting.host_chunks else NONE
        if setting.backend.write_policy == "write_back" and policy != NONE:
            policy = POLICIES["lazy"]
        own = policy != NONE and replay not in ("ideal", "in_process", "server")
        if own and unit != self.chunk_tokens:
            raise InputError(
                f"the host tier of {setting.backend.id} has the engine's chunks of "
                f"{self.chunk_tokens} tokens, not {unit}"
            )
        speed = setting.speed
        return Engine(
            replicas=int(setting.replicas),
            routing=ROUTINGS[setting.routing],
            agents=int(self.plan.agents),
            slots=int(setting.max_num_seqs),
            step_tokens=int(setting.step_tokens),
            pool=int(pool),
            chunk_tokens=int(self.chunk_tokens),
            skip_last=int(setting.skip_last),
            tails=int(setting.tails),
            outputs=int(setting.outputs),
            policy=int(policy),
            host_capacity=int(setting.host_chunks),
            host_chunk_tokens=int(unit),
            tick_s=float(setting.watermark_tick_s),
            write_filter=WRITE_FILTERS[setting.write_filter],
            filter_chunks=int(setting.kappa),
            filter_tokens=int(setting.filter_tokens),
            restore_s=float(speed.restore_s),
            restore_token_s=float(speed.restore_token_s),
            in_step=int(speed.in_step),
            overlap=float(speed.overlap),
            write_token_s=float(speed.write_token_s),
            store_sync_s=float(speed.store_sync_s),
            step_s=float(speed.step_s),
            context_token_s=float(speed.context_token_s),
        )

    def _columns(self, engine: Engine) -> dict[str, NDArray[Any]]:
        """Return the columns of the calls that depend on sizes of chunks."""
        found, factor = self.plan, self._factor(engine)
        path = found.tree["path_chunks"][found.row]
        return {
            "prompt_chunks": found.tree["prompt_chunks"][found.row],
            "path_chunks": path,
            "track": self.tracks(1).track[found.row],
            "host_prompt": self._prompt // engine.host_chunk_tokens,
            "host_path": path // factor,
            "host_track": self.tracks(factor).track[found.row],
        }

    def _factor(self, engine: Engine) -> int:
        return engine.host_chunk_tokens // self.chunk_tokens

    def _track_records(self, factor: int) -> NDArray[Any]:
        tracks = self.tracks(factor)
        return records(TRACK, tracks.parent.size, parent=tracks.parent, attach=tracks.attach)

    def tracks(self, factor: int) -> Tracks:
        """Return the tracks of the load's tree with chunks `factor` times the trace's."""
        if factor not in self._tracks:
            tree = self.plan.tree
            shared = tree["base_chunks"] // np.int32(factor)
            base = np.where(shared > 0, tree["base"], np.int32(-1))
            path = tree["path_chunks"] // np.int32(factor)
            self._tracks[factor] = tracks_of(base, shared, path)
        return self._tracks[factor]


def _notes(setting: Setting) -> tuple[str, ...]:
    """Return what is taken more simply than the backend's own model takes it."""
    if setting.backend.replay != "hicache":
        return ()
    host = "as what leaves the GPU" if setting.backend.write_policy == "write_back" else "as LRU"
    return (
        f"{setting.backend.name}: the tree is taken as an LRU stack, without its nodes, and the "
        f"host tier {host}; GPU hits come out up to 9 points too high",
    )


def _starts(codes: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return where each code's entries begin when they are sorted by it: int64[count]."""
    sizes = np.bincount(codes, minlength=count)
    starts: NDArray[np.int64] = np.cumsum(sizes) - sizes
    return starts
