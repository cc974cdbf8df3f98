"""A small trace that is made up: coding agents at work on one server, for `demo` and `warmup`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace.trace.ids import trace_from_ids

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace

AGENTS = 16
CHUNK_TOKENS = 16
_HEAD, _TASK, _NOTES = 450, 60, 110
"""Chunks of what all agents share (tools, system prompt), of a task, of the notes of a fold."""
_FOLD_AT = 4000
"""Chunks from which on a context is folded: 64,000 tokens."""
_START_US = 1_767_600_000_000_000


def demo_trace(agents: int = AGENTS, seed: int = 7) -> Trace:
    """Return a trace of so many agents, about 60 calls each, the same for the same seed.

    Each agent works off tasks on a context of its own behind a shared head: a call adds an answer
    and a tool's output, a task ends with a pause for the next one, and a context that has grown
    long is folded into notes.
    """
    # Plain Python's generator gives the same numbers whatever the version of numpy.
    chance = random.Random(seed)  # noqa: S311
    head = list(range(_HEAD))
    fresh = _HEAD
    session, starts, ends, prompts, outputs = [], [], [], [], []

    def new(chunks: int) -> list[int]:
        nonlocal fresh
        fresh += chunks
        return list(range(fresh - chunks, fresh))

    for agent in range(agents):
        now = chance.uniform(0, 120)
        context = head.copy()
        for _ in range(chance.randint(3, 5)):
            context += new(_TASK)
            for _ in range(chance.randint(10, 22)):
                if len(context) > _FOLD_AT:
                    context = head + new(_NOTES)
                answer = chance.randint(4, 24)
                took = 0.6 + answer * 0.25
                session.append(f"agent-{agent + 1:02}")
                starts.append(now)
                ends.append(now + took)
                prompts.append(context.copy())
                outputs.append(answer * CHUNK_TOKENS)
                now += took + chance.lognormvariate(0.7, 1.1)
                context += new(answer + min(int(chance.lognormvariate(3.2, 0.9)), 500))
            now += chance.lognormvariate(3.4, 0.8)

    def microseconds(times: list[float]) -> list[int]:
        return [_START_US + round(time * 1e6) for time in times]

    return trace_from_ids(
        session=session,
        agent="demo",
        t_start_us=microseconds(starts),
        t_end_us=microseconds(ends),
        prompt_tokens=[len(prompt) * CHUNK_TOKENS for prompt in prompts],
        output_tokens=outputs,
        ids=np.array([chunk for prompt in prompts for chunk in prompt], np.uint64),
        offsets=np.cumsum([0, *map(len, prompts)]),
        chunk_tokens=CHUNK_TOKENS,
        source="demo",
    )
