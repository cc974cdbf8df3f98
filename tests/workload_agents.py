"""A made workload of coding agents: known numbers in, a trace out, the same every time.

Each agent runs one task after another. A task's first prompt is a head that all tasks share and
something of its own; each further call appends what the last one said and what its tool returned.
Prompts therefore grow linearly from `first_tokens`, and over a task they are `mean_tokens` long.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace.trace.ids import trace_from_ids

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace

CHUNK = 16


def make_agents(
    agents: int = 16,
    *,
    mean_tokens: int = 33_228,
    calls_per_task: int = 40,
    tasks: int = 2,
    head_tokens: int = 6_400,
    seed: int = 7,
) -> Trace:
    """Return the trace of `agents` concurrent agents, `calls_per_task * tasks` calls each.

    Calls of one agent are a tool run apart, which takes from half to one and a half times its
    mean; agents begin at different depths of a task, so that prompts of all lengths are about.
    """
    draw = random.Random(seed)
    first = head_tokens + 2_000
    step = round(2 * (mean_tokens - first) / (calls_per_task - 1))
    sessions, starts, prompts, ids, offsets = [], [], [], [], [0]
    for agent in range(agents):
        now = draw.uniform(0, 30)
        # The first task is cut off at its front, so that agents are out of step.
        done = agent * calls_per_task // agents
        for task in range(tasks + 1):
            turns = range(done, calls_per_task) if task == 0 else range(calls_per_task)
            if task == tasks:
                turns = range(done)
            own = (1 + agent * (tasks + 1) + task) << 32
            for turn in turns:
                tokens = first + step * turn + (turn * 37 + agent * 11) % CHUNK
                chunks = tokens // CHUNK
                shared = head_tokens // CHUNK
                sessions.append(f"agent {agent} task {task}")
                starts.append(int(now * 1e6))
                prompts.append(tokens)
                ids.append(np.arange(chunks) + np.where(np.arange(chunks) < shared, 0, own))
                offsets.append(offsets[-1] + chunks)
                now += draw.uniform(15, 45)
    return trace_from_ids(
        session=sessions,
        t_start_us=starts,
        prompt_tokens=prompts,
        output_tokens=np.full(len(prompts), 300),
        ids=np.concatenate(ids).astype(np.uint64),
        offsets=offsets,
        chunk_tokens=CHUNK,
        agent="made",
    )
