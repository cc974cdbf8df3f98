"""From profiles and options to a machine and its bands of costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from agentkv_trace.advise.economics import Band, CostBands, Machine, prefill_s
from agentkv_trace.errors import InputError
from agentkv_trace.profiles.connectors import copy_rates

if TYPE_CHECKING:
    from agentkv_trace.profiles.connectors import Connector
    from agentkv_trace.profiles.flops import PrefillCost
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.tiers.capacity import Deployment

HOST_DRAM_GBPS = Band(300.0, 350.0, 400.0)
"""Assumed bandwidth of a server's host memory, which all its GPUs share (two sockets, DDR5)."""

GPUS_PER_SERVER = 8
ENGINE_BLOCK = 16
"""Tokens in an engine's block, where the connector moves blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a user measured; each replaces the profile's guess.

    prefill_tokens_per_s: of the whole deployment, at prompts as long as the trace's mean.
    h2d_gbps: copies to one GPU while it restores. store_sync_ms: wait per prefill step.
    """

    prefill_tokens_per_s: float | None = None
    h2d_gbps: float | None = None
    store_sync_ms: float | None = None

    def check(self) -> None:
        """Raise InputError where a value cannot be meant."""
        for option, value, least in (
            ("--prefill-tokens-per-s", self.prefill_tokens_per_s, 1.0),
            ("--h2d-gbps", self.h2d_gbps, 0.001),
            ("--store-sync-ms", self.store_sync_ms, 0.0),
        ):
            if value is not None and not least <= value < inf:
                raise InputError(f"{option} {value}: must be a number from {least:g} on")


def machine(gpu: Gpu, deployment: Deployment, kv_rank_bytes: int, connector: Connector) -> Machine:
    """Return the GPUs of one replica as one machine.

    FP8 weights compute at the FP8 peak where the GPU has one; attention, and weights of four
    bits, at the BF16 peak.
    """
    peak = gpu.bf16_tflops * 1e12 * deployment.replica_ranks
    linear = peak
    if deployment.weight_dtype == "fp8" and gpu.fp8_tflops:
        linear = gpu.fp8_tflops * 1e12 * deployment.replica_ranks
    return Machine(
        linear_flops=linear,
        attention_flops=peak,
        kv_rank_bytes=kv_rank_bytes,
        overlap=connector.overlap,
        replicas=deployment.dp,
    )


def block_bytes(model: Model, connector: Connector, chunk_tokens: int, kv_rank_bytes: int) -> float:
    """Return what one copy moves: a chunk of all layers, or one layer's keys or values."""
    if connector.block == "layer":
        return ENGINE_BLOCK * kv_rank_bytes / model.layers / 2
    return float(chunk_tokens * kv_rank_bytes)


def cost_bands(
    gpu: Gpu,
    deployment: Deployment,
    connector: Connector,
    block: float,
    gpus_per_link: int = 1,
) -> CostBands | None:
    """Return the bands of costs; None where the GPU has no host link (unified memory).

    A link that several GPUs share, and the host memory that all GPUs of a server share, bound
    what one of them gets while all restore at once.
    """
    link = gpu.host_link
    if link.h2d_gbps is None or link.d2h_gbps is None:
        return None
    rates = copy_rates(link.copies if connector.copy == "dma" else connector.copy)
    together = min(deployment.ranks, GPUS_PER_SERVER)
    # A GPU with a processor of its own shares its memory with none.
    memory = HOST_DRAM_GBPS if link.kind.startswith("pcie") else Band(inf, inf, inf)

    def band(gbps: float) -> Band:
        found = rates.gbps(block, gbps / gpus_per_link)
        return Band(*(min(rate, dram / together) for rate, dram in zip(found, memory, strict=True)))

    return CostBands(
        mfu=Band(*gpu.prefill_mfu),
        h2d_gbps=band(link.h2d_gbps),
        d2h_gbps=band(link.d2h_gbps),
        restore_s=Band(*(ms / 1e3 for ms in connector.restore_ms)),
        store_sync_s=Band(*(ms / 1e3 for ms in connector.store_sync_ms)),
        write_exposed=Band(*connector.write_exposed),
    )


def calibrated(
    bands: CostBands,
    measured: Measured,
    where: Machine,
    cost: PrefillCost,
    mean_prompt_tokens: float,
) -> CostBands:
    """Return the bands with what was measured in place of the guesses.

    The share of the peak follows from the measured rate at the mean prompt; the copies from the
    GPU change by the factor of those to it. Raises InputError for a rate beyond the peak.
    """
    changed = dict(bands)
    if measured.prefill_tokens_per_s is not None and mean_prompt_tokens:
        at_peak = float(prefill_s(cost, 0, mean_prompt_tokens, where, 1.0))
        mfu = measured.prefill_tokens_per_s / where.replicas * at_peak / mean_prompt_tokens
        if mfu > 1:
            most = where.replicas * mean_prompt_tokens / at_peak
            raise InputError(
                f"--prefill-tokens-per-s {measured.prefill_tokens_per_s:g}: the peak of these GPUs "
                f"is {most:,.0f} tokens/s at prompts of {mean_prompt_tokens:,.0f} tokens; hits do "
                "not count as prefill"
            )
        changed["mfu"] = Band(mfu, mfu, mfu)
    if measured.h2d_gbps is not None:
        rate = measured.h2d_gbps
        back = rate * bands.d2h_gbps.mid / bands.h2d_gbps.mid
        changed["h2d_gbps"] = Band(rate, rate, rate)
        changed["d2h_gbps"] = Band(back, back, back)
    if measured.store_sync_ms is not None:
        wait = measured.store_sync_ms / 1e3
        changed["store_sync_s"] = Band(wait, wait, wait)
    return CostBands(**changed)
