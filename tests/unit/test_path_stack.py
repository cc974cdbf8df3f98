"""The path engine on traces small enough to know, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentkv_trace.engine import path_stack
from agentkv_trace.engine.path_stack import next_call_reuse, path_runs, path_runs_of_each
from agentkv_trace.engine.reuse import hits_at, writes_at
from agentkv_trace.errors import InputError
from benchmarks import workloads

NAMES = ("base", "base_chunks", "prompt_chunks", "path_chunks")


def tree(*rows: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return tree columns from rows of base, base_chunks, prompt_chunks, path_chunks."""
    columns = np.array(rows, np.int32).reshape(-1, 4).T
    return dict(zip(NAMES, columns, strict=True))


# Two sessions share a head of 10 chunks and take turns; the last call folds the first session.
TURNS = tree(
    (-1, 0, 100, 110),
    (0, 10, 200, 210),
    (0, 110, 120, 130),
    (1, 210, 220, 230),
    (3, 10, 50, 50),
)


def table(runs: Any) -> list[tuple[int, ...]]:
    columns = (runs.call, runs.owner, runs.depth, runs.first_distance, runs.length)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_runs_of_two_sessions() -> None:
    assert table(path_runs(**TURNS)) == [
        (1, 0, 0, 1, 10),
        (2, 1, 0, 1, 10),
        (2, 0, 10, 211, 100),
        (3, 2, 0, 1, 10),
        (3, 1, 10, 131, 200),
        (4, 3, 0, 1, 10),
    ]


def test_hits_and_writes_at_a_capacity() -> None:
    runs = path_runs(**TURNS)
    assert hits_at(runs, 10).tolist() == [0, 10, 10, 10, 10]
    assert hits_at(runs, 310).tolist() == [0, 10, 110, 190, 10]
    assert hits_at(runs, 10**9).tolist() == [0, 10, 110, 210, 10]
    small, all_ = writes_at(runs, 10), writes_at(runs, 10**9)
    assert (small.written, small.reused, small.evicted, small.resident) == (690, 10, 680, 0)
    assert small.evicted_before_reuse == 680 / 690
    assert (all_.written, all_.evicted) == (390, 0)
    assert writes_at(path_runs(**tree()), 5).evicted_before_reuse == 0.0
    for wrong in (hits_at, writes_at):
        with pytest.raises(InputError, match="-1 chunks"):
            wrong(runs, -1)


def test_next_call_reuse_of_sessions() -> None:
    # The first turns add 110 and 200 chunks, all read next; the fold reads none of call 2's 20.
    assert next_call_reuse([0, 1, 0, 1, 0], **TURNS) == 310 / 330
    assert next_call_reuse([7, 7 << 40, 7, 7 << 40, 7], **TURNS) == 310 / 330
    assert next_call_reuse([0, 1, 2, 3, 4], **TURNS) is None
    assert next_call_reuse([], **tree()) is None
    with pytest.raises(InputError, match="2 values for 5"):
        next_call_reuse([0, 1], **TURNS)


def test_an_unfinished_call_has_not_written_its_output() -> None:
    """A call reads another's output only once that has ended; its own base in time is a third."""
    calls = tree((-1, 0, 2, 5), (0, 3, 3, 3), (0, 4, 4, 4))
    times = {"t_start_us": [0, 1, 9], "t_end_us": [20, 2, 10]}
    assert path_runs(**calls).length.sum() == 3 + 4
    overlap = path_runs(**calls, timing="overlap", **times)
    assert table(overlap) == [(1, 0, 0, 1, 2), (2, 1, 0, 1, 3)]
    ended = path_runs(**calls, timing="overlap", t_start_us=[0, 1, 9], t_end_us=[9, 2, 10])
    assert table(ended) == [(1, 0, 0, 1, 2), (2, 0, 0, 1, 4)]


def test_traces_side_by_side_equal_one_by_one() -> None:
    traces = [TURNS, tree((-1, 0, 7, 7), (0, 7, 9, 9)), tree()]
    together = path_runs_of_each(traces, workers=2)
    assert [table(runs) for runs in together] == [table(path_runs(**trace)) for trace in traces]
    assert path_runs_of_each([]) == []


@pytest.mark.parametrize(
    "row",
    [
        (2, 5, 9, 9),  # base is no earlier call
        (-1, 5, 9, 9),  # shares with nothing
        (0, 9, 9, 12),  # more than the base has
        (0, 8, 7, 7),  # more than itself has
        (0, 5, 9, 8),  # prompt beyond the path
        (0, -1, 9, 9),
        (0, 0, -1, 9),
    ],
)
def test_rows_that_are_no_trace(row: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError, match="call 1 is no call of a trace"):
        path_runs(**tree((-1, 0, 8, 8), row))


def test_columns_that_are_none() -> None:
    good = tree((-1, 0, 8, 8))
    for name, bad, words in (
        ("base", [0.5], "base holds float64"),
        ("path_chunks", [[8]], "shape"),
        ("path_chunks", [2**40], "32 bits"),
        ("prompt_chunks", [8, 8], "differ in length: 1, 1, 2, 1"),
    ):
        with pytest.raises(InputError, match=words):
            path_runs(**(good | {name: bad}))
    with pytest.raises(InputError, match="timing"):
        path_runs(**good, timing="both")  # type: ignore[arg-type]


def test_times_that_are_none() -> None:
    two = tree((-1, 0, 8, 8), (0, 8, 9, 9))
    for start, end, words in (
        (None, None, "needs t_start_us"),
        ([0], [1], "1 and 1 values for 2 calls"),
        ([5, 4], [9, 9], "call 1 starts before"),
        ([4, 5], [9, 4], "call 1 ends before"),
    ):
        with pytest.raises(InputError, match=words):
            path_runs(**two, timing="overlap", t_start_us=start, t_end_us=end)


def test_one_call_takes_over_from_very_many() -> None:
    """Forks ever nearer to the head each leave one chunk, which the last call takes at once."""
    forks = 3000
    base = np.arange(-1, forks, dtype=np.int32)
    shared = np.concatenate(([0], np.arange(forks - 1, 0, -1), [forks]))
    base[-1] = 0
    path = np.full(forks + 1, forks)
    runs = path_runs(base, shared, path, path)
    mine = runs.call == forks
    assert runs.owner[mine].tolist() == list(range(forks - 1, -1, -1))
    assert runs.depth[mine].tolist() == list(range(forks))
    assert runs.length[mine].tolist() == [1] * forks
    # The last fork left its 3,000 chunks on top, the one before 2,999 of its own, and so on.
    above = np.cumsum(np.arange(forks, 0, -1)) - np.arange(forks, 0, -1)
    assert runs.first_distance[mine].tolist() == (above + 1).tolist()


def test_a_full_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, _ = workloads.agent_calls(300, agents=5, head=5, first=2, grow=8, fold_at=60, fold_to=20)
    whole = table(path_runs(**tree))
    grown = path_stack._grown
    sizes: list[int] = []

    def small(columns: tuple[Any, ...], size: int, used: int) -> tuple[Any, ...]:
        sizes.append(size)
        return grown(columns, size if columns else 2, used)

    monkeypatch.setattr(path_stack, "_grown", small)
    assert table(path_runs(**tree)) == whole
    assert len(sizes) > 3


def test_each_kernel_compiles_once() -> None:
    """Whatever the caller's types, kernels see one; views and int64 columns are no exception."""
    path_runs(**TURNS)
    if not hasattr(path_stack._advance, "signatures"):
        pytest.skip("the JIT is off")
    wide = {name: column.astype(np.int64)[::1] for name, column in TURNS.items()}
    path_runs(**{name: np.repeat(column, 2)[::2] for name, column in wide.items()})
    path_runs(**{n: np.frombuffer(column.tobytes(), np.int32) for n, column in TURNS.items()})
    path_runs(**TURNS, timing="overlap", t_start_us=range(5), t_end_us=range(5))
    assert len(path_stack._advance.signatures) == 1
