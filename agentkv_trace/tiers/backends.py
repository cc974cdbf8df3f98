"""The backends: what each is called, how it is set, and which model replays it.

A literal table; `trace_tiers.py` runs the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentkv_trace.profiles.names import resolve

Replay = Literal["ideal", "offload", "eager", "lazy", "in_process", "server", "hicache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One cache backend.

    `inclusive`: the host repeats what the GPU holds, so it adds nothing until it is larger.
    `host_chunk_tokens`: None takes the engine's block. `model`: which model gives the numbers,
    and `proof`: what it was compared with.
    """

    id: str
    name: str
    replay: Replay
    inclusive: bool
    connector: str
    model: str
    proof: str
    host_chunk_tokens: int | None = None
    write_policy: str = ""


_UNPROVED = "written from the engine's rules, not compared with recorded hits"
_PROVED = "equal call by call to the engine's own code at one call at a time"

BACKENDS: dict[str, Backend] = {
    backend.id: backend
    for backend in (
        Backend(
            id="ideal",
            name="ideal LRU tiers",
            replay="ideal",
            inclusive=True,
            connector="vllm-async",
            model="one LRU stack for both tiers (path engine)",
            proof="exact for the stack; engines come out at or below it",
        ),
        Backend(
            id="vllm",
            name="vLLM, native offloading",
            replay="offload",
            inclusive=True,
            connector="vllm-async",
            model="vLLM's block pool and its offloading manager, replayed per size",
            proof=_PROVED,
        ),
        Backend(
            id="vllm-simple",
            name="vLLM, simple offloading",
            replay="eager",
            inclusive=True,
            connector="vllm-async",
            model="vLLM's block pool and a second pool in host memory, replayed per size",
            proof=f"pool: {_PROVED}; host: {_UNPROVED}",
        ),
        Backend(
            id="vllm-lazy",
            name="vLLM, simple offloading, lazy",
            replay="lazy",
            inclusive=False,
            connector="vllm-async",
            model="LRU pool whose evicted chunks go to a second pool, replayed per size",
            proof=_UNPROVED,
        ),
        Backend(
            id="lmcache",
            name="LMCache in vLLM's process",
            replay="in_process",
            inclusive=True,
            connector="lmcache",
            model="vLLM's block pool and LMCache's in-process backend, replayed per size",
            proof=f"each tier: {_PROVED}",
            host_chunk_tokens=256,
        ),
        Backend(
            id="lmcache-server",
            name="LMCache server",
            replay="server",
            inclusive=True,
            connector="lmcache-server",
            model="vLLM's block pool and LMCache's server with its watermark (looked at after each "
            "call, not each second), replayed per size",
            proof=f"each tier: {_PROVED}",
            host_chunk_tokens=256,
        ),
        Backend(
            id="sglang",
            name="SGLang, write-through",
            replay="hicache",
            inclusive=True,
            connector="sglang",
            model="SGLang's radix tree with host copies, replayed per size",
            proof=f"tree: {_PROVED}; host: {_UNPROVED}",
            write_policy="write_through",
        ),
        Backend(
            id="sglang-selective",
            name="SGLang, write-through selective",
            replay="hicache",
            inclusive=True,
            connector="sglang",
            model="SGLang's radix tree with host copies of what is met twice, replayed per size",
            proof=f"tree: {_PROVED}; host: {_UNPROVED}",
            write_policy="write_through_selective",
        ),
        Backend(
            id="sglang-write-back",
            name="SGLang, write-back",
            replay="hicache",
            inclusive=False,
            connector="sglang",
            model="SGLang's radix tree whose evicted nodes go to host memory, replayed per size",
            proof=f"tree: {_PROVED}; host: {_UNPROVED}",
            write_policy="write_back",
        ),
    )
}


def find_backend(name: str) -> Backend:
    """Return the backend that `name` means. Raises InputError where it means none or several."""
    return BACKENDS[resolve(name, dict.fromkeys(BACKENDS, ()), "backend")]
