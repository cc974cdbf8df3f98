"""Many replays at once: every combination of loads and settings, on all cores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.errors import InputError
from agentkv_trace.replay.simulate import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agentkv_trace.replay.result import Result
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.replay.timeline import Timeline
    from agentkv_trace.trace.store import Trace

MOST_RUNS = 10_000


@dataclass(frozen=True, slots=True)
class Run:
    """One replay to make; `labels` say what is special about it, in columns of the table."""

    labels: Mapping[str, Any]
    timeline: Timeline
    setting: Setting


def sweep(
    trace: Trace,
    runs: Sequence[Run],
    *,
    advance: Callable[[int], object] = lambda done: None,
    workers: int | None = None,
) -> list[Result]:
    """Replay all runs, as many at a time as there are cores; return results in their order.

    Runs on the same timeline share its load. `advance` hears of each replay that is done. Raises
    InputError as `Load` does, and for more runs than anybody reads.
    """
    if len(runs) > MOST_RUNS:
        raise InputError(f"{len(runs):,} replays: give fewer values, {MOST_RUNS:,} at most")
    loads = {run.timeline: Load(trace, run.timeline) for run in runs}
    for run in runs:
        # What loads compute once is computed before they are shared.
        loads[run.timeline].prepare(run.setting)

    def one(run: Run) -> Result:
        result = loads[run.timeline].run(run.setting)
        advance(1)
        return result

    with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
        return list(pool.map(one, runs))


def rows(runs: Sequence[Run], results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return one flat row per replay: its labels, then its sums; spreads as `ttft_s_p95`."""
    table = []
    for run, result in zip(runs, results, strict=True):
        row = dict(run.labels)
        for name, value in result.summary().items():
            if isinstance(value, dict):
                row |= {f"{name}_{part}": number for part, number in value.items()}
            else:
                row[name] = value
        table.append(row)
    return table


def write_parquet(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the rows of a sweep as Parquet; the caller renames it into place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(list(table)), path, compression="zstd")


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Read `4`, `1,2,8` or `1..64`. Raises InputError.

    A range over more than 16 numbers goes up by powers of two, its ends included.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdigit() or (dots and not last.isdigit()):
            raise InputError(f"{option} {part.strip()!r}: write it like 16, 4,8,16 or 1..64")
        low, high = int(first), int(last or first)
        if low < 1 or high < low:
            raise InputError(f"{option} {part.strip()!r}: must rise from 1 or more")
        if high - low < 16:
            found += range(low, high + 1)
            continue
        step = 1
        found.append(low)
        while step < high:
            found += [step] if step > low else []
            step *= 2
        found.append(high)
    return tuple(dict.fromkeys(found))
