"""How well rebuilt prompts agree with what the provider logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace

CACHED_POINTS = 0.05
"""A provider may seem to reuse so much more of a prompt than was found shared, since tokens are
counted in two ways."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One source's calls with logged usage, in tokens.

    A residual is logged less rebuilt prompt length. `cached_beyond` counts calls of which the
    provider reused more than any earlier prompt in the trace shares with them: either the
    prompt is not rebuilt right, or calls are missing that the provider has seen.
    """

    calls: int
    median_residual: float
    worst_residual: int
    cached_beyond: int


def agreement(trace: Trace) -> dict[str, Agreement]:
    """Return the agreement of each source that has logged usage."""
    codes, names = trace.codes("source")
    logged = trace.array("logged_prompt_tokens").astype(np.int64)
    cached = trace.array("logged_cached_tokens").astype(np.int64)
    prompt = trace.array("prompt_tokens").astype(np.int64)
    shared = np.minimum(trace.array("base_chunks"), trace.array("prompt_chunks"))
    share = shared * trace.meta.chunk_tokens / np.maximum(prompt, 1)
    # The last chunk that is not full may be reused too.
    most = share + trace.meta.chunk_tokens / np.maximum(prompt, 1) + CACHED_POINTS
    beyond = cached > most * np.maximum(logged, 1)
    found = {}
    for code, name in enumerate(names):
        mine = (codes == code) & (logged >= 0)
        if mine.any():
            residual = (logged - prompt)[mine]
            found[name] = Agreement(
                int(mine.sum()),
                float(np.median(residual)),
                int(residual[np.argmax(np.abs(residual))]),
                int(beyond[mine].sum()),
            )
    return found
