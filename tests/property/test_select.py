from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from agentkv_trace.errors import InputError
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.select import Filter, merge, select
from made import call, node

CALLS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=5)),
    max_size=12,
)


def built(calls: list[tuple[str, int, list[int]]], prefix: str = ""):
    builder = TraceBuilder()
    for session, start, words in calls:
        builder.add(call(prefix + session, node(words), start))
    return builder.finish({"codex": {"calls": len(calls)}}, fixed_bytes_per_token=4.0)


def paths(trace) -> list[list[int]]:
    """Return each call's keys in full, by following bases."""
    offsets, keys = trace.new_chunks()
    found: list[list[int]] = []
    for row in range(len(trace)):
        base, shared = trace.array("base")[row], trace.array("base_chunks")[row]
        before = found[base][:shared] if base >= 0 else []
        found.append(before + keys[offsets[row] : offsets[row + 1]].tolist())
    return found


def assert_linked(trace) -> None:
    base, shared = naive.link(paths(trace))
    assert trace.array("base").tolist() == base
    assert trace.array("base_chunks").tolist() == shared
    assert trace.array("call").tolist() == list(range(len(trace)))


@given(CALLS, st.data())
def test_what_is_kept_has_its_own_bases(calls, data) -> None:
    whole = built(calls)
    keep = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(calls), max_size=len(calls))), bool
    )
    part = select(whole, keep)
    assert paths(part) == [path for path, kept in zip(paths(whole), keep, strict=True) if kept]
    assert_linked(part)


@given(CALLS, CALLS)
def test_merged_traces_are_the_trace_of_all_calls(one, two) -> None:
    merged = merge([built(one, "x"), built(two, "y")])
    together = built([("x" + s, t, w) for s, t, w in one] + [("y" + s, t, w) for s, t, w in two])
    assert merged.table.to_pydict() == together.table.to_pydict()
    assert paths(merged) == paths(together)
    assert_linked(merged)
    assert merged.meta.sources == {"codex": {"calls": len(one) + len(two)}}


@given(CALLS)
def test_a_trace_merged_with_itself_is_itself(calls) -> None:
    trace = built(calls)
    merged = merge([trace, trace])
    assert merged.table.to_pydict() == trace.table.to_pydict()
    assert paths(merged) == paths(trace)


def test_traces_of_other_chunks_do_not_merge() -> None:
    one = built([("a", 0, [1])])
    two = TraceBuilder()
    two.add(call("b", node([1])))
    with pytest.raises(InputError, match=r"tokenizer is .*bytes_per_chunk"):
        merge([one, two.finish({}, fixed_bytes_per_token=3.0)])


def test_filters() -> None:
    builder = TraceBuilder()
    builder.add(call("aa", node([1]), 10, agent="codex", model="m-large"))
    builder.add(call("ab", node([2]), 20, agent="codex:review", model=None))
    builder.add(call("b", node([3]), 30, agent="codex", model="m-small"))
    trace = builder.finish({})

    def kept(**conditions) -> list[bool]:
        return Filter(**conditions).mask(trace).tolist()

    assert kept() == [True, True, True]
    assert kept(since_us=20) == [False, True, True]
    assert kept(until_us=20) == [True, False, False]
    assert kept(sessions=("a*",)) == [True, True, False]
    assert kept(agents=("codex",)) == [True, False, True]
    assert kept(models=("m-*",)) == [True, False, True]
    assert kept(models=("m-*",), agents=("codex:*",)) == [False, False, False]
