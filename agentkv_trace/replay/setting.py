"""The deployment that a replay runs on: sizes of its tiers and how long everything takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from agentkv_trace.advise.economics import prefill_s
from agentkv_trace.advise.machine import block_bytes, cost_bands, machine
from agentkv_trace.errors import InputError
from agentkv_trace.profiles.connectors import find_connector
from agentkv_trace.profiles.flops import prefill_cost
from agentkv_trace.tiers.backends import find_backend
from agentkv_trace.tiers.capacity import BATCHED_TOKENS, WEIGHT_BYTES, kv_bytes_per_token, kv_pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.advise.economics import CostBands, Costs, Machine
    from agentkv_trace.profiles.connectors import Connector
    from agentkv_trace.profiles.flops import PrefillCost
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.capacity import Deployment

MAX_NUM_SEQS = 256
"""vLLM's default of calls that run at a time."""

MOST_REPLICAS = 1024

MEMORY_SHARE = 0.7
"""Assumed share of the GPU's memory bandwidth that decoding reaches."""

STEP_S = 0.005
"""Assumed fixed time of an engine's step: scheduling, launches, communication."""

KV_BITS = {"int4": 4.5, "int2": 2.5}
"""Bits per KV element of quantised caches, scales included (a byte for sixteen elements)."""

KV_DTYPES = ("bf16", "fp8", *KV_BITS)
IN_STEP = ("lmcache", "hicache", "in_process")
"""Backends (kinds of replay) that restore within the engine's step, not beside it."""

_ALIGNMENT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long things take, in seconds; the default takes no time at all.

    cost, machine, mfu: prefill, None for none. dense_s, experts_s: to read the weights that every
    step needs, and those of all experts, of which a batch of b calls reads 1 - (1 - share)^b.
    context_token_s: to read the keys and values of one token. step_s: fixed per step. restore_s,
    restore_token_s: to load from host, in the engine's step (`in_step`, hidden by a share `overlap`
    of the call's computing) or beside it. write_token_s: what a step feels of a store.
    store_sync_s: wait of each prefill step that stores.
    """

    cost: PrefillCost | None = None
    machine: Machine | None = None
    mfu: float = 1.0
    dense_s: float = 0.0
    experts_s: float = 0.0
    expert_share: float = 1.0
    context_token_s: float = 0.0
    step_s: float = 0.0
    restore_s: float = 0.0
    restore_token_s: float = 0.0
    in_step: bool = False
    overlap: float = 0.0
    write_token_s: float = 0.0
    store_sync_s: float = 0.0

    def prefill(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Return the seconds to compute a prompt up to each position (tokens)."""
        if self.cost is None or self.machine is None:
            return positions * 0.0
        seconds: NDArray[Any] = prefill_s(self.cost, 0, positions, self.machine, self.mfu)
        return seconds

    def weights(self, batches: NDArray[Any]) -> NDArray[Any]:
        """Return the seconds to read the weights for a step of so many decoding calls."""
        seconds: NDArray[Any] = self.dense_s + self.experts_s * (
            1 - (1 - self.expert_share) ** batches
        )
        return seconds


INSTANT = Speed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One replica's tiers and the rules of the engine; all replicas are alike.

    pool_tokens: GPU tier, None for one that never fills. host_chunks: host tier of one replica, in
    chunks of host_chunk_tokens; 0 for none. backend: whose rules the tiers follow.
    write_filter: the paper's write admission; with `fixed`, calls that add more than `kappa` chunks
    of filter_tokens are not stored, with `conditioned` only while the tier overflows.
    watermark_tick_s: how often LMCache's server looks at its watermark; 0: after each call.
    skip_last, tails, outputs: whether the last prompt token is always computed, and whether
    partial chunks and outputs that are never sent again take room on the GPU.
    """

    backend: Backend
    pool_tokens: int | None = None
    host_chunks: int = 0
    host_chunk_tokens: int = 0
    speed: Speed = INSTANT
    replicas: int = 1
    routing: str = "sticky"
    max_num_seqs: int = MAX_NUM_SEQS
    step_tokens: int = BATCHED_TOKENS
    write_filter: str = "off"
    kappa: int = 8
    filter_tokens: int = 1024
    watermark_tick_s: float = 1.0
    skip_last: bool = True
    tails: bool = True
    outputs: bool = True

    def check(self) -> None:
        """Raise InputError for values that cannot be meant."""
        from agentkv_trace.replay.work import ROUTINGS, WRITE_FILTERS

        for option, value, known in (
            ("--routing", self.routing, ROUTINGS),
            ("--write-filter", self.write_filter, WRITE_FILTERS),
        ):
            if value not in known:
                raise InputError(f"{option} {value}: use one of {', '.join(known)}")
        for option, number in (
            ("--dp", self.replicas),
            ("--max-num-seqs", self.max_num_seqs),
            ("--max-num-batched-tokens", self.step_tokens),
        ):
            if number < 1:
                raise InputError(f"{option} {number}: must be at least 1")
        if self.kappa < 0:
            raise InputError(f"--kappa {self.kappa}: must be 0 or more")
        if self.replicas > MOST_REPLICAS:
            raise InputError(f"--dp {self.replicas}: must be at most {MOST_REPLICAS}")
        if self.pool_tokens is not None and self.pool_tokens < 1:
            raise InputError(f"a GPU pool of {self.pool_tokens} tokens: give 1 or more")
        if self.host_chunks < 0:
            raise InputError(f"a host tier of {self.host_chunks} chunks: give 0 or more")


def ideal(pool_tokens: int | None, host_tokens: int = 0, chunk_tokens: int = 16) -> Setting:
    """Return plain LRU tiers without rules of any engine, in no time."""
    return Setting(
        backend=find_backend("ideal"),
        pool_tokens=pool_tokens,
        host_chunks=host_tokens // chunk_tokens,
        skip_last=False,
        tails=False,
        outputs=False,
    )


def quantised(model: Model, deployment: Deployment, kv_dtype: str) -> Deployment:
    """Return the deployment with a KV type that may be of 4 or 2 bits. Raises InputError."""
    if kv_dtype in KV_BITS and deployment.kv_bytes_per_token is None:
        bf16 = kv_bytes_per_token(model, replace(deployment, kv_dtype="bf16"))
        size = ceil(bf16 * KV_BITS[kv_dtype] / 16)
        return replace(deployment, kv_dtype="bf16", kv_bytes_per_token=size)
    return replace(deployment, kv_dtype="bf16" if kv_dtype in KV_BITS else kv_dtype)


def setting_for(
    model: Model,
    gpu: Gpu,
    deployment: Deployment,
    *,
    backend: str = "vllm",
    connector: str | None = None,
    host_bytes: int = 0,
    host_chunk_tokens: int | None = None,
    chunk_tokens: int = 16,
    gpus_per_link: int = 1,
    costs: Costs | None = None,
    **rules: Any,
) -> Setting:
    """Return the setting of a model on GPUs, by profiles and formulas.

    host_bytes: host tier over all ranks of all replicas. chunk_tokens: of the trace; the host tier
    has the backend's own where the trace can tell it, or `host_chunk_tokens`, a multiple. costs: in
    place of the middle of the profile's bands. rules: fields of `Setting`.
    Raises InputError where the model does not fit, is not sized per token, or the GPU has no host
    link for a host tier.
    """
    kind = find_backend(backend)
    pool = kv_pool(model, gpu, deployment)
    rank_bytes = pool.kv_bytes_per_token
    moves = find_connector(connector or kind.connector)
    unit = host_chunk_tokens or kind.host_chunk_tokens or chunk_tokens
    if unit % chunk_tokens:
        if host_chunk_tokens:
            raise InputError(
                f"--host-chunk-tokens {unit}: must be a multiple of the trace's {chunk_tokens}"
            )
        unit = chunk_tokens
    bands = cost_bands(
        gpu,
        deployment,
        moves,
        block_bytes(model, moves, unit, rank_bytes),
        gpus_per_link,
    )
    if bands is None and host_bytes:
        raise InputError(
            f"{gpu.name} has unified memory: a host tier would take from the same DRAM; "
            "use --host-size 0"
        )
    chunk_bytes = unit * rank_bytes
    if kind.replay == "offload":
        chunk_bytes = -(-chunk_bytes // _ALIGNMENT) * _ALIGNMENT
    engine = kind.replay != "ideal"
    return Setting(
        backend=kind,
        pool_tokens=pool.tokens,
        host_chunks=host_bytes // deployment.ranks // chunk_bytes,
        host_chunk_tokens=unit,
        speed=_speed(model, gpu, deployment, rank_bytes, costs, bands, moves, kind),
        replicas=deployment.dp,
        skip_last=engine,
        tails=engine,
        **rules,
    )


def _speed(
    model: Model,
    gpu: Gpu,
    deployment: Deployment,
    rank_bytes: int,
    costs: Costs | None,
    bands: CostBands | None,
    moves: Connector,
    kind: Backend,
) -> Speed:
    one = machine(gpu, replace(deployment, dp=1), rank_bytes, moves)
    known = costs or (bands.mid() if bands else None)
    memory = gpu.memory_gbps * 1e9 * MEMORY_SHARE
    size = WEIGHT_BYTES[deployment.weight_dtype]
    experts = 0
    share = 1.0
    if model.moe is not None:
        layers = model.layers if model.ffn_layers is None else model.ffn_layers
        layers -= model.moe.dense_layers
        experts = layers * model.moe.experts * 3 * model.hidden * model.moe.ffn
        share = model.moe.active / model.moe.experts
    ranks = deployment.replica_ranks
    speed = Speed(
        cost=prefill_cost(model),
        machine=one,
        mfu=known.mfu if known else gpu.prefill_mfu[1],
        dense_s=(model.params - experts) * size / ranks / memory,
        experts_s=experts * size / ranks / memory,
        expert_share=share,
        context_token_s=rank_bytes / memory,
        step_s=STEP_S,
    )
    if known is None:
        return speed
    return replace(
        speed,
        restore_s=known.restore_s,
        restore_token_s=rank_bytes / (known.h2d_gbps * 1e9),
        in_step=kind.replay in IN_STEP,
        overlap=moves.overlap,
        write_token_s=known.write_exposed * rank_bytes / (known.d2h_gbps * 1e9),
        store_sync_s=known.store_sync_s,
    )
