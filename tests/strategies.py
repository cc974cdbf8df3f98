"""Hypothesis strategies shared by property tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from naive import link


@dataclass(frozen=True)
class Calls:
    """Calls of a trace as explicit paths of ints, ordered by start.

    Two chunks are equal where their whole prefixes are; `prompts[r]` is the number of leading
    chunks of `paths[r]` that are prompt.
    """

    paths: list[list[int]]
    prompts: list[int]
    sessions: list[int]
    starts: list[int]
    ends: list[int]

    def tree(self) -> dict[str, Any]:
        """Return the tree columns of the trace, made by comparing all pairs."""
        base, base_chunks = link(self.paths)
        return {
            "base": np.array(base, np.int32),
            "base_chunks": np.array(base_chunks, np.int32),
            "prompt_chunks": np.array(self.prompts, np.int32),
            "path_chunks": np.array([len(path) for path in self.paths], np.int32),
        }

    def times(self) -> dict[str, Any]:
        """Return the times of the calls."""
        return {
            "t_start_us": np.array(self.starts, np.int64),
            "t_end_us": np.array(self.ends, np.int64),
        }


@st.composite
def calls(draw: st.DrawFn, most: int = 14) -> Calls:
    """Draw calls that extend, repeat, shorten or fork earlier paths, or share nothing.

    Prompts may be empty, end before what they share with others, or leave outputs; times
    overlap and are often equal. Two tokens make paths meet by chance as well.
    """
    paths: list[list[int]] = []
    tokens = st.lists(st.integers(0, 1), max_size=4)
    for _ in range(draw(st.integers(0, most))):
        path: list[int] = []
        if paths and draw(st.integers(0, 7)):
            earlier = paths[draw(st.integers(0, len(paths) - 1))]
            whole = draw(st.booleans())
            path = earlier if whole else earlier[: draw(st.integers(0, len(earlier)))]
        paths.append(path + draw(tokens))
    size = len(paths)
    prompts = [draw(st.integers(max(0, len(path) - 3), len(path))) for path in paths]
    prompts = [draw(st.sampled_from([length, length, 0])) for length in prompts]
    sessions = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    gaps = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    starts = [int(start) for start in np.cumsum(gaps)] if size else []
    ends = [start + draw(st.integers(0, 9)) for start in starts]
    return Calls(paths, prompts, sessions, starts, ends)
