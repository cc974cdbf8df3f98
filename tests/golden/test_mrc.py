"""`mrc --backend` on the golden lists as traces: the sums that the engines' own code gave."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.tiers import vllm
from agentkv_trace.tiers.hit_curve import backend_curve
from agentkv_trace.trace.ids import trace_from_ids
from golden.lists import read, results


def curve_and_hits(file, backend: str):
    """Return the backend's curve, the capacities, and the engine's hits in tokens at each."""
    calls, result = read(file)
    stream = calls.stream
    trace = trace_from_ids(
        session=["one"] * stream.calls,
        t_start_us=np.arange(stream.calls),
        prompt_tokens=stream.prompt_tokens,
        output_tokens=np.zeros(stream.calls, np.int64),
        ids=stream.ids,
        offsets=stream.offsets,
        chunk_tokens=stream.chunk_tokens,
        source="golden",
    )
    points = result["capacities"]
    sizes = np.array([point["usable_blocks"] for point in points])
    tokens = np.array([point["hit_tokens_total"] for point in points])
    return backend_curve(trace, backend, sizes.tolist()), sizes, tokens, stream


@pytest.mark.parametrize(
    ("backend", "file"),
    [
        pytest.param(backend, *param.values, id=f"{backend}-{param.id}", marks=param.marks)
        for backend, engine in (
            ("sglang", "sglang"),
            ("lmcache", "lmcache_inproc"),
            ("lmcache-server", "lmcache_mp_watermark"),
        )
        for param in results(engine)
    ],
)
def test_replayed_backends(backend: str, file) -> None:
    curve, sizes, tokens, stream = curve_and_hits(file, backend)
    ratio = tokens / stream.prompt_tokens.sum()
    np.testing.assert_allclose(curve.prefix_hit_ratio(sizes), ratio, rtol=1e-12)


@pytest.mark.parametrize("file", results("vllm"))
def test_vllm_in_one_pass_where_no_block_is_held_twice(file) -> None:
    curve, sizes, tokens, stream = curve_and_hits(file, "vllm")
    limit = vllm.duplicates_from(stream)
    exact = sizes < (np.inf if limit is None else limit)
    ratio = tokens / stream.prompt_tokens.sum()
    np.testing.assert_allclose(curve.prefix_hit_ratio(sizes)[exact], ratio[exact], rtol=1e-12)
