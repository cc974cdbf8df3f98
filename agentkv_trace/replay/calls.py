"""What happens to a call at its events: taken up, computed, preempted, ended."""

# ruff: noqa: TID253
from __future__ import annotations

import numpy as np

from agentkv_trace.replay.heap import _remove
from agentkv_trace.replay.host import NONE
from agentkv_trace.replay.inner import inner
from agentkv_trace.replay.segments import EVICTED, IDLE, RESIDENT, SPARE, WRITTEN
from agentkv_trace.replay.serve import (
    _finish,
    _finish_on_host,
    _let_go_call,
    _look_up,
    _output_need,
    _room,
    _settle,
    _skip_write,
    _take_up,
    _write,
)
from agentkv_trace.replay.state import (
    ACTIVE,
    FINISHED,
    LIVE,
    LOOKUP_SUM,
    LOOKUPS,
    MET,
    ORDER,
    PREEMPTIONS,
    READY,
    RESTORED,
    SUM_GPU,
    SUM_PROMPT,
    SUM_RESTORED,
    _compute_next,
    _schedule,
    _wait_first,
)
from agentkv_trace.replay.work import FIRST_LOOKUPS, FIXED, OFF, REJECTED

WINDOW_S = 60.0
"""Seconds over which the write filter counts families and evictions."""
_NEAR_FULL = 0.95


@inner
def _context(sim, call):  # type: ignore[no-untyped-def]
    """Return the seconds a step needs to read a call's keys and values while it decodes."""
    tokens = sim.calls.prompt[call] + sim.calls.output[call] / 2
    return tokens * sim.engine.context_token_s


@inner
def _prefill_s(sim, begin, end):  # type: ignore[no-untyped-def]
    """Return the seconds to compute a stretch of a prompt, between the table's points."""
    return _seconds_to(sim, end) - _seconds_to(sim, begin)


@inner
def _seconds_to(sim, tokens):  # type: ignore[no-untyped-def]
    chunk = sim.engine.chunk_tokens
    at = tokens // chunk
    rest = tokens - at * chunk
    if rest == 0:
        return sim.prefill[at]
    return sim.prefill[at] + (sim.prefill[at + 1] - sim.prefill[at]) * (rest / chunk)


@inner
def _note_evictions(now, store, host, before, sim):  # type: ignore[no-untyped-def]
    if store.counts[host, EVICTED] > before:
        sim.tiers.evicted_at[host] = now


@inner
def _take_up_waiting(now, replica, store, sim):  # type: ignore[no-untyped-def]
    """Take up calls in order of arrival while there is room and the engine asks for prompts.

    Returns whether it stopped because segments run short.
    """
    engine, fleet, progress = sim.engine, sim.fleet, sim.progress
    tier = 2 * replica
    while (
        fleet.wait_first[replica] >= 0
        and fleet.running[replica] < engine.slots
        and fleet.backlog[replica] < engine.step_tokens
    ):
        if store.free[1] < SPARE:
            return True
        call = fleet.wait_first[replica]
        gpu, restored, found = _look_up(store, tier, call, sim)
        own, short = _room(store, tier, call, gpu, fleet.own[replica], sim)
        if short < 0:
            if fleet.running[replica] > 0:
                break
            # Alone it fits, but for a second copy of its last chunk.
            short = np.int64(0)
        fleet.wait_first[replica] = progress.behind[call]
        fleet.queue[replica] -= 1
        fleet.running[replica] += 1
        evicted = store.counts[tier + 1, EVICTED]
        written = store.counts[tier + 1, WRITTEN]
        own = _take_up(store, tier, call, gpu, found, short, own, sim)
        _note_evictions(now, store, tier + 1, evicted, sim)
        # What leaves the GPU for this call may be stored to host.
        written = (store.counts[tier + 1, WRITTEN] - written) * engine.host_chunk_tokens
        sim.done.written[call] += written
        fleet.own[replica] += own
        progress.own[call] = own
        sim.numbers[ORDER] += 1
        progress.turn[call] = sim.numbers[ORDER]
        prompt = sim.calls.prompt[call]
        hit = gpu * engine.chunk_tokens
        restored = min(restored, prompt - hit)
        progress.gpu[call] = gpu
        progress.restored[call] = restored
        progress.fresh[call] = prompt - hit - restored
        if progress.again[call] == 0:
            _note_lookup(now, call, hit, restored, sim)
        else:
            sim.done.recomputed[call] += progress.fresh[call]
        # The last token is always computed.
        begin = max(min(hit + restored, prompt - 1), 0)
        progress.work[call] = _prefill_s(sim, begin, prompt) + written * engine.write_token_s
        if restored > 0:
            copying = restored * engine.restore_token_s
            if engine.in_step:
                hidden = engine.overlap * progress.work[call]
                progress.work[call] += max(copying + engine.restore_s - hidden, 0.0)
            else:
                fleet.link_free[replica] = max(fleet.link_free[replica], now) + copying
                _schedule(sim, fleet.link_free[replica] + engine.restore_s, RESTORED, call)
                continue
        _compute_next(sim, replica, call)
    return False


@inner
def _note_lookup(now, call, hit, restored, sim):  # type: ignore[no-untyped-def]
    done, seen = sim.done, sim.seen
    done.started[call] = now
    done.gpu[call] = hit
    done.restored[call] = restored
    done.computed[call] = sim.progress.fresh[call]
    slot = np.int64(seen[LOOKUPS]) % FIRST_LOOKUPS
    seen[LOOKUP_SUM] += sim.calls.prompt[call] - sim.lookups[slot]
    sim.lookups[slot] = sim.calls.prompt[call]
    seen[LOOKUPS] += 1


@inner
def _start_batch(now, replica, store, sim):  # type: ignore[no-untyped-def]
    """Begin to compute the prompt at the head of the queue, and those that fit its last step."""
    engine, fleet, progress = sim.engine, sim.fleet, sim.progress
    if fleet.job[replica] >= 0 or fleet.run_first[replica] < 0:
        return
    host = 2 * replica + 1
    tokens = np.int64(0)
    written = np.int64(0)
    seconds = 0.0
    last = np.int64(-1)
    call = fleet.run_first[replica]
    fleet.job[replica] = call
    while call >= 0:
        room = -(-tokens // engine.step_tokens) * engine.step_tokens - tokens
        if last >= 0 and (max(progress.fresh[call], 1) > room or store.free[1] < SPARE // 2):
            break
        tokens += max(progress.fresh[call], 1)
        seconds += progress.work[call]
        if engine.policy != NONE:
            evicted = store.counts[host, EVICTED]
            if _declines(now, call, host, store, sim):
                progress.saved[call] = 0
                _skip_write(store, host, call, sim)
            else:
                progress.saved[call] = 1
                first = last < 0 and tokens > engine.step_tokens
                new = _write(store, host, call, first, sim)
                written += new
                sim.done.written[call] += new * engine.host_chunk_tokens
            _note_evictions(now, store, host, evicted, sim)
        last = call
        call = progress.behind[call]
    _settle(store, host, sim)
    fleet.run_first[replica] = progress.behind[last]
    progress.behind[last] = -1
    steps = -(-tokens // engine.step_tokens)
    seconds += written * engine.host_chunk_tokens * engine.write_token_s
    if written > 0:
        seconds += steps * engine.store_sync_s
    fleet.job_step[replica] = seconds / steps
    fleet.job_at[replica] = fleet.clock[replica] + steps


@inner
def _declines(now, call, host, store, sim):  # type: ignore[no-untyped-def]
    """Tell whether a call's new chunks are not to be stored (the paper's write admission)."""
    engine, seen = sim.engine, sim.seen
    if engine.write_filter == OFF:
        return False
    prompt = sim.calls.prompt[call]
    hit = prompt - sim.progress.fresh[call]
    new = prompt // engine.filter_tokens - hit // engine.filter_tokens
    if new <= engine.filter_chunks:
        return False
    if engine.write_filter == FIXED:
        return True
    mean = seen[LOOKUP_SUM] / max(min(seen[LOOKUPS], FIRST_LOOKUPS), 1.0)
    reuse = (seen[MET] - 1) * mean / engine.host_chunk_tokens
    full = store.counts[host, RESIDENT] >= _NEAR_FULL * engine.host_capacity
    recent = now - sim.tiers.evicted_at[host] <= WINDOW_S
    return reuse > engine.host_capacity and full and recent


@inner
def _end(now, call, replica, store, sim):  # type: ignore[no-untyped-def]
    """End a call: its output is kept, its path let go, and what waits for it comes nearer."""
    calls, progress, families, numbers = sim.calls, sim.progress, sim.families, sim.numbers
    family = calls.family[call]
    if sim.done.state[call] != REJECTED:
        _leave(now, call, replica, store, sim)
        numbers[SUM_PROMPT] += calls.prompt[call]
        numbers[SUM_GPU] += sim.done.gpu[call]
        numbers[SUM_RESTORED] += sim.done.restored[call]
        grown = calls.output[call]
        sim.sessions.live[calls.session[call]] += grown
        families.live[family] += grown
        numbers[LIVE] += grown
    sim.fleet.load[replica] -= 1
    sim.done.ended[call] = now
    numbers[FINISHED] += 1
    last = calls.later[call + 1] if call + 1 < calls.size else sim.later_call.size
    for at in range(calls.later[call], last):
        later = sim.later_call[at]
        progress.waits[later] -= 1
        progress.ready[later] = max(progress.ready[later], now)
        if progress.waits[later] == 0:
            when = max(progress.ready[later] + calls.gap[later], calls.earliest[later])
            _schedule(sim, when, READY, later)
    families.left[family] -= 1
    if families.left[family] == 0:
        numbers[ACTIVE] -= 1
        numbers[LIVE] -= families.live[family]


@inner
def _leave(now, call, replica, store, sim):  # type: ignore[no-untyped-def]
    """Give a call's chunks their last place on both tiers."""
    fleet, progress = sim.fleet, sim.progress
    tier = 2 * replica
    fleet.own[replica] -= progress.own[call]
    progress.own[call] = 0
    written = store.counts[tier + 1, WRITTEN]
    evicted = store.counts[tier + 1, EVICTED]
    add, other, tail, idle = _output_need(store, tier, call, sim)
    used = store.counts[tier, RESIDENT] + fleet.own[replica]
    short = add + other + tail - sim.engine.pool + used
    while short > store.counts[tier, IDLE] - idle and fleet.decoding[replica] > 0:
        _preempt(replica, store, sim)
        add, other, tail, idle = _output_need(store, tier, call, sim)
        used = store.counts[tier, RESIDENT] + fleet.own[replica]
        short = add + other + tail - sim.engine.pool + used
    if short > store.counts[tier, IDLE] - idle:
        # All that is held is being computed: this output is not kept.
        _let_go_call(store, tier, call, sim.calls.prompt_chunks[call], sim)
    else:
        _finish(store, tier, call, other, max(short, 0), sim)
    fleet.running[replica] -= 1
    if sim.engine.policy != NONE:
        _finish_on_host(store, tier + 1, call, sim)
    _note_evictions(now, store, tier + 1, evicted, sim)
    written = store.counts[tier + 1, WRITTEN] - written
    sim.done.written[call] += written * sim.engine.host_chunk_tokens


@inner
def _preempt(replica, store, sim):  # type: ignore[no-untyped-def]
    """Let the decoding call that was taken up last give way; it begins again, first in the queue.

    Its prompt stays cached as far as nobody needs the room, and its output so far is kept.
    """
    fleet, progress = sim.fleet, sim.progress
    at, call_of = sim.decode_at[replica], sim.decode_call[replica]
    last = 0
    for i in range(1, fleet.decoding[replica]):
        if progress.turn[call_of[i]] > progress.turn[call_of[last]]:
            last = i
    call = call_of[last]
    progress.left[call] = max(at[last] - fleet.clock[replica], 0.0) + 1
    fleet.decoding[replica] = _remove(at, call_of, fleet.decoding[replica], last)
    fleet.context[replica] -= _context(sim, call)
    _let_go_call(store, 2 * replica, call, sim.calls.prompt_chunks[call], sim)
    fleet.own[replica] -= progress.own[call]
    progress.own[call] = 0
    fleet.running[replica] -= 1
    progress.again[call] += 1
    sim.numbers[PREEMPTIONS] += 1
    _wait_first(sim, replica, call)
