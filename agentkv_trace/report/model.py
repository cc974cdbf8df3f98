"""What a report says: one frozen result, from which every format is rendered.

Field names carry their units; ratios are shares of prompt tokens; a tuple of three is low, mid,
high. The JSON output has exactly these fields (`schemas/report.schema.json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentkv_trace.tiers.capacity import Deployment

if TYPE_CHECKING:
    from agentkv_trace.replay.onset import Point
    from agentkv_trace.report.detail_model import Detail

SCHEMA = "agentkv-trace/report/1"

Outcome = Literal["pays", "costs", "neutral", "depends", "does_not_fit"]
Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Deployment):
    """The options of `report`: how the engine runs, and what is asked of the advice.

    `host_bytes`: sizes of host tier over all ranks to judge; the verdict is on the first of them,
    else on the recommended size. `agents` replaces what the trace shows.
    """

    recover: float = 0.95
    backend: str = "ideal"
    connector: str | None = None
    agents: int | None = None
    host_bytes: tuple[int, ...] = ()
    gpus_per_link: int = 1
    prefill_tokens_per_s: float | None = None
    h2d_gbps: float | None = None
    store_sync_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """What a report says about the trace beside its curve.

    `agents` take turns (95% of returns to a session see at most so many); `timed` is false where
    the log has no times, so that only the order of calls is known.
    """

    calls: int
    sessions: int
    longest_prompt_tokens: int
    tokenizer: str
    agents: int = 1
    next_call_reuse: float | None = None
    timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """The trace and its curve.

    `working_set_tokens` is the smallest cache with every achievable hit, and
    `recover_working_set_tokens` the smallest with the asked share of them; bytes are over all
    ranks of a replica. `best_hit_ratio` is also the share of prompt tokens processed before, and
    `next_call_reuse` the share of new KV that the session's very next call reuses.
    `reuse_bytes` is the scale estimate (A - 1) * N * bytes per token.
    """

    calls: int
    sessions: int
    prompt_tokens: int
    mean_prompt_tokens: float
    longest_prompt_tokens: int
    tokenizer: str
    chunk_tokens: int
    references: int
    unique_chunks: int
    best_hit_ratio: float
    next_call_reuse: float | None
    working_set_tokens: int
    working_set_bytes: int
    recover_working_set_tokens: int
    recover_working_set_bytes: int
    agents: int
    reuse_tokens: int
    reuse_bytes: int
    reuse_rank_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model, and the bytes it keeps; per rank where the name says so.

    FLOPs are of prefill: per token, and per token and position of full attention.
    """

    model: str
    name: str
    attention: str
    params: int
    kv_bytes_per_token_per_rank: int
    kv_bytes_per_token_all_ranks: int
    weight_bytes_per_rank: int
    linear_flops_per_token: int
    attention_flops_per_position: int
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """The backend, which model gave its hits, and what its times rest on."""

    backend: str
    name: str
    model: str
    proof: str
    inclusive: bool
    host_chunk_tokens: int
    connector: str
    connector_name: str
    connector_confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The GPU tier of one replica; the bytes are per rank, None where the pool was given."""

    tokens: int
    kv_bytes: int
    usable_bytes: int | None
    weight_bytes: int | None
    overhead_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSize:
    """One size of host tier over the trace; 0 bytes is the GPU alone.

    `recovered` is its share of what an unlimited tier would add. `evicted_share`: of the written
    tokens, what left before a lookup met it; None where nothing is written. `saved_s`: seconds
    of engine time it saves, below zero it costs; None without a host link.
    """

    total_bytes: int
    per_rank_bytes: int
    holds_tokens: int
    hit_ratio: float
    recovered: float
    restored_tokens: int
    computed_tokens: int
    written_tokens: int
    evicted_share: float | None
    thrashes: bool
    saved_s: Three | None
    verdict: Outcome | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicsFacts:
    """The costs of one GPU's tier: inputs, one restored prompt of mean length, and the balance.

    The balance is that of the judged size, seconds over the trace, at the least, the mid and the
    most favourable costs; the other triples are low, mid, high as figures.
    """

    flops_per_host_byte: float
    peak_tflops: float
    mfu: Three
    h2d_gbps: Three
    d2h_gbps: Three
    restore_ms: Three
    store_sync_ms: Three
    write_exposed: Three
    overlap: float
    block_bytes: float
    example_tokens: int
    example_recompute_s: Three
    example_load_s: Three
    offload_benefit: Three
    break_even_gbps: Three
    judged_bytes: int
    prefill_s: Three
    saved_prefill_s: Three
    restore_s: Three
    write_s: Three
    sync_s: Three
    gain_s: Three
    restores: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixFacts:
    """Something to do, with the computed prompt tokens it would leave; `bound`: at best."""

    action: str
    computed_tokens: int
    saved_share: float
    bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrashFacts:
    """The prediction at the judged tiers: the asked size, else the GPU alone.

    gamma_gpu = A * N / pool, gamma_host = (A - 1) * N / host; `below_bytes` is the largest size of
    the table that still thrashes. `fixes` come with most effect first.
    """

    predicted: bool
    judged_bytes: int
    gamma_gpu: float
    gamma_host: float | None
    restored_per_written: float | None
    evicted_share: float | None
    computed_per_compulsory: float | None
    begins_at_agents: int
    below_bytes: int | None
    fixes: tuple[FixFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnsetFacts:
    """From how many agents on the GPU with a host tier of `host_bytes` thrashes, by replay.

    `agents` is the smallest number that computes more than `factor` times the compulsory prefill,
    None where not even `max_agents` do. Each number of agents in `points` ran the same `calls`, of
    which `rejected_calls` are larger than the GPU's pool and count nowhere.
    """

    host_bytes: int
    agents: int | None
    max_agents: int
    factor: float
    calls: int
    rejected_calls: int
    compulsory_tokens: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFinding:
    """The answer for one GPU; fields that do not apply to it are None or empty.

    `need_bytes` is the smallest size, over all ranks, with the asked share of hits, which `host`
    with its margin rounds up to one people buy. `host_sizes` are the sizes around the
    recommendations and those asked for, the same for all GPUs of a report. `judged` is the size
    the verdict is on. `onsets` are those of the GPU alone and of the judged size.
    """

    gpu: str
    name: str
    verdict: Outcome
    summary: str
    reason: str | None = None
    depends_on: str | None = None
    pool: PoolFacts | None = None
    gpu_hit_ratio: float | None = None
    best_hit_ratio: float | None = None
    need_bytes: int | None = None
    alone: HostSize | None = None
    host: HostSize | None = None
    judged: HostSize | None = None
    host_sizes: tuple[HostSize, ...] = ()
    economics: EconomicsFacts | None = None
    thrash: ThrashFacts | None = None
    onsets: tuple[OnsetFacts, ...] = ()
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The advice of `report`: the same input gives the same report, with no clock and no path.

    `detail` is there where the format shows it.
    """

    schema: str
    version: str
    options: ReportOptions
    workload: WorkloadFacts
    model: ModelFacts
    backend: BackendFacts
    gpus: tuple[GpuFinding, ...]
    assumptions: tuple[str, ...]
    detail: Detail | None = None
