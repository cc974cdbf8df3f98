from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.trace.ids import trace_from_ids

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace


def build(*paths: list[int], **columns: object) -> Trace:
    """A trace of one call per path, in chunks of 4 tokens, a second apart."""
    given: dict[str, object] = {
        "session": ["one"] * len(paths),
        "t_start_us": [1_000_000 * n for n in range(len(paths))],
        "prompt_tokens": [4 * len(path) for path in paths],
        "output_tokens": [0] * len(paths),
        "ids": np.array([i for path in paths for i in path], np.uint64),
        "offsets": np.cumsum([0, *map(len, paths)]),
        "chunk_tokens": 4,
    }
    return trace_from_ids(**given | columns)


def test_equal_ids_are_equal_chunks_only_behind_equal_prefixes() -> None:
    trace = build([1, 2, 3], [9, 2, 3], [1, 2, 4])
    assert trace.array("base").tolist() == [-1, -1, 0]
    assert trace.array("base_chunks").tolist() == [0, 0, 2]
    assert trace.new_chunks()[0].tolist() == [0, 3, 6, 7]


def test_the_id_of_a_partial_last_chunk_is_dropped() -> None:
    trace = build([1, 2], [1, 2, 3], prompt_tokens=[7, 12])
    assert trace.array("prompt_chunks").tolist() == [1, 3]
    assert trace.array("base_chunks").tolist() == [0, 1]


def test_calls_of_different_scopes_share_nothing() -> None:
    trace = build([1], [1], [1], scope=np.array([5, 6, 5], np.uint64))
    assert trace.array("base").tolist() == [-1, -1, 0]


def test_keys_do_not_depend_on_other_calls() -> None:
    one, many = build([1, 2]), build([7], [8, 1], [1, 2])
    assert one.new_chunks()[1].tolist() == many.new_chunks()[1][-2:].tolist()


def test_keys_of_small_ids_are_spread_over_all_bits() -> None:
    ids = np.arange(100_000, dtype=np.uint64)
    offsets = np.arange(0, ids.size + 1, 2)
    trace = trace_from_ids(
        session=[str(n) for n in range(offsets.size - 1)],
        t_start_us=np.zeros(offsets.size - 1, np.int64),
        prompt_tokens=np.full(offsets.size - 1, 2),
        output_tokens=np.zeros(offsets.size - 1, np.int64),
        ids=ids,
        offsets=offsets,
        chunk_tokens=1,
    )
    keys = trace.new_chunks()[1]
    assert np.unique(keys).size == ids.size
    share = [(keys >> np.uint64(bit) & np.uint64(1)).mean() for bit in range(64)]
    # Six standard deviations of a fair coin.
    assert max(abs(s - 0.5) for s in share) < 3 / np.sqrt(ids.size)
    for shift in (0, 16, 32, 48):
        buckets = np.bincount((keys >> np.uint64(shift) & np.uint64(0xFFFF)).astype(int))
        assert buckets.max() < 15


def test_rows_are_sorted_by_start_then_session_then_index() -> None:
    trace = build(
        [1],
        [2],
        [3],
        [4],
        session=["b", "a", "b", "a"],
        t_start_us=[5, 5, 5, 1],
        index=[1, 1, 0, 0],
    )
    assert trace.frame()["session"].to_list() == ["a", "a", "b", "b"]
    assert trace.array("index").tolist() == [0, 1, 0, 1]
    assert trace.array("t_start_us").tolist() == [1, 5, 5, 5]


def test_starts_are_clamped_in_sessions_whose_order_is_given() -> None:
    trace = build(
        [1],
        [2],
        [3],
        session=["a", "b", "a"],
        t_start_us=[9, 3, 2],
        t_end_us=[10, 3, 4],
        index=[0, 0, 1],
    )
    assert trace.array("t_start_us").tolist() == [3, 9, 9]
    assert trace.array("t_end_us").tolist() == [3, 10, 9]
    assert trace.array("index").tolist() == [0, 0, 1]


def test_without_an_order_calls_are_counted_by_time() -> None:
    trace = build([1, 2, 3], [1], [1, 2], t_start_us=[9, 2, 5])
    assert trace.array("index").tolist() == [0, 1, 2]
    assert trace.array("prompt_chunks").tolist() == [1, 2, 3]


def test_a_prompt_that_does_not_go_on_is_a_fold() -> None:
    trace = build([1, 2], [1, 2, 3], [1, 9], [1, 9], kind=["turn", "turn", "turn", "turn"])
    assert trace.frame()["kind"].to_list() == ["turn", "turn", "fold", "turn"]
    kept = build([1, 2], [5], kind=["subagent", "fork"])
    assert kept.frame()["kind"].to_list() == ["subagent", "fork"]


def test_what_a_foreign_trace_does_not_tell() -> None:
    trace = build([1], model=None, agent="them", source="mooncake")
    row = trace.frame().row(0, named=True)
    assert (row["usage_source"], row["fidelity"]) == ("none", "exact")
    assert (row["agent"], row["source"]) == ("them", "mooncake")
    assert row["model"] is row["parent_session"] is row["logged_prompt_tokens"] is None
    assert trace.meta.tokenizer == {"name": "foreign"}


def test_a_coarser_chunk_is_shared_where_all_its_chunks_are() -> None:
    trace = build([1, 2, 3, 4], [1, 2, 3, 9, 5]).coarsen(8)
    assert trace.array("base_chunks").tolist() == [0, 1]
    assert trace.array("prompt_chunks").tolist() == [2, 2]


def test_a_salt_hides_the_keys_and_keeps_the_sharing() -> None:
    plain, salted = build([1, 2], [1, 3]), build([1, 2], [1, 3], salt=b"secret")
    assert salted.meta.salted
    assert plain.array("base_chunks").tolist() == salted.array("base_chunks").tolist()
    assert set(plain.new_chunks()[1]).isdisjoint(salted.new_chunks()[1])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"chunk_tokens": 0}, "chunk_tokens is 0"),
        ({"prompt_tokens": [20]}, "call 0 has 2 chunk ids, but its 20 prompt tokens make 5"),
        ({"prompt_tokens": [4]}, "call 0 has 2 chunk ids"),
        ({"prompt_tokens": [-8]}, "prompt_tokens is negative"),
        ({"prompt_tokens": [2**40]}, "prompt_tokens does not fit 32 bits"),
        ({"output_tokens": [1, 2]}, "output_tokens has 2 values for 1 calls"),
        ({"output_tokens": [1.5]}, "output_tokens must be one row of integers"),
        ({"t_start_us": [-1]}, "t_start_us is negative"),
        ({"offsets": [0, 1, 2]}, "offsets has shape"),
        ({"offsets": [0, 3]}, "offsets must rise"),
        ({"kind": ["turn", "turn"]}, "has 2 values for 1 calls"),
        ({"kind": ["nap"]}, "'nap' is none of turn"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build([1, 2], **columns)
