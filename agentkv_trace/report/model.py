"""What a report says: one frozen result, from which every format is rendered.

Field names carry their units; ratios are shares of prompt tokens. The JSON output has exactly
these fields (`schemas/report.schema.json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentkv_trace.tiers.capacity import Deployment

SCHEMA = "agentkv-trace/report/1"

Outcome = Literal["buy_host_memory", "nothing_to_gain", "does_not_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Deployment):
    """The options of `report`: how the engine runs, and the share of missed hits to recover."""

    recover: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """What a report says about the trace beside its curve."""

    calls: int
    sessions: int
    longest_prompt_tokens: int
    tokenizer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """The trace and its curve.

    `working_set_tokens` is the smallest cache with every achievable hit, and
    `recover_working_set_tokens` the smallest with the asked share of them; bytes are over all
    ranks.
    """

    calls: int
    sessions: int
    prompt_tokens: int
    longest_prompt_tokens: int
    tokenizer: str
    chunk_tokens: int
    references: int
    unique_chunks: int
    best_hit_ratio: float
    working_set_tokens: int
    working_set_bytes: int
    recover_working_set_tokens: int
    recover_working_set_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model, and the bytes it keeps; per rank where the name says so."""

    model: str
    name: str
    attention: str
    params: int
    kv_bytes_per_token_per_rank: int
    kv_bytes_per_token_all_ranks: int
    weight_bytes_per_rank: int
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The GPU tier; the bytes are per rank, None where the pool was given and not computed."""

    tokens: int
    kv_bytes: int
    usable_bytes: int | None
    weight_bytes: int | None
    overhead_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSize:
    """One size of host tier: `recovered` is its share of what an unlimited tier would add."""

    total_bytes: int
    per_rank_bytes: int
    holds_tokens: int
    hit_ratio: float
    recovered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFinding:
    """The answer for one GPU; fields that do not apply to its outcome are None or empty.

    `need_bytes` is the exact size, over all ranks, that `host` rounds up to one people buy.
    `host_sizes` are the sizes around the recommendations, the same for all GPUs of a report.
    """

    gpu: str
    name: str
    outcome: Outcome
    summary: str
    reason: str | None = None
    pool: PoolFacts | None = None
    gpu_hit_ratio: float | None = None
    best_hit_ratio: float | None = None
    need_bytes: int | None = None
    host: HostSize | None = None
    host_sizes: tuple[HostSize, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The advice of `report`: the same input gives the same report, with no clock and no path."""

    schema: str
    version: str
    options: ReportOptions
    workload: WorkloadFacts
    model: ModelFacts
    gpus: tuple[GpuFinding, ...]
    assumptions: tuple[str, ...]
