"""Where a replay stands: the records before the first event, the heap of events, the queues."""

# ruff: noqa: TID253
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace.replay.heap import _push
from agentkv_trace.replay.inner import inner
from agentkv_trace.replay.segments import MOST_TRACKS
from agentkv_trace.replay.work import (
    ARRIVAL,
    DONE,
    FIRST_LOOKUPS,
    LONG_AGO,
    PROGRESS,
    REPLICA,
    SESSION,
    TIER,
    Engine,
    Sim,
    records,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESTORED, RELEASED, READY = range(3)
KIND = 1 << 40
"""An event's key is its kind times this, plus its call or family; ties go by key."""
(
    EVENTS, LIVE, ACTIVE, ORDER, PREEMPTIONS, FINISHED, SAMPLES, ARRIVED, FORGOTTEN, TURN,
    SUM_PROMPT, SUM_GPU, SUM_RESTORED,
    TOUCHED,
) = range(14)  # fmt: skip
MET, LOOKUP_SUM, LOOKUPS = range(3)


def start(
    engine: Engine,
    calls: NDArray[Any],
    families: NDArray[Any],
    waits: NDArray[Any],
    tracks: tuple[NDArray[Any], NDArray[Any]],
    lists: tuple[NDArray[np.int64], NDArray[np.int64]],
    prefill: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> Sim:
    """Return the state before the first event.

    waits: int[calls], for how many others each call waits. lists: later_call and root_call.
    """
    count = len(calls)
    most = min(engine.slots, count) + 1
    events = 2 * count + len(families) + 8
    idle = records(REPLICA, engine.replicas, step=-1.0, next_tick=engine.tick_s)
    for name in ("wait_first", "wait_last", "run_first", "run_last", "job"):
        idle[name] = -1
    return Sim(
        engine=engine,
        calls=calls,
        progress=records(
            PROGRESS, count, waits=waits, behind=-1, mark=-1, left=calls["output"], saved=1
        ),
        done=records(DONE, count, arrived=-1, started=-1, first=-1, ended=-1),
        families=families,
        sessions=records(SESSION, int(calls["session"].max(initial=-1)) + 1, home=-1),
        fleet=idle,
        tiers=records(TIER, 2 * engine.replicas, pending=-1, evicted_at=LONG_AGO),
        tracks=tracks[0],
        host_tracks=tracks[1],
        later_call=lists[0],
        root_call=lists[1],
        decode_at=np.empty((engine.replicas, most)),
        decode_call=np.empty((engine.replicas, most), np.int64),
        times=np.empty(events),
        events=np.empty(events, np.int64),
        numbers=np.zeros(14, np.int64),
        arrivals=records(ARRIVAL, count),
        seen=np.zeros(3),
        lookups=np.zeros(FIRST_LOOKUPS),
        pieces=np.empty((MOST_TRACKS, 3), np.int64),
        ending=np.empty(most + 1, np.int64),
        prefill=prefill,
        weights=weights,
    )


@inner
def _schedule(sim, when, kind, what):  # type: ignore[no-untyped-def]
    numbers = sim.numbers
    numbers[EVENTS] = _push(sim.times, sim.events, numbers[EVENTS], when, kind * KIND + what)


@inner
def _wait(sim, replica, call):  # type: ignore[no-untyped-def]
    """Put a call at the end of the queue of those not taken up."""
    fleet = sim.fleet
    fleet.queue[replica] += 1
    if fleet.wait_first[replica] < 0:
        fleet.wait_first[replica] = call
    else:
        sim.progress.behind[fleet.wait_last[replica]] = call
    fleet.wait_last[replica] = call
    sim.progress.behind[call] = -1


@inner
def _wait_first(sim, replica, call):  # type: ignore[no-untyped-def]
    """Put a call at the head of that queue."""
    fleet = sim.fleet
    fleet.queue[replica] += 1
    sim.progress.behind[call] = fleet.wait_first[replica]
    if fleet.wait_first[replica] < 0:
        fleet.wait_last[replica] = call
    fleet.wait_first[replica] = call


@inner
def _compute_next(sim, replica, call):  # type: ignore[no-untyped-def]
    """Put a call at the end of the queue of prompts to compute."""
    fleet = sim.fleet
    sim.progress.behind[call] = -1
    if fleet.run_first[replica] < 0:
        fleet.run_first[replica] = call
    else:
        sim.progress.behind[fleet.run_last[replica]] = call
    fleet.run_last[replica] = call
    fleet.backlog[replica] += max(sim.progress.fresh[call], 1)
