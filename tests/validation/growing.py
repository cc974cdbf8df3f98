"""Traces of tasks whose prompts grow call by call, made from published sums alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replays import CHUNK, trace_of_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.trace.store import Trace

MEDIAN_SHARE = 0.38
"""Median over mean of what calls add to their prompts, in seven public agent traces (281 calls
that grow, Weka's block-hash format); a lognormal of this shape also has their 90th and 99th
percentiles, 2.0 and 10 times the mean."""


def growing_tasks(
    calls: Sequence[int],
    *,
    head: int,
    first: int,
    mean: float,
    output: int,
    median_share: float = MEDIAN_SHARE,
    seed: int = 1,
) -> Trace:
    """Return a trace of one task after another; sizes in tokens, prompts `mean` long on average.

    calls: of each task. All tasks share `head`; a task's first prompt has `first` tokens, each
    further one adds what the last call said (`output`) and what its tool returned. What is added is
    lognormal, its median `median_share` of its mean. No times: the timeline draws those of tools.
    """
    turn = np.concatenate([np.arange(count) for count in calls])
    session = np.repeat(np.arange(len(calls)), calls)
    sigma = np.sqrt(-2 * np.log(median_share))
    drawn = np.random.default_rng(seed).lognormal(0.0, sigma, turn.size)
    begin = np.flatnonzero(turn == 0)[session]

    def prompts(scale: float) -> Any:
        added = np.maximum(scale * drawn, output).astype(np.int64)
        added[turn == 0] = 0
        total = np.cumsum(added)
        return first + total - total[begin]

    low, high = 0.0, mean
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if prompts(middle).mean() < mean else (low, middle)
    prompt = prompts(high)
    return _trace(turn, session, prompt, head, output, None)


def paced_tasks(
    calls: Sequence[int], *, head: int, first: int, finals: Any, period_s: float, seed: int = 1
) -> Trace:
    """Return a trace of tasks whose prompts grow evenly to `finals` tokens, at a constant pace.

    A task's calls are `period_s` seconds apart but for its second, which comes at a random time
    within that, so that agents which began together are out of step.
    """
    turn = np.concatenate([np.arange(count) for count in calls])
    session = np.repeat(np.arange(len(calls)), calls)
    last = np.maximum(np.array(calls)[session] - 1, 1)
    prompt = (first + (finals[session] - first) * turn / last).astype(np.int64)
    gap = np.full(turn.size, period_s)
    early = turn == 1
    gap[early] = np.random.default_rng(seed).uniform(0, period_s, int(early.sum()))
    return _trace(turn, session, prompt, head, 1, np.cumsum(gap * 1e6).astype(np.int64))


def _trace(
    turn: Any, session: Any, prompt: Any, head: int, output: int, start: Any | None
) -> Trace:
    path = (prompt + output) // CHUNK
    base = np.arange(turn.size) - 1
    shared = np.concatenate([[0], np.minimum(path[:-1], prompt[1:] // CHUNK)])
    begins = turn == 0
    base[begins] = 0
    shared[begins] = head // CHUNK
    base[0], shared[0] = -1, 0
    trace = trace_of_columns(
        {
            "base": base.astype(np.int32),
            "base_chunks": shared.astype(np.int32),
            "prompt_chunks": (prompt // CHUNK).astype(np.int32),
            "path_chunks": path.astype(np.int32),
        },
        session,
        output,
    )
    columns: dict[str, Any] = {"prompt_tokens": pa.array(prompt)}
    if start is None:
        start = np.arange(turn.size, dtype=np.int64)
        none = pa.array(np.zeros(turn.size, np.int32))
        columns["time_source"] = pa.DictionaryArray.from_arrays(none, pa.array(["order_only"]))
    columns["t_start_us"] = columns["t_end_us"] = pa.array(start)
    table = trace.table
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, values.cast(field.type))
    return type(trace)(table, trace.meta)


def spread(tasks: int, calls: int, least: float, most: float, seed: int = 1) -> list[int]:
    """Return lengths of tasks, evenly spread between shares of their mean, that sum to `calls`."""
    ends = np.linspace(least, most, tasks).cumsum()
    lengths = np.diff(np.round(ends / ends[-1] * calls).astype(int), prepend=0)
    return [int(length) for length in np.random.default_rng(seed).permutation(lengths)]
