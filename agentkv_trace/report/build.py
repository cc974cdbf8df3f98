"""From a curve, a model and some GPUs to a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkv_trace import __version__
from agentkv_trace.advise import sizing
from agentkv_trace.errors import InputError
from agentkv_trace.report.model import (
    SCHEMA,
    GpuFinding,
    HostSize,
    ModelFacts,
    PoolFacts,
    Report,
    ReportOptions,
    TraceFacts,
    WorkloadFacts,
)
from agentkv_trace.report.units import format_bytes, format_points, format_ratio, format_tokens
from agentkv_trace.tiers import capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.sizing import Curve, Sizing
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.tiers.capacity import KVPool

COMMON_GPUS = ("rtx3090", "h20", "h800-sxm", "h100-sxm", "h200-sxm")
"""The GPUs of a report that names none."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The size of a chunk on all ranks, and on how many."""

    tokens: int
    bytes: int
    ranks: int


def build_report(
    curve: Curve,
    trace: TraceFacts,
    model: Model,
    gpus: Sequence[Gpu],
    options: ReportOptions | None = None,
) -> Report:
    """Return the advice for a trace's curve and a model on some GPUs, in their order.

    A GPU that cannot hold the model becomes a finding that says so.

    Raises InputError where options cannot be meant, where the model's KV is not sized per
    token, where no GPU is given and where none of them holds the model.
    """
    options = options or ReportOptions()
    sizing.check_recover(options.recover)
    if not gpus:
        raise InputError("no GPU to report on; name one with --gpu")
    gpus = tuple({gpu.id: gpu for gpu in gpus}.values())
    per_token = capacity.kv_bytes_per_token(model, options)
    chunk = _Chunk(curve.chunk_tokens, curve.chunk_tokens * per_token * options.tp, options.tp)
    findings = []
    sized: dict[str, Sizing] = {}
    refusals = []
    for gpu in gpus:
        try:
            pool = capacity.kv_pool(model, gpu, options)
        except capacity.DoesNotFitError as error:
            refusals.append(error)
            findings.append(_refused(gpu, options, error.reason))
            continue
        found = sizing.size_host(curve, pool.chunks(chunk.tokens), options.recover)
        if gpu.unified_memory and found.reason is None:
            found = replace(found, need_chunks=None, reason=_UNIFIED)
        sized[gpu.id] = found
        findings.append(_finding(curve, chunk, gpu, pool, found, trace, options))
    if not sized:
        raise refusals[0]
    return Report(
        schema=SCHEMA,
        version=__version__,
        options=options,
        workload=_workload(curve, trace, chunk, options.recover),
        model=_model_facts(model, per_token, options),
        gpus=_with_sizes(curve, chunk, findings, sized),
        assumptions=_assumptions(model, gpus, options, curve.chunk_tokens),
    )


_UNIFIED = "its memory is unified: a host tier would take from the same DRAM"


def _finding(
    curve: Curve,
    chunk: _Chunk,
    gpu: Gpu,
    pool: KVPool,
    found: Sizing,
    trace: TraceFacts,
    options: ReportOptions,
) -> GpuFinding:
    label = _label(gpu, options)
    base = GpuFinding(
        gpu=gpu.id,
        name=gpu.name,
        outcome="nothing_to_gain",
        summary=f"{label}: nothing to gain: {found.reason}",
        reason=found.reason,
        pool=PoolFacts(
            tokens=pool.tokens,
            kv_bytes=pool.bytes,
            usable_bytes=pool.usable_bytes,
            weight_bytes=pool.weight_bytes,
            overhead_bytes=pool.overhead_bytes,
        ),
        gpu_hit_ratio=found.gpu_hit_ratio,
        best_hit_ratio=found.ceiling,
        notes=_notes(pool, trace),
    )
    if found.need_chunks is None:
        return base
    need = found.need_chunks * chunk.bytes
    host = _host_size(curve, chunk, found, sizing.round_up(need))
    ranks = "" if chunk.ranks == 1 else f" ({format_bytes(host.per_rank_bytes)} per rank)"
    hits = f"hits {format_ratio(found.gpu_hit_ratio)} -> {format_ratio(host.hit_ratio)}"
    return replace(
        base,
        outcome="buy_host_memory",
        summary=f"{label}: buy {format_bytes(host.total_bytes)} host memory{ranks}: {hits}",
        need_bytes=need,
        host=host,
    )


def _refused(gpu: Gpu, options: ReportOptions, reason: str) -> GpuFinding:
    return GpuFinding(
        gpu=gpu.id,
        name=gpu.name,
        outcome="does_not_fit",
        summary=f"{_label(gpu, options)}: does not fit: {reason}",
        reason=reason,
    )


def _with_sizes(
    curve: Curve, chunk: _Chunk, findings: Sequence[GpuFinding], sized: dict[str, Sizing]
) -> tuple[GpuFinding, ...]:
    """Return the findings with the sizes around every recommendation, common to all GPUs."""
    sizes = sorted(
        {
            total
            for finding in findings
            if finding.host
            for total in sizing.around(finding.host.total_bytes)
        }
    )
    return tuple(
        replace(
            finding,
            host_sizes=tuple(
                _host_size(curve, chunk, sized[finding.gpu], total) for total in sizes
            ),
        )
        if finding.host
        else finding
        for finding in findings
    )


def _host_size(curve: Curve, chunk: _Chunk, found: Sizing, total_bytes: int) -> HostSize:
    step = sizing.step(curve, found, total_bytes, chunk.bytes)
    return HostSize(
        total_bytes=total_bytes,
        per_rank_bytes=total_bytes // chunk.ranks,
        holds_tokens=step.capacity_chunks * chunk.tokens,
        hit_ratio=step.hit_ratio,
        recovered=step.recovered,
    )


def _workload(curve: Curve, trace: TraceFacts, chunk: _Chunk, recover: float) -> WorkloadFacts:
    every = sizing.working_set(curve)
    some = sizing.working_set(curve, recover)
    return WorkloadFacts(
        calls=trace.calls,
        sessions=trace.sessions,
        prompt_tokens=curve.prompt_tokens,
        longest_prompt_tokens=trace.longest_prompt_tokens,
        tokenizer=trace.tokenizer,
        chunk_tokens=chunk.tokens,
        references=curve.references,
        unique_chunks=curve.unique_chunks,
        best_hit_ratio=curve.ceiling,
        working_set_tokens=every * chunk.tokens,
        working_set_bytes=every * chunk.bytes,
        recover_working_set_tokens=some * chunk.tokens,
        recover_working_set_bytes=some * chunk.bytes,
    )


def _model_facts(model: Model, per_token: int, options: ReportOptions) -> ModelFacts:
    return ModelFacts(
        model=model.id,
        name=model.name,
        attention=model.attention,
        params=model.params,
        kv_bytes_per_token_per_rank=per_token,
        kv_bytes_per_token_all_ranks=per_token * options.tp,
        weight_bytes_per_rank=capacity.weight_bytes(model, options.weight_dtype, options.tp),
        confidence=model.confidence,
    )


def _label(gpu: Gpu, options: ReportOptions) -> str:
    return gpu.name if options.tp == 1 else f"{options.tp} x {gpu.name}"


def _notes(pool: KVPool, trace: TraceFacts) -> tuple[str, ...]:
    if trace.longest_prompt_tokens <= pool.tokens:
        return ()
    return (
        f"its KV pool ({format_tokens(pool.tokens)} tokens) is smaller than the longest prompt "
        f"({format_tokens(trace.longest_prompt_tokens)} tokens), which it could not serve",
    )


def _assumptions(
    model: Model, gpus: Sequence[Gpu], options: ReportOptions, chunk_tokens: int
) -> tuple[str, ...]:
    said = [
        "Every tier is one LRU cache, looked up and filled by one call after another in order of "
        "start; real engines come out at or below it.",
        "The host tier is inclusive: it adds nothing until it is larger than the GPU's KV pool.",
        f"A hit is a whole chunk of {chunk_tokens} tokens with all chunks before it; hits are "
        "shares of prompt tokens.",
    ]
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
    said += [
        f"Nothing to gain means less than {format_points(sizing.MIN_GAIN)} above the GPU alone "
        "with an unlimited host tier.",
        "Hits are counted, not time: whether restoring them beats computing again is not weighed "
        "here.",
    ]
    return tuple(said)
