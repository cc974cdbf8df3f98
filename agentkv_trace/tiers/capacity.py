"""From GPU memory to KV cache: bytes per token on a rank, and the pool that weights leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import GIB

if TYPE_CHECKING:
    from agentkv_trace.profiles.load import Gpu, Model

KV_BYTES = {"bf16": 2, "fp8": 1}
"""Bytes per KV element by `--kv-dtype`."""

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5, "fp4": 0.5625}
"""Bytes per parameter by `--weight-dtype`; only fp4 counts its scales (one byte for sixteen)."""

RUNTIME_BYTES = GIB
"""Assumed per GPU: driver context, communication buffers, graphs."""

BATCHED_TOKENS = 8192
"""Assumed most tokens in one prefill step."""

ACTIVATION_ROWS = 8
"""Assumed BF16 rows of `hidden` elements alive at once per batched token."""

_MAX_TP = 64


class DoesNotFitError(InputError):
    """The model leaves no memory for KV; `reason` says it without naming model and GPU."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """How an engine runs the model; the fields carry the names of the options.

    `kv_bytes_per_token` is what one rank stores per token, in bytes, and `gpu_kv_tokens` the
    pool an engine logged, in tokens; both replace what is computed from the profiles.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    gpu_memory_utilization: float = 0.9
    kv_dtype: str = "bf16"
    weight_dtype: str = "bf16"
    kv_bytes_per_token: float | None = None
    gpu_kv_tokens: int | None = None

    @property
    def ranks(self) -> int:
        """Return the number of GPUs: tensor, pipeline and data parallel."""
        return self.tp * self.pp * self.dp

    @property
    def replica_ranks(self) -> int:
        """Return the number of GPUs that hold one copy of the model."""
        return self.tp * self.pp

    def check(self) -> None:
        """Raise InputError where a value cannot be meant."""
        for option, ranks in (("--tp", self.tp), ("--pp", self.pp), ("--dp", self.dp)):
            if ranks < 1:
                raise InputError(f"{option} {ranks}: must be at least 1")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InputError(
                f"--gpu-memory-utilization {self.gpu_memory_utilization}: "
                "must be above 0 and at most 1"
            )
        _check_dtype("--kv-dtype", self.kv_dtype, KV_BYTES)
        _check_dtype("--weight-dtype", self.weight_dtype, WEIGHT_BYTES)
        for option, value in (
            ("--kv-bytes-per-token", self.kv_bytes_per_token),
            ("--gpu-kv-tokens", self.gpu_kv_tokens),
        ):
            if value is not None and not 1 <= value < inf:
                raise InputError(f"{option} {value}: must be a number from 1 on")


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPool:
    """The GPU tier: `tokens` in the pool of one replica (each rank holds its part of every token).

    Bytes are per rank; the parts other than `kv_bytes_per_token` are None where the pool was
    given (`--gpu-kv-tokens`) and not computed.
    """

    tokens: int
    kv_bytes_per_token: int
    usable_bytes: int | None = None
    weight_bytes: int | None = None
    overhead_bytes: int | None = None

    @property
    def bytes(self) -> int:
        """Return the pool's size in bytes per rank."""
        return self.tokens * self.kv_bytes_per_token

    def chunks(self, chunk_tokens: int) -> int:
        """Return how many whole chunks of `chunk_tokens` tokens the pool holds."""
        return self.tokens // chunk_tokens


def kv_bytes_per_token(model: Model, deployment: Deployment | None = None) -> int:
    """Return the bytes of KV that one rank stores per token.

    KV heads are divided by tensor parallelism and replicated where it exceeds them; the latent
    row of MLA is held whole by every rank. Pipeline parallelism divides the layers; the fullest
    stage counts.

    Raises InputError for a model whose KV does not simply grow with every token, and for a
    tensor parallelism that does not divide the attention heads.
    """
    deployment = deployment or Deployment()
    deployment.check()
    check_tp(model, deployment.tp)
    if deployment.kv_bytes_per_token is not None:
        return ceil(deployment.kv_bytes_per_token)
    if model.kinds.full != model.layers:
        raise InputError(_not_per_token(model, deployment))
    per_layer = _layer_bytes(model, deployment)
    return -(-model.kinds.full // deployment.pp) * per_layer


def _layer_bytes(model: Model, deployment: Deployment) -> int:
    heads = None if model.mla else -(-model.kv_heads // deployment.tp)
    return model.kv_bytes_per_layer(KV_BYTES[deployment.kv_dtype], heads)


def _not_per_token(model: Model, deployment: Deployment) -> str:
    """Return what is wrong with a model of mixed layers, and the numbers one may give instead."""
    kinds, per_layer = model.kinds, _layer_bytes(model, deployment)
    growing = -(-kinds.full // deployment.pp) * per_layer
    every = -(-(kinds.full + kinds.swa + kinds.chunk) // deployment.pp) * per_layer
    what = f"{growing} for the layers that keep every token"
    if every != growing:
        what += f", {every} if windowed layers are kept whole too"
    if model.state_bytes:
        what += (
            f"; a hit also needs a snapshot of {model.state_bytes / 2**20:.0f} MiB at its very "
            "end, which is not modelled"
        )
    return (
        f"{model.name} has {model.attention}: its cache is not sized per token and its hits "
        "follow other rules; give --kv-bytes-per-token (bytes on one rank) to treat it as "
        f"if every token counted alike: {what}"
    )


def check_tp(model: Model, tp: int) -> None:
    """Raise InputError where tensor parallelism does not divide the attention heads."""
    if model.q_heads % tp:
        fitting = ", ".join(str(size) for size in _tp_sizes(model))
        raise InputError(
            f"--tp {tp} does not divide the {model.q_heads} attention heads of {model.name}; "
            f"use one of {fitting}"
        )


def weight_bytes(model: Model, dtype: str, ranks: int) -> int:
    """Return the bytes of weights on one rank, divided evenly over the ranks of a replica."""
    return int(model.params * WEIGHT_BYTES[dtype]) // ranks


def overhead_bytes(model: Model) -> int:
    """Return the assumed bytes per GPU that are neither weights nor KV."""
    return RUNTIME_BYTES + BATCHED_TOKENS * ACTIVATION_ROWS * model.hidden * 2


def kv_pool(model: Model, gpu: Gpu, deployment: Deployment) -> KVPool:
    """Return the KV pool of a model on a GPU.

    The pool is memory * utilisation - weights - overhead, unless `gpu_kv_tokens` gives it.

    Raises DoesNotFitError where nothing is left, with what is missing and the smallest tensor
    parallelism that fits, and InputError as `kv_bytes_per_token` does.
    """
    per_token = kv_bytes_per_token(model, deployment)
    if deployment.gpu_kv_tokens is not None:
        return KVPool(tokens=deployment.gpu_kv_tokens, kv_bytes_per_token=per_token)
    usable = int(gpu.memory_bytes * deployment.gpu_memory_utilization)
    weights = weight_bytes(model, deployment.weight_dtype, deployment.replica_ranks)
    overhead = overhead_bytes(model)
    tokens = (usable - weights - overhead) // per_token
    if tokens < 1:
        missing = (weights + overhead + per_token - usable) / GIB
        raise DoesNotFitError(
            f"{model.name} does not fit {gpu.name}",
            f"{deployment.weight_dtype} weights are {missing:.1f} GiB too large with --tp "
            f"{deployment.tp}, no KV pool is left; {_advice(model, gpu, deployment)}",
        )
    return KVPool(
        tokens=tokens,
        kv_bytes_per_token=per_token,
        usable_bytes=usable,
        weight_bytes=weights,
        overhead_bytes=overhead,
    )


def smallest_tp(model: Model, gpu: Gpu, deployment: Deployment) -> int | None:
    """Return the smallest tensor parallelism that leaves a KV pool, or None up to 64 GPUs."""
    usable = int(gpu.memory_bytes * deployment.gpu_memory_utilization)
    for tp in _tp_sizes(model):
        weights = weight_bytes(model, deployment.weight_dtype, tp * deployment.pp)
        left = usable - weights - overhead_bytes(model)
        if left >= kv_bytes_per_token(model, replace(deployment, tp=tp)):
            return tp
    return None


def _advice(model: Model, gpu: Gpu, deployment: Deployment) -> str:
    tp = smallest_tp(model, gpu, deployment)
    if tp is None:
        return f"no --tp up to {_MAX_TP} fits; use smaller weights (--weight-dtype)"
    return f"the smallest that fits is --tp {tp}"


def _tp_sizes(model: Model) -> list[int]:
    return [tp for tp in range(1, _MAX_TP + 1) if model.q_heads % tp == 0]


def _check_dtype(option: str, value: str, known: dict[str, int] | dict[str, float]) -> None:
    if value not in known:
        raise InputError(f"{option} {value}: use one of {', '.join(known)}")
