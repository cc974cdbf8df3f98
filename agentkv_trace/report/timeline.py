"""A trace over time: live context, working set, hits and thrashing in buckets of equal length."""

# ruff: noqa: TID253
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace.replay.onset import FACTOR
from agentkv_trace.replay.sessions import MAX_GAP_S
from agentkv_trace.report.detail_model import BUCKETS, CALLS, GpuOverTime, Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agentkv_trace.engine.path_stack import Runs
    from agentkv_trace.report.case import Case
    from agentkv_trace.trace.store import Trace


def timeline(
    trace: Trace, runs: Runs, cases: Sequence[tuple[Case, int]], recover: float, *, timed: bool
) -> Timeline:
    """Return the trace over time.

    `runs` are the path engine's; each case comes with a size of its host tier in bytes over all
    ranks. O(calls log calls).
    """
    timed = timed and _takes_time(trace)
    start, end, longest = _clock(trace, timed=timed)
    last = float(end.max(initial=0.0))
    count = min(BUCKETS, max(len(trace) // CALLS, 1))
    bucket = np.minimum((start / max(last, 1e-9) * count).astype(np.int64), count - 1)
    live, agents = _live(trace, start, end, last, count)
    chunk = trace.meta.chunk_tokens
    working = [None if size is None else size * chunk
               for size in _working_sets(runs, bucket, count, recover)]  # fmt: skip
    prompt = np.bincount(bucket, trace.array("prompt_tokens"), count)
    shared = np.minimum(trace.array("base_chunks"), trace.array("prompt_chunks"))
    compulsory = prompt - np.bincount(bucket, shared, count) * chunk
    gpus = []
    for case, size in cases:
        use = case.use(size)
        computed = np.bincount(bucket, use.computed, count)
        written = np.bincount(bucket, use.written, count).astype(np.int64)
        capacity = max(case.pool_tokens, use.host_tokens)
        if not case.backend.inclusive:
            capacity = case.pool_tokens + use.host_tokens
        gpus.append(
            GpuOverTime(
                gpu=case.gpu.id,
                host_bytes=size,
                pool_tokens=case.pool_tokens,
                host_tokens=use.host_tokens,
                hit_ratio=tuple(
                    None if not whole else float(1 - part / whole)
                    for part, whole in zip(computed, prompt, strict=True)
                ),
                written_tokens=tuple(written.tolist()),
                thrashes=tuple(
                    bool(set_ is not None and set_ > capacity and part > FACTOR * need)
                    for set_, part, need in zip(working, computed, compulsory, strict=True)
                ),
            )
        )
    return Timeline(
        by="time" if timed else "call",
        longest_pause_s=longest,
        end_s=last,
        live_tokens=tuple(live.tolist()),
        agents=tuple(agents.tolist()),
        working_set_tokens=tuple(working),
        prompt_tokens=tuple(prompt.astype(np.int64).tolist()),
        gpus=tuple(gpus),
    )


def _takes_time(trace: Trace) -> bool:
    """Tell whether the calls are not all at one instant."""
    start, end = trace.array("t_start_us"), trace.array("t_end_us")
    return bool(start.size and end.max() > start.min())


def _clock(trace: Trace, *, timed: bool) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return when calls start and end: seconds with long pauses cut, or their numbers."""
    start = trace.array("t_start_us").astype(np.int64)
    end = trace.array("t_end_us").astype(np.int64)
    number = np.arange(start.size, dtype=np.float64)
    if not timed:
        return number, number + 1, 0.0
    # What no call covers and is longer than a pause is cut out of the clock.
    covered = np.maximum.accumulate(end)
    pause = np.maximum(start[1:] - covered[:-1] - int(MAX_GAP_S * 1e6), 0)
    cut = np.concatenate([[0], np.cumsum(pause)])
    begun = start - cut
    longest = MAX_GAP_S if cut[-1] else 0.0
    return (begun - begun[0]) / 1e6, (end - cut - begun[0]) / 1e6, longest


def _live(
    trace: Trace,
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    last: float,
    count: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the most tokens of live context and the most sessions that go on, by bucket."""
    session = trace.codes("session")[0]
    prompt = trace.array("prompt_tokens").astype(np.int64)
    order = np.argsort(session, kind="stable")
    first = np.diff(session[order], prepend=-1) != 0
    before = np.where(first, 0, np.roll(prompt[order], 1)) if order.size else prompt
    grown = np.empty_like(prompt)
    grown[order] = prompt[order] - before
    # A session goes on until the last of its calls ends; its context is that of its last call.
    closing = np.zeros(session.max(initial=-1) + 1)
    np.maximum.at(closing, session, end)
    final = prompt[order][np.roll(first, -1)] if order.size else prompt
    time = np.concatenate([start, closing])
    tokens = np.concatenate([grown, -final])
    one = np.zeros(session.size, np.int64)
    one[order] = first
    agents = np.concatenate([one, -np.ones(closing.size, np.int64)])
    # At one time, starts come first: peaks are what must fit.
    rank = np.lexsort((np.arange(time.size) >= start.size, time))
    return (
        _peaks(time[rank], np.cumsum(tokens[rank]), last, count),
        _peaks(time[rank], np.cumsum(agents[rank]), last, count),
    )


def _peaks(
    time: NDArray[np.float64], value: NDArray[np.int64], last: float, count: int
) -> NDArray[np.int64]:
    """Return the largest value of a step function in each bucket."""
    bucket = np.minimum((time / max(last, 1e-9) * count).astype(np.int64), count - 1)
    peaks = np.zeros(count, np.int64)
    np.maximum.at(peaks, bucket, value)
    # What a bucket begins with is what held at the end of those before it.
    ends = np.searchsorted(bucket, np.arange(count), side="left")
    carried = np.where(ends > 0, value[np.maximum(ends - 1, 0)], 0) if value.size else peaks
    found: NDArray[np.int64] = np.maximum(peaks, carried)
    return found


def _working_sets(
    runs: Runs, bucket: NDArray[np.int64], count: int, recover: float
) -> list[int | None]:
    """Return the smallest capacity in chunks with a share of each bucket's possible hits."""
    where = bucket[runs.call]
    first, length = runs.first_distance.astype(np.int64), runs.length.astype(np.int64)
    possible = np.bincount(where, length, count)
    wanted = recover * possible * (1 - 1e-12)
    low = np.zeros(count, np.int64)
    high = np.full(count, int((first + length).max(initial=1)))
    while np.any(high - low > 1):
        middle = (low + high) // 2
        hits = np.bincount(where, np.clip(middle[where] - first + 1, 0, length), count)
        enough = hits >= wanted
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle)
    return [int(size) if most else None for size, most in zip(high, possible.tolist(), strict=True)]
