"""Hits by time to live against a table of last touches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.engine.ttl import ttl_hits
from agentkv_trace.errors import InputError
from strategies import Calls, calls


@settings(max_examples=250)
@given(drawn=calls(), lifetimes=st.lists(st.integers(0, 12), max_size=3))
def test_hits_equal_a_replay(drawn: Calls, lifetimes: list[int]) -> None:
    found = ttl_hits(path_runs(**drawn.tree()), np.array(drawn.starts, np.int64), lifetimes)
    assert found.shape == (len(lifetimes), len(drawn.paths))
    assert found.tolist() == [naive.ttl_replay(drawn, lifetime) for lifetime in lifetimes]


@settings(max_examples=250)
@given(drawn=calls(), lifetimes=st.lists(st.integers(0, 12), max_size=3))
def test_hits_of_overlapping_calls_equal_a_replay(drawn: Calls, lifetimes: list[int]) -> None:
    runs = path_runs(**drawn.tree(), timing="overlap", **drawn.times())
    found = ttl_hits(runs, drawn.starts, lifetimes, t_end_us=drawn.ends)
    assert found.tolist() == [naive.ttl_replay(drawn, life, overlap=True) for life in lifetimes]


@settings(max_examples=100)
@given(drawn=calls())
def test_without_an_end_of_life_all_that_was_seen_hits(drawn: Calls) -> None:
    runs = path_runs(**drawn.tree())
    (found,) = ttl_hits(runs, np.array(drawn.starts, np.int64), [10**15])
    seen = np.zeros(len(drawn.paths), np.int64)
    np.add.at(seen, runs.call, runs.length)
    assert found.tolist() == seen.tolist()


def test_bad_input() -> None:
    columns = {name: np.array([0, 2], np.int32) for name in ("prompt_chunks", "path_chunks")}
    columns |= {"base": np.array([-1, -1], np.int32), "base_chunks": np.zeros(2, np.int32)}
    columns["prompt_chunks"][0] = columns["path_chunks"][0] = 2
    columns["base"][1], columns["base_chunks"][1] = 0, 2
    runs = path_runs(**columns)
    assert ttl_hits(runs, [0, 5], [4, 5]).tolist() == [[0, 0], [0, 2]]
    for starts, lifetimes, words in (
        ([5, 0], [1], "must ascend"),
        ([0], [1], "1 starts"),
        ([0, 5], [-1], "0 or more"),
        ([[0, 5]], [1], "one row"),
    ):
        with pytest.raises(InputError, match=words):
            ttl_hits(runs, starts, lifetimes)
    for ends in ([0], [0, 4]):
        with pytest.raises(InputError, match="none before its start"):
            ttl_hits(runs, [0, 5], [1], t_end_us=ends)
