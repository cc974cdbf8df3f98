"""A trace behind a GPU pool and host tiers of several sizes, as a backend would serve it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.engine.reuse import hits_at
from agentkv_trace.errors import InputError
from agentkv_trace.tiers import hicache, lmcache, simple_offload, vllm, vllm_offload
from agentkv_trace.tiers.ideal import ideal_use
from agentkv_trace.tiers.stream import call_stream
from agentkv_trace.tiers.use import HostUse, TierUse
from agentkv_trace.trace.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from agentkv_trace.engine.path_stack import Runs
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.stream import CallStream
    from agentkv_trace.trace.store import Trace

MOST_REFERENCES = 400_000_000
"""Chunk references that a replay holds in memory at once, 8 bytes each."""

_ALIGNMENT = 4096
"""vLLM's offloading rounds each chunk up to whole pages of host memory, in bytes."""


class TraceTiers:
    """Replays one trace; what several replays share is made once.

    The GPU caches a call's prompt and, when later calls resend it, its output. LMCache stores
    prompts only.
    """

    def __init__(self, trace: Trace, runs: Runs | None = None) -> None:
        self.trace = trace
        self.chunk_tokens = trace.meta.chunk_tokens
        self._runs = runs
        self._streams: dict[tuple[int, bool], CallStream] = {}

    @cached_property
    def runs(self) -> Runs:
        """Return the path engine's runs, in order of start."""
        if self._runs is not None:
            return self._runs
        names = ("base", "base_chunks", "prompt_chunks", "path_chunks")
        return path_runs(*(self.trace.array(name) for name in names))

    @cached_property
    def prompt(self) -> NDArray[np.int64]:
        """Return the prompt tokens of each call, int64[calls]."""
        return self.trace.array("prompt_tokens").astype(np.int64)

    def host_chunk_tokens(self, backend: Backend) -> int:
        """Return the chunk of the host tier: the backend's own, where the trace can tell it."""
        own = backend.host_chunk_tokens
        return own if own and own % self.chunk_tokens == 0 else self.chunk_tokens

    def host_chunks(self, backend: Backend, rank_bytes: int, kv_bytes_per_token: int) -> int:
        """Return how many chunks fit a host tier of `rank_bytes` on each rank."""
        chunk = self.host_chunk_tokens(backend) * kv_bytes_per_token
        if backend.replay == "offload":
            chunk = -(-chunk // _ALIGNMENT) * _ALIGNMENT
        return rank_bytes // chunk

    def smallest_pool(self, backend: Backend) -> int:
        """Return the tokens a GPU pool must have for the backend to serve the longest call.

        The engine would never run such a call; the ideal stack has no such limit.
        """
        if backend.replay == "ideal":
            return 1
        largest = self._stream(self.chunk_tokens, outputs=True).largest_call
        return (largest + 1) * self.chunk_tokens

    def use(self, backend: Backend, pool_tokens: int, host_chunks: Sequence[int]) -> list[TierUse]:
        """Return what calls get at each host size; a size below 1 chunk is no tier.

        pool_tokens: all replicas together. Sizes run in parallel.
        Raises InputError for a pool too small for the longest call (`smallest_pool`) and for a
        trace too large to replay.
        """
        unit = self.host_chunk_tokens(backend)
        sizes = sorted({size for size in host_chunks if size >= 1})
        # vLLM keeps one block of its pool for itself.
        pool = max(
            pool_tokens // self.chunk_tokens - (backend.replay not in ("ideal", "hicache")), 1
        )
        gpu, rows = self._replay(backend, pool, sizes or [1])
        found: dict[int, TierUse] = {}
        for size, (on_gpu, restored, written, evicted) in zip(sizes, rows, strict=False):
            found[size] = TierUse(
                self.prompt, on_gpu, restored, written * unit, evicted * unit, size * unit
            )
        none = np.zeros_like(self.prompt)
        alone = TierUse(self.prompt, gpu, none, none, none, 0)
        return [found.get(size, alone) for size in host_chunks]

    def _replay(
        self, backend: Backend, pool: int, sizes: list[int]
    ) -> tuple[NDArray[np.int64], list[tuple[NDArray[np.int64], ...]]]:
        """Return the GPU's hits without a host tier, and per size four columns.

        GPU hits and restored in tokens, written and evicted in chunks of the host tier.
        """
        chunk = self.chunk_tokens
        if backend.replay == "ideal":
            alone = hits_at(self.runs, pool).astype(np.int64) * chunk
            return alone, self._inclusive(alone, ideal_use(self.runs, sizes), chunk)
        stream = self._stream(chunk, outputs=True)
        if backend.replay in ("in_process", "server"):
            alone = self._capped(vllm.pool_hits(stream, [pool])[0])
            unit = self.host_chunk_tokens(backend)
            prompts = self._stream(unit, outputs=False)
            host = (
                lmcache.server_use(prompts, sizes)
                if backend.replay == "server"
                else lmcache.in_process_use(prompts, sizes)
            )
            return alone, self._inclusive(alone, host, unit)
        if backend.replay == "offload":
            found = vllm_offload.offload_hits(stream, pool, sizes)
            gpu = np.broadcast_to(found.gpu, found.host.shape)
            out = np.stack([gpu, found.host, found.written, found.evicted], axis=1)
        elif backend.replay == "eager":
            out = simple_offload.eager_use(stream, pool, sizes)
        elif backend.replay == "lazy":
            out = simple_offload.lazy_use(stream, pool, sizes)
        else:
            out = hicache.hicache_use(stream, pool, sizes, backend.write_policy)
        alone = self._capped(out[0, 0])
        if backend.replay == "hicache":
            from agentkv_trace.tiers.sglang import radix_hits

            alone = self._capped(radix_hits(stream, [pool])[0])
        rows: list[tuple[NDArray[np.int64], ...]] = []
        for gpu_hits, restored, written, evicted in out:
            mine = self._capped(gpu_hits)
            rest = self._capped(gpu_hits + restored) - mine
            rows.append((mine, rest, written.astype(np.int64), evicted.astype(np.int64)))
        return alone, rows

    def _inclusive(
        self, alone: NDArray[np.int64], host: HostUse, unit: int
    ) -> list[tuple[NDArray[np.int64], ...]]:
        """Return the columns of a tier that looks up whole prompts: what exceeds the GPU's hit."""
        rows: list[tuple[NDArray[np.int64], ...]] = []
        for hits, written, evicted in zip(host.hits, host.written, host.evicted, strict=True):
            total = hits.astype(np.int64) * unit
            restored = np.maximum(total - alone, 0)
            rows.append((alone, restored, written.astype(np.int64), evicted.astype(np.int64)))
        return rows

    def _capped(self, hits: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return hits in tokens, full chunks of the prompt at most."""
        most = self.trace.array("prompt_chunks").astype(np.int64)
        return np.minimum(hits.astype(np.int64), most) * self.chunk_tokens

    def _stream(self, chunk_tokens: int, *, outputs: bool) -> CallStream:
        key = (chunk_tokens, outputs)
        if key not in self._streams:
            self._streams[key] = _call_stream(self.trace.coarsen(chunk_tokens), outputs=outputs)
        return self._streams[key]


def _call_stream(trace: Trace, *, outputs: bool) -> CallStream:
    """Return the calls of a trace by prompt, or by whole path with its length in tokens."""
    column = "path_chunks" if outputs else "prompt_chunks"
    references = int(trace.array(column).sum(dtype="int64"))
    if references > MOST_REFERENCES:
        raise InputError(
            f"{references / 1e6:,.0f} M chunk references are too many to replay; use --backend "
            "ideal, which needs none of them, or filter the trace"
        )
    block = Paths(trace).numbers(0, len(trace), outputs=outputs)
    prompt = trace.array("prompt_tokens").astype(np.int64)
    tokens: ArrayLike = prompt
    if outputs:
        # The last output token is sampled and never stored.
        stored = prompt + np.maximum(trace.array("output_tokens").astype(np.int64) - 1, 0)
        tail = stored % trace.meta.chunk_tokens
        tokens = trace.array("path_chunks").astype(np.int64) * trace.meta.chunk_tokens + tail
    return call_stream(block.chunks, block.offsets, tokens, trace.meta.chunk_tokens)
