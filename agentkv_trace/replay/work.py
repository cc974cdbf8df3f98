"""What the simulator reads and writes: tables with one record per call, family, replica, tier.

Kernels take each as one array of records (`table.field[i]`), which keeps what belongs to a call in
one place in memory and the kernels quick to compile.
"""

# ruff: noqa: TID253
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 (numba reads the annotations)

STICKY, ROUND_ROBIN, LONGEST_PREFIX = range(3)
ROUTINGS = {"sticky": STICKY, "round-robin": ROUND_ROBIN, "longest-prefix": LONGEST_PREFIX}
OFF, FIXED, CONDITIONED = range(3)
WRITE_FILTERS = {"off": OFF, "fixed": FIXED, "conditioned": CONDITIONED}
SERVED, REJECTED = range(2)
FIRST_LOOKUPS = 256
"""Lookups over which the write filter takes the mean prompt."""
LONG_AGO = -1.0e18


def _table(**fields: type) -> np.dtype[Any]:
    return np.dtype(list(fields.items()), align=True)


I4, I8, F8 = np.int32, np.int64, np.float64

CALL = _table(
    session=I4, family=I4, prompt=I8, output=I8, prompt_chunks=I4, path_chunks=I4, track=I4,
    host_prompt=I4, host_path=I4, host_track=I4, earliest=F8, gap=F8, later=I8,
)  # fmt: skip
"""A call to replay. prompt, output: tokens. prompt_chunks, path_chunks, track: in the GPU tier's
chunks and tracks; host_*: in the host tier's. earliest: seconds before which it does not arrive;
gap: seconds between the end of what it waits for and its arrival. later: where the list of calls
that wait for it begins; it ends where that of the next call begins."""

PROGRESS = _table(
    waits=I8, ready=F8, behind=I8, mark=I8, own=I8, left=F8, again=I8, work=F8, fresh=I8,
    saved=I8, gpu=I8, restored=I8, turn=I8,
)  # fmt: skip
"""A call on its way. waits, ready: for how many calls it waits, and when the last ended. behind:
the next in its queue. mark: its rank in the host tier. own: chunks it holds that no path shares.
left: output tokens. again: preemptions. work, fresh: seconds and tokens of its prefill. saved:
whether it is stored to host. gpu, restored: hits of its last lookup, in chunks and tokens. turn:
when it was taken up."""

DONE = _table(
    arrived=F8, started=F8, first=F8, ended=F8, gpu=I4, restored=I4, computed=I4, recomputed=I4,
    written=I4, replica=I4, state=I4,
)  # fmt: skip
"""What became of a call. Seconds at which it arrived, was taken up, had its first token, ended
(-1: never). gpu, restored and computed tokens share the prompt; recomputed counts what preemptions
made the engine compute again."""

FAMILY = _table(release=F8, root=I8, left=I8, live=I8, met_at=F8)
"""A session with its sub-agents, in the order in which agents take them up. release: seconds before
which it does not begin. root: where the list of its calls that wait for none begins. left: calls
not ended. live: tokens of its contexts. met_at: when its last call arrived."""

SESSION = _table(live=I8, home=I8)
"""live: tokens of its context. home: its replica, -1 before its first call."""

REPLICA = _table(
    wait_first=I8, wait_last=I8, queue=I8, run_first=I8, run_last=I8, job=I8, job_at=F8,
    job_step=F8, backlog=I8, running=I8, own=I8, load=I8, clock=F8, since=F8, step=F8,
    link_free=F8, next_tick=F8, decoding=I8, context=F8, touched=I8,
)  # fmt: skip
"""wait_*: queue of calls not taken up, `queue` of them; run_*: taken up and not yet computed,
`backlog` tokens. job: the first call of the batch that is computed, until the clock says job_at, in
steps of job_step seconds. clock: steps so far at time `since`; step: how long each lasts, below 0
when idle. own: chunks held that no path shares. load: calls that arrived and did not end.
decoding: calls in the heap of those that decode; context: seconds a step needs to read their keys
and values. touched: 1 where something happened to it at this very time."""

TIER = _table(pending=I8, pending_last=I8, pending_clock=F8, evicted_at=F8)
"""pending, pending_last: the first and last rank to be settled, -1 for none; pending_clock: the
replica's clock when the last came. evicted_at: when it last evicted."""

TRACK = _table(parent=I4, attach=I4)
ARRIVAL = _table(at=F8, family=I8)


class Engine(NamedTuple):
    """The deployment in numbers; times in seconds, sizes in chunks of their tier.

    agents: families at a time. slots: calls that run at a time on a replica. skip_last: 1 where
    the last prompt token is always computed; tails: 1 where partial chunks take room; outputs: 1
    where outputs do that are never sent again. restore_*: fixed and per token, in the engine's
    steps (`in_step`, hidden by a share `overlap` of the call's computing) or beside them.
    """

    replicas: int
    routing: int
    agents: int
    slots: int
    step_tokens: int
    pool: int
    chunk_tokens: int
    skip_last: int
    tails: int
    outputs: int
    policy: int
    host_capacity: int
    host_chunk_tokens: int
    tick_s: float
    write_filter: int
    filter_chunks: int
    filter_tokens: int
    restore_s: float
    restore_token_s: float
    in_step: int
    overlap: float
    write_token_s: float
    store_sync_s: float
    step_s: float
    context_token_s: float


class Sim(NamedTuple):
    """Everything but what the tiers hold.

    later_call, root_call: the lists that calls and families point into. decode_at, decode_call:
    per replica a heap of the calls that decode, by the clock at their end. times, events: the heap
    of events. pieces: room for one path. ending: room for the calls that end at one event. prefill:
    seconds to compute a prompt up to each chunk. weights: seconds to read the weights, by calls
    that decode, the last entry for steps that compute prompts.
    """

    engine: Engine
    calls: NDArray[Any]
    progress: NDArray[Any]
    done: NDArray[Any]
    families: NDArray[Any]
    sessions: NDArray[Any]
    fleet: NDArray[Any]
    tiers: NDArray[Any]
    tracks: NDArray[Any]
    host_tracks: NDArray[Any]
    later_call: NDArray[np.int64]
    root_call: NDArray[np.int64]
    decode_at: NDArray[np.float64]
    decode_call: NDArray[np.int64]
    times: NDArray[np.float64]
    events: NDArray[np.int64]
    numbers: NDArray[np.int64]
    arrivals: NDArray[Any]
    seen: NDArray[np.float64]
    lookups: NDArray[np.float64]
    pieces: NDArray[np.int64]
    ending: NDArray[np.int64]
    prefill: NDArray[np.float64]
    weights: NDArray[np.float64]


SERIES = (
    "time_s",
    "live_tokens",
    "held_chunks",
    "resident_chunks",
    "host_chunks",
    "queue",
    "running",
    "prompt_tokens",
    "gpu_tokens",
    "restored_tokens",
)
"""Columns of the samples over time; the last three are sums since the start."""


def records(table: np.dtype[Any], size: int, **columns: Any) -> NDArray[Any]:
    """Return an array of records, zero where no column is given."""
    made = np.zeros(size, table).view(np.recarray)
    for name, values in columns.items():
        made[name] = values
    return made
