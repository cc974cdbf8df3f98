"""Curves of groups of calls inside one shared cache: by session, agent, model, source, time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace.engine.cumulative import Cumulative
from agentkv_trace.engine.curve import MissRatioCurve
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.engine.path_stack import Runs


def curves_by(
    runs: Runs,
    group: NDArray[np.integer],
    *,
    chunk_tokens: int,
    prompt_tokens: NDArray[np.integer],
    prompt_chunks: NDArray[np.integer],
    new_chunks: NDArray[np.integer],
) -> list[MissRatioCurve]:
    """Return the curve of each group of calls, all of them sharing one cache.

    `group` is int[calls], codes from 0 (a mask is one of two codes); calls below 0 are in no
    curve but still use the cache. Curve k counts what the calls of group k look up, so hits
    and references of all groups add up to the whole. `new_chunks` is
    `path_chunks - base_chunks`: the `unique_chunks` of a group are those its calls touched
    first of all.

    Raises:
        InputError: Columns differ in length.
    """
    codes = np.asarray(group).astype(np.int64)
    columns = [np.asarray(c) for c in (prompt_tokens, prompt_chunks, new_chunks)]
    if any(column.shape != codes.shape for column in columns):
        raise InputError(f"groups of {codes.size} calls, but columns differ in length")
    groups = int(codes.max()) + 1 if codes.size else 0
    inside = codes >= 0
    calls = np.bincount(codes[inside], minlength=groups)
    sums = [_sums(codes[inside], column[inside], groups) for column in columns]
    of_run = codes[runs.call]
    order = np.argsort(of_run, kind="stable")
    bounds = np.searchsorted(of_run[order], np.arange(groups + 1))
    curves = []
    for k in range(groups):
        mine = order[bounds[k] : bounds[k + 1]]
        hits = Cumulative.of_runs(runs.first_distance[mine], runs.length[mine])
        tokens, references, unique = (int(column[k]) for column in sums)
        count = int(calls[k])
        curves.append(
            MissRatioCurve(chunk_tokens, count, tokens, references, unique, hits, hits, "path")
        )
    return curves


def _sums(codes: NDArray[np.int64], values: NDArray[np.integer], groups: int) -> NDArray[np.int64]:
    found = np.zeros(groups, np.int64)
    np.add.at(found, codes, values)
    return found


def window_codes(t_start_us: NDArray[np.integer], width_us: int) -> NDArray[np.int64]:
    """Return the time window of each call, int64[calls], counted from the first call's start.

    Raises:
        InputError: The width is not positive.
    """
    if width_us <= 0:
        raise InputError(f"a time window of {width_us} microseconds holds nothing")
    start = np.asarray(t_start_us).astype(np.int64)
    if start.size:
        start -= start.min()
    return start // width_us
