"""Chunk references per second of each tier simulator, on one core; compare with the plain twin.

Each replays a stream like that of agents at one capacity; the one-pass models give all capacities.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import naive
from agentkv_trace.tiers import lmcache, lru, sglang, vllm, vllm_offload
from agentkv_trace.tiers.stream import call_stream

CHUNK = 16


@cache
def agents(count=16, turns=60, head=500, growth=50):
    """Return a stream in which each call resends its agent's prompt and adds to it."""
    random = np.random.default_rng(1)
    paths = [np.arange(head)] * count
    sent, tokens, unique = [], [], head
    for _ in range(count * turns):
        agent, new = random.integers(count), random.integers(1, 2 * growth)
        paths[agent] = np.concatenate([paths[agent], np.arange(unique, unique + new)])
        unique += new
        sent.append(paths[agent])
        tokens.append(CHUNK * len(paths[agent]) + random.integers(CHUNK))
    lengths = [len(path) for path in sent]
    return call_stream(np.concatenate(sent), np.cumsum([0, *lengths]), tokens, CHUNK)


def half(stream):
    """Return a capacity half-way between the largest call and everything."""
    return (stream.largest_call + stream.unique) // 2


SIMULATORS = {
    "one pass, plain stack": lambda stream: lru.stack_hits(stream, [half(stream)]),
    "one pass, vllm": lambda stream: vllm.one_pass_hits(stream, [half(stream)]),
    "vllm": lambda stream: vllm.pool_hits(stream, [half(stream)]),
    "vllm offload": lambda stream: vllm_offload.offload_hits(
        stream, stream.largest_call, [half(stream)]
    ),
    "sglang": lambda stream: sglang.radix_hits(stream, [half(stream)]),
    "lmcache in process": lambda stream: lmcache.in_process_hits(stream, [half(stream)]),
    "lmcache server": lambda stream: lmcache.server_hits(stream, [half(stream)]),
}


@pytest.mark.parametrize("name", SIMULATORS)
def test_references_per_second(benchmark, name):
    stream = agents()
    SIMULATORS[name](stream)  # compile
    benchmark.pedantic(SIMULATORS[name], args=(stream,), rounds=7)
    rate = len(stream.ids) / benchmark.stats.stats.min
    benchmark.extra_info["references"] = len(stream.ids)
    benchmark.extra_info["references_per_second"] = round(rate)


def test_plain_python_reference(benchmark):
    """The named reference: one plain replay of LMCache's in-process order in Python."""
    stream = agents()
    calls = [
        (path.tolist(), int(tokens))
        for path, tokens in zip(
            np.split(stream.ids, stream.offsets[1:-1]), stream.prompt_tokens, strict=True
        )
    ]
    replay = naive.lmcache_in_process_hits
    hits = benchmark.pedantic(replay, args=(calls, CHUNK, half(stream)), rounds=2)
    assert hits == lmcache.in_process_hits(stream, [half(stream)])[0].tolist()
    rate = len(stream.ids) / benchmark.stats.stats.min
    benchmark.extra_info["references_per_second"] = round(rate)
