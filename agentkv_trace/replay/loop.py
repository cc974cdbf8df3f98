"""The event loop: arrivals, restores and the steps of each replica's engine.

An engine works in steps. Each gives one token to every call that decodes, and computes the next
`step_tokens` tokens of the prompts at the head of its queue; so a step lasts as long as those
prompt tokens and the batch's decoding take, and between two events all steps last the same. A
replica therefore keeps one clock that counts steps; a call that decodes ends when the clock has
gained its output tokens, and a batch of prompts when it has gained its steps. Events are all that
costs time, whatever the number of tokens.
"""

# ruff: noqa: TID253
from __future__ import annotations

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.replay.calls import WINDOW_S, _context, _end, _start_batch, _take_up_waiting
from agentkv_trace.replay.heap import _push, _remove
from agentkv_trace.replay.host import SERVER, _watermark
from agentkv_trace.replay.inner import inner
from agentkv_trace.replay.segments import EVICTED, IDLE, RESIDENT, SPARE, _store, _with_room
from agentkv_trace.replay.serve import _look_up, _settle
from agentkv_trace.replay.state import (
    ACTIVE,
    ARRIVED,
    EVENTS,
    FINISHED,
    FORGOTTEN,
    KIND,
    LIVE,
    MET,
    READY,
    RELEASED,
    SAMPLES,
    SUM_PROMPT,
    TOUCHED,
    TURN,
    _compute_next,
    _schedule,
    _wait,
)
from agentkv_trace.replay.work import LONGEST_PREFIX, REJECTED, ROUND_ROBIN


@kernel
def _run(sim, series, stride):  # type: ignore[no-untyped-def]
    """Replay all calls; fill `sim.done` and, every `stride` calls, a row of `series`.

    Returns the tiers' counts. Calls that wait for each other in a circle never begin.
    """
    engine, numbers, fleet = sim.engine, sim.numbers, sim.fleet
    count = sim.calls.size
    tracks = max(sim.tracks.size, sim.host_tracks.size, 1)
    store = _store(2 * engine.replicas, tracks, max(4 * SPARE, count // 2))
    now = 0.0
    family = 0
    if sim.families.size and sim.families.release[0] > 0:
        _schedule(sim, sim.families.release[0], RELEASED, 0)
    while numbers[FINISHED] < count:
        family = _begin_families(now, family, sim)
        # What arrives together is taken up together.
        if numbers[TOUCHED] and not (numbers[EVENTS] and sim.times[0] <= now):
            for replica in range(engine.replicas):
                if fleet.touched[replica]:
                    store = _go_on(now, replica, store, sim)
            continue
        replica, when = _next_step(sim)
        ended = 0
        if replica >= 0 and (numbers[EVENTS] == 0 or when <= sim.times[0]):
            now = when
            ended = _finish_steps(now, replica, sim)
        elif numbers[EVENTS] > 0:
            now = max(now, sim.times[0])
            kind, what = sim.events[0] // KIND, sim.events[0] % KIND
            numbers[EVENTS] = _remove(sim.times, sim.events, numbers[EVENTS], 0)
            if kind == RELEASED:
                continue
            replica = _route(store, what, sim) if kind == READY else int(sim.done.replica[what])
            if fleet.step[replica] > 0:
                fleet.clock[replica] += (now - fleet.since[replica]) / fleet.step[replica]
            fleet.since[replica] = now
            if kind == READY:
                ended = _arrive(now, what, replica, sim)
            else:
                _compute_next(sim, replica, what)
        else:
            break
        if sim.tiers.pending_clock[2 * replica + 1] < fleet.clock[replica]:
            _settle(store, 2 * replica + 1, sim)
        for at in range(ended):
            if store.free[1] < SPARE:
                store = _with_room(store)
            if (numbers[FINISHED] + 1) % stride == 0 and numbers[SAMPLES] < series.shape[0]:
                # What held until now; only the sums know of the call that ends.
                row = series[numbers[SAMPLES]]
                numbers[SAMPLES] += 1
                _sample(now, store, sim, row)
                _end(now, sim.ending[at], replica, store, sim)
                for i in range(3):
                    row[7 + i] = sim.numbers[SUM_PROMPT + i]
            else:
                _end(now, sim.ending[at], replica, store, sim)
        numbers[TOUCHED] += 1 - fleet.touched[replica]
        fleet.touched[replica] = 1
        fleet.step[replica] = -1.0
    return store.counts


@kernel
def _go_on(now, replica, store, sim):  # type: ignore[no-untyped-def]
    """Take up what a replica has room for and set its steps going; return the store."""
    _tick(now, replica, store, sim)
    while store.free[1] < SPARE or _take_up_waiting(now, replica, store, sim):
        store = _with_room(store)
    if store.free[1] < SPARE:
        store = _with_room(store)
    _start_batch(now, replica, store, sim)
    sim.fleet.step[replica] = _step_s(replica, sim)
    sim.fleet.touched[replica] = 0
    sim.numbers[TOUCHED] -= 1
    return store


@inner
def _begin_families(now, family, sim):  # type: ignore[no-untyped-def]
    """Let families begin whose time has come while agents are free; return the next one."""
    families, calls = sim.families, sim.calls
    while family < families.size and sim.numbers[ACTIVE] < sim.engine.agents:
        if families.release[family] > now:
            break
        sim.numbers[ACTIVE] += 1
        last = families.root[family + 1] if family + 1 < families.size else sim.root_call.size
        for at in range(families.root[family], last):
            call = sim.root_call[at]
            _schedule(sim, max(now + calls.gap[call], calls.earliest[call]), READY, call)
        family += 1
        if family < families.size and families.release[family] > now:
            _schedule(sim, families.release[family], RELEASED, family)
    return family


@inner
def _next_step(sim):  # type: ignore[no-untyped-def]
    """Return the replica whose steps finish something first, and when (-1: all are idle)."""
    fleet = sim.fleet
    best = np.int64(-1)
    when = np.inf
    for replica in range(sim.engine.replicas):
        if fleet.step[replica] < 0:
            continue
        steps = max(_target(replica, sim) - fleet.clock[replica], 0.0)
        at = fleet.since[replica] + steps * fleet.step[replica]
        if at < when:
            when = at
            best = np.int64(replica)
    return best, when


@inner
def _target(replica, sim):  # type: ignore[no-untyped-def]
    """Return the clock at which a batch of prompts is computed or a call has all its tokens."""
    target = np.inf
    if sim.fleet.job[replica] >= 0:
        target = sim.fleet.job_at[replica]
    if sim.fleet.decoding[replica] > 0:
        target = min(target, sim.decode_at[replica, 0])
    return target


@inner
def _step_s(replica, sim):  # type: ignore[no-untyped-def]
    """Return how long each step lasts from now on; below 0 where nothing runs."""
    fleet, weights = sim.fleet, sim.weights
    if fleet.job[replica] >= 0:
        computing = max(fleet.job_step[replica], weights[weights.size - 1])
    elif fleet.decoding[replica] > 0:
        computing = weights[min(fleet.decoding[replica], weights.size - 1)]
    else:
        return -1.0
    return computing + max(fleet.context[replica], 0.0) + sim.engine.step_s


@inner
def _finish_steps(now, replica, sim):  # type: ignore[no-untyped-def]
    """Move a replica's clock to what finishes first; return how many calls end, in `ending`."""
    fleet, progress = sim.fleet, sim.progress
    at, call_of = sim.decode_at[replica], sim.decode_call[replica]
    clock = max(_target(replica, sim), fleet.clock[replica])
    fleet.clock[replica] = clock
    fleet.since[replica] = now
    ended = 0
    while fleet.decoding[replica] > 0 and at[0] <= clock:
        call = call_of[0]
        fleet.decoding[replica] = _remove(at, call_of, fleet.decoding[replica], 0)
        fleet.context[replica] -= _context(sim, call)
        sim.ending[ended] = call
        ended += 1
    if fleet.job[replica] >= 0 and fleet.job_at[replica] <= clock:
        call = fleet.job[replica]
        fleet.job[replica] = -1
        while call >= 0:
            fleet.backlog[replica] -= max(progress.fresh[call], 1)
            if sim.done.first[call] < 0:
                sim.done.first[call] = now
            if progress.left[call] <= 1:
                sim.ending[ended] = call
                ended += 1
            else:
                until = clock + progress.left[call] - 1
                fleet.decoding[replica] = _push(at, call_of, fleet.decoding[replica], until, call)
                fleet.context[replica] += _context(sim, call)
            call = progress.behind[call]
    return ended


@inner
def _arrive(now, call, replica, sim):  # type: ignore[no-untyped-def]
    """Queue a call, or reject one that no pool holds; return how many calls end, in `ending`."""
    engine, calls, numbers = sim.engine, sim.calls, sim.numbers
    sim.done.arrived[call] = now
    sim.done.replica[call] = replica
    sim.fleet.load[replica] += 1
    family, session = calls.family[call], calls.session[call]
    grown = calls.prompt[call] - sim.sessions.live[session]
    sim.sessions.live[session] += grown
    sim.families.live[family] += grown
    numbers[LIVE] += grown
    _meet(now, family, sim)
    slots = np.int64(calls.prompt_chunks[call])
    if engine.tails:
        slots = -(-calls.prompt[call] // engine.chunk_tokens)
    if slots > engine.pool:
        sim.done.state[call] = REJECTED
        sim.done.started[call] = now
        sim.done.first[call] = now
        sim.ending[0] = call
        return 1
    _wait(sim, replica, call)
    return 0


@inner
def _meet(now, family, sim):  # type: ignore[no-untyped-def]
    """Count the families met in the last minute."""
    met_at, arrivals, numbers = sim.families.met_at, sim.arrivals, sim.numbers
    if met_at[family] < now - WINDOW_S:
        sim.seen[MET] += 1
    met_at[family] = now
    arrivals.family[numbers[ARRIVED]] = family
    arrivals.at[numbers[ARRIVED]] = now
    numbers[ARRIVED] += 1
    while arrivals.at[numbers[FORGOTTEN]] < now - WINDOW_S:
        at = numbers[FORGOTTEN]
        if met_at[arrivals.family[at]] == arrivals.at[at]:
            sim.seen[MET] -= 1
        numbers[FORGOTTEN] += 1


@inner
def _route(store, call, sim):  # type: ignore[no-untyped-def]
    """Choose a replica: the session's own, the next, or the one that holds most of the prompt.

    The last only where that is more than half of it, else the one with least to do.
    """
    engine, load, home = sim.engine, sim.fleet.load, sim.sessions.home
    best = np.int64(0)
    for replica in range(1, engine.replicas):
        if load[replica] < load[best]:
            best = np.int64(replica)
    session = sim.calls.session[call]
    if engine.routing == ROUND_ROBIN:
        best = sim.numbers[TURN] % engine.replicas
        sim.numbers[TURN] += 1
    elif engine.routing == LONGEST_PREFIX and engine.replicas > 1:
        most = sim.calls.prompt[call] // 2
        for replica in range(engine.replicas):
            gpu, restored, _ = _look_up(store, 2 * replica, call, sim)
            found = gpu * engine.chunk_tokens + restored
            if found > most or (found == most and load[replica] < load[best]):
                best, most = np.int64(replica), found
    elif home[session] >= 0:
        best = home[session]
    home[session] = best
    return best


@inner
def _tick(now, replica, store, sim):  # type: ignore[no-untyped-def]
    """Let LMCache's server look at its watermark where its time has come."""
    engine, host = sim.engine, 2 * replica + 1
    if engine.policy != SERVER or engine.tick_s <= 0 or now < sim.fleet.next_tick[replica]:
        return
    before = store.counts[host, EVICTED]
    _watermark(store, host, engine.host_capacity)
    if store.counts[host, EVICTED] > before:
        sim.tiers.evicted_at[host] = now
    sim.fleet.next_tick[replica] = (np.floor(now / engine.tick_s) + 1) * engine.tick_s


@inner
def _sample(now, store, sim, row):  # type: ignore[no-untyped-def]
    """Fill in one row of `work.SERIES`."""
    fleet = sim.fleet
    row[0] = now
    row[1] = sim.numbers[LIVE]
    row[2:7] = 0
    for replica in range(sim.engine.replicas):
        resident = store.counts[2 * replica, RESIDENT] + fleet.own[replica]
        row[2] += resident - store.counts[2 * replica, IDLE]
        row[3] += resident
        row[4] += store.counts[2 * replica + 1, RESIDENT]
        row[5] += fleet.queue[replica]
        row[6] += fleet.running[replica]
    for i in range(3):
        row[7 + i] = sim.numbers[SUM_PROMPT + i]
