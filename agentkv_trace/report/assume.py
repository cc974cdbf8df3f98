"""What the numbers of a report rest on, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.advise import sizing
from agentkv_trace.advise.agents import RETURNS
from agentkv_trace.advise.machine import HOST_DRAM_GBPS
from agentkv_trace.advise.verdict import SMALL
from agentkv_trace.replay.sessions import MAX_GAP_S
from agentkv_trace.report.choose import MARGIN
from agentkv_trace.report.units import format_bytes, format_points, format_ratio, format_tokens
from agentkv_trace.tiers import capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.connectors import Connector
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.report.model import BackendFacts, ReportOptions, TraceFacts


def assumptions(
    model: Model,
    gpus: Sequence[Gpu],
    options: ReportOptions,
    backend: BackendFacts,
    connector: Connector,
    facts: TraceFacts,
    chunk_tokens: int,
    notes: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the assumptions, those that weigh most first."""
    said = [f"Hits: {backend.model}; {backend.proof}."]
    if backend.inclusive:
        said.append(
            "The host tier is inclusive: it adds nothing until it is larger than the GPU's KV pool."
        )
    said.append(
        f"A hit is a whole chunk of {chunk_tokens} tokens with all chunks before it; hits are "
        "shares of prompt tokens; calls run one after another in order of start."
    )
    if options.agents is not None:
        said.append(
            f"Order: as {options.agents} agents would make the calls, each taking up one session "
            "after the other; a call lasts as long as in the log, and so do pauses up to "
            f"{MAX_GAP_S / 60:g} minutes."
        )
    said += [f"{note[0].upper()}{note[1:]}." for note in notes]
    said += _pool(model, gpus, options)
    said += _times(options, connector)
    said += [
        f"The size to buy is {format_ratio(MARGIN)} above the smallest that recovers "
        f"{format_ratio(options.recover)} of what an unlimited tier adds, rounded up.",
        f"Neutral means less than {format_points(sizing.MIN_GAIN)} of hits above the GPU alone, or "
        f"less than {format_ratio(SMALL)} of prefill time either way.",
    ]
    if options.agents is None:
        said.append(
            f"Agents: {format_ratio(RETURNS)} of returns to a session see at most so many take a "
            "turn; --agents replays the sessions as another number of agents."
        )
    if not facts.timed:
        said.append(
            "The log has no times: the order of calls is taken as logged, so nothing here knows "
            "how many agents really ran at once."
        )
    return tuple(said)


def _pool(model: Model, gpus: Sequence[Gpu], options: ReportOptions) -> list[str]:
    said = []
    if options.gpu_kv_tokens is not None:
        said.append(f"The KV pool of {format_tokens(options.gpu_kv_tokens)} tokens is as given.")
    else:
        activations = capacity.overhead_bytes(model) - capacity.RUNTIME_BYTES
        said.append(
            f"KV pool = {format_ratio(options.gpu_memory_utilization)} of GPU memory - "
            f"{options.weight_dtype} weights - {format_bytes(capacity.RUNTIME_BYTES)} runtime - "
            f"{format_bytes(activations)} activations (assumed); "
            "--gpu-kv-tokens takes what the engine logged."
        )
        estimated = [gpu.name for gpu in gpus if gpu.memory_basis == "estimated"]
        if estimated:
            said.append(f"GPU memory is an estimate for {', '.join(estimated)}.")
    if options.kv_bytes_per_token is not None:
        said.append(
            f"KV of {format_bytes(options.kv_bytes_per_token)} per token and rank is as given."
        )
    if options.dp > 1:
        said.append(
            f"{options.dp} replicas count as one cache of all their pools: sessions stay with "
            "their replica and spread evenly."
        )
    return said


def _times(options: ReportOptions, connector: Connector) -> list[str]:
    assumed = "" if connector.confidence == "measured" else " (assumed, not measured)"
    said = [
        f"Time: prefill at the share of peak each GPU's profile states, copies and waits of "
        f"{connector.name}{assumed}; a verdict needs low, mid and high to agree. Measured "
        "values replace them: --prefill-tokens-per-s, --h2d-gbps, --store-sync-ms."
    ]
    if options.ranks > 1 and options.h2d_gbps is None:
        said.append(
            f"GPUs of a server restore at once and share {HOST_DRAM_GBPS.low:.0f} to "
            f"{HOST_DRAM_GBPS.high:.0f} GB/s of host memory (assumed)."
        )
    said.append(
        "Saved time is engine time over the whole trace, not latency: queues and the faster order "
        "of calls that fewer stalls bring are not modelled."
    )
    return said
