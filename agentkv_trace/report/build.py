"""From a workload, a model and some GPUs to a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkv_trace import __version__
from agentkv_trace.advise import sizing
from agentkv_trace.advise.flags import flags
from agentkv_trace.advise.machine import Measured, block_bytes, calibrated, cost_bands, machine
from agentkv_trace.advise.verdict import in_words
from agentkv_trace.errors import InputError
from agentkv_trace.profiles.connectors import find_connector
from agentkv_trace.profiles.flops import prefill_cost
from agentkv_trace.report import words
from agentkv_trace.report.assume import assumptions
from agentkv_trace.report.case import Case
from agentkv_trace.report.choose import choose
from agentkv_trace.report.facts import backend_facts, economics_facts, model_facts, workload_facts
from agentkv_trace.report.fixes import thrash_facts
from agentkv_trace.report.model import (
    SCHEMA,
    GpuFinding,
    PoolFacts,
    Report,
    ReportOptions,
)
from agentkv_trace.report.onset import find_onsets
from agentkv_trace.report.units import format_bytes, format_tokens
from agentkv_trace.tiers import capacity
from agentkv_trace.tiers.backends import find_backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.connectors import Connector
    from agentkv_trace.profiles.flops import PrefillCost
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.report.model import OnsetFacts, Outcome
    from agentkv_trace.report.workload import Workload
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.capacity import KVPool
    from agentkv_trace.tiers.use import TierUse

COMMON_GPUS = ("rtx3090", "h20", "h800-sxm", "h100-sxm", "h200-sxm")
"""The GPUs of a report that names none."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """What all GPUs of a report share."""

    workload: Workload
    model: Model
    options: ReportOptions
    backend: Backend
    connector: Connector
    cost: PrefillCost
    agents: int
    kv_rank_bytes: int
    block: float


def build_report(
    workload: Workload,
    model: Model,
    gpus: Sequence[Gpu],
    options: ReportOptions | None = None,
    *,
    detailed: bool = False,
    onset: bool = True,
) -> Report:
    """Return the advice for a trace and a model on some GPUs, in their order.

    A GPU that cannot hold the model, or the longest call, becomes a finding that says so.
    `detailed` adds what the page and JSON show beside the advice; `onset` replays from how many
    agents on each GPU thrashes.

    Raises InputError where options cannot be meant, where the model's KV is not sized per
    token, where no GPU is given and where none of them holds the model.
    """
    frame = _frame(workload, model, options or ReportOptions())
    if not gpus:
        raise InputError("no GPU to report on; name one with --gpu")
    gpus = tuple({gpu.id: gpu for gpu in gpus}.values())
    cases: dict[str, Case] = {}
    refused: dict[str, GpuFinding] = {}
    errors = []
    replays: dict[int, dict[int, TierUse]] = {}
    for gpu in gpus:
        try:
            case = _case(frame, gpu)
            # GPUs with equal pools share what was replayed: no cost enters there.
            case.uses = replays.setdefault(case.pool_tokens, {})
            cases[gpu.id] = case
        except capacity.DoesNotFitError as error:
            errors.append(error)
            refused[gpu.id] = _refused(gpu, frame.options, error.reason)
    if not cases:
        raise errors[0]
    chosen = {key: choose(case, _sizing(case)) for key, case in cases.items()}
    sizes = _sizes(frame.options, [bought for _, bought, _ in chosen.values()])
    onsets: dict[str, tuple[OnsetFacts, ...]] = {}
    if onset:
        onsets = find_onsets(
            workload, [(cases[key], _judged(frame, chosen[key])) for key in cases], model
        )
    findings = [
        refused.get(gpu.id)
        or _finding(frame, cases[gpu.id], chosen[gpu.id], sizes, onsets.get(gpu.id, ()))
        for gpu in gpus
    ]
    backend = backend_facts(frame.backend, frame.connector, workload)
    detail = None
    if detailed:
        tiers = [
            (cases[each.gpu], size)
            for each in findings
            if each.gpu in cases
            for size in (0, *([each.judged.total_bytes] if each.judged else []))
        ]
        replica_bytes = frame.kv_rank_bytes * frame.options.replica_ranks
        detail = workload.detail(tiers, frame.options.recover, replica_bytes)
    return Report(
        schema=SCHEMA,
        version=__version__,
        options=frame.options,
        workload=workload_facts(workload, frame.options, frame.kv_rank_bytes, frame.agents),
        model=model_facts(model, frame.options, frame.kv_rank_bytes, frame.cost),
        backend=backend,
        gpus=tuple(findings),
        assumptions=assumptions(
            model,
            gpus,
            frame.options,
            backend,
            frame.connector,
            workload.facts,
            workload.curve.chunk_tokens,
            (*workload.notes, *workload.onset_notes),
        ),
        detail=detail,
    )


def _frame(workload: Workload, model: Model, options: ReportOptions) -> _Frame:
    sizing.check_recover(options.recover)
    _measured(options).check()
    if options.agents is not None and options.agents < 1:
        raise InputError(f"--agents {options.agents}: must be at least 1")
    if options.gpus_per_link < 1:
        raise InputError(f"--gpus-per-link {options.gpus_per_link}: must be at least 1")
    backend = find_backend(options.backend)
    connector = find_connector(options.connector or backend.connector)
    per_token = capacity.kv_bytes_per_token(model, options)
    return _Frame(
        workload=workload,
        model=model,
        options=replace(options, backend=backend.id, connector=connector.id),
        backend=backend,
        connector=connector,
        cost=prefill_cost(model),
        agents=options.agents or workload.facts.agents,
        kv_rank_bytes=per_token,
        block=block_bytes(model, connector, workload.host_chunk_tokens(backend), per_token),
    )


def _measured(options: ReportOptions) -> Measured:
    return Measured(
        prefill_tokens_per_s=options.prefill_tokens_per_s,
        h2d_gbps=options.h2d_gbps,
        store_sync_ms=options.store_sync_ms,
    )


def _case(frame: _Frame, gpu: Gpu) -> Case:
    options, curve = frame.options, frame.workload.curve
    pool = capacity.kv_pool(frame.model, gpu, options)
    smallest = frame.workload.smallest_pool(frame.backend)
    if pool.tokens < smallest:
        raise capacity.DoesNotFitError(
            f"{frame.model.name} on {gpu.name}",
            f"its KV pool ({format_tokens(pool.tokens)} tokens) is smaller than the longest call "
            f"({format_tokens(smallest)} tokens), which {frame.backend.name} would never run",
        )
    where = machine(gpu, options, frame.kv_rank_bytes, frame.connector)
    bands = cost_bands(gpu, options, frame.connector, frame.block, options.gpus_per_link)
    calls = frame.workload.facts.calls
    if bands is not None:
        mean = curve.prompt_tokens / calls if calls else 0.0
        bands = calibrated(bands, _measured(options), where, frame.cost, mean)
    return Case(
        workload=frame.workload,
        backend=frame.backend,
        options=options,
        gpu=gpu,
        pool=pool,
        cost=frame.cost,
        machine=where,
        bands=bands,
        agents=frame.agents,
        working_set=sizing.working_set(curve, options.recover) * curve.chunk_tokens,
        best_hit_ratio=curve.ceiling,
    )


def _sizing(case: Case) -> sizing.Sizing:
    curve = case.workload.curve
    return sizing.size_host(curve, case.pool_tokens // curve.chunk_tokens, case.options.recover)


def _sizes(options: ReportOptions, bought: Sequence[int | None]) -> list[int]:
    """Return the sizes of the tables: around every recommendation, and those asked for."""
    sizes = {size for total in bought if total for size in sizing.around(total)}
    return sorted(sizes | set(options.host_bytes))


def _finding(
    frame: _Frame,
    case: Case,
    chosen: tuple[int | None, int | None, str | None],
    sizes: list[int],
    onsets: tuple[OnsetFacts, ...],
) -> GpuFinding:
    need, bought, reason = chosen
    asked = frame.options.host_bytes[0] if frame.options.host_bytes else None
    judged = _judged(frame, chosen)
    label = _label(case.gpu, frame.options)
    table = sizes if judged else []
    case.replay([0, *table, *([judged] if judged else [])])
    finding = GpuFinding(
        gpu=case.gpu.id,
        name=case.gpu.name,
        verdict="neutral",
        summary=words.neutral(label, reason or ""),
        reason=reason,
        pool=_pool_facts(case.pool),
        gpu_hit_ratio=case.gpu_hit_ratio,
        best_hit_ratio=case.best_hit_ratio,
        alone=case.host_size(0),
        thrash=thrash_facts(case, frame.model, asked or 0, bought, table, onsets),
        onsets=onsets,
        notes=_notes(case, asked),
    )
    if judged is None or case.bands is None:
        return finding
    size = case.host_size(judged)
    verdict = case.verdict(judged)
    assert verdict is not None
    pointless = _pointless(case, judged)
    word: Outcome = case.word(judged, verdict)
    if pointless and word == "neutral":
        # Nothing is gained whatever the costs; what it may lose is said beside.
        summary = words.useless(label, size, pointless, verdict)
    else:
        summary = words.judged(label, size, case.gpu_hit_ratio, verdict, asked=asked is not None)
    return replace(
        finding,
        verdict=word,
        summary=summary,
        reason=pointless or reason,
        depends_on=in_words(verdict.decider) if verdict.decider and word == "depends" else None,
        need_bytes=need,
        host=case.host_size(bought) if bought else None,
        judged=size,
        host_sizes=tuple(case.host_size(total) for total in table),
        economics=economics_facts(case, judged, frame.block),
        flags=flags(frame.backend, judged, frame.options.ranks, frame.options.dp),
    )


def _judged(frame: _Frame, chosen: tuple[int | None, int | None, str | None]) -> int | None:
    """Return the size the verdict is on: as asked, else the recommended one."""
    return frame.options.host_bytes[0] if frame.options.host_bytes else chosen[1]


def _pointless(case: Case, size: int) -> str | None:
    """Return why a size gives hardly any hits above the GPU, or None where it gives some."""
    if case.hit_ratio(size) - case.gpu_hit_ratio >= sizing.MIN_GAIN:
        return None
    host, pool = case.use(size).host_tokens, case.pool_tokens
    if case.backend.inclusive and host <= pool:
        return (
            f"it holds {format_tokens(host)} tokens, no more than the GPU's KV pool "
            f"({format_tokens(pool)} tokens), which an inclusive tier only repeats"
        )
    if case.best_hit_ratio - case.gpu_hit_ratio < sizing.MIN_GAIN:
        return "there is nothing to gain above the GPU"
    return f"it drops what is written before it is reused (working set {_working_set(case)})"


def _working_set(case: Case) -> str:
    tokens = case.working_set
    per_rank = tokens * case.pool.kv_bytes_per_token // case.options.dp
    where = " per rank" if case.options.ranks > 1 else ""
    return f"{format_tokens(tokens)} tokens, {format_bytes(per_rank)}{where}"


def _pool_facts(pool: KVPool) -> PoolFacts:
    return PoolFacts(
        tokens=pool.tokens,
        kv_bytes=pool.bytes,
        usable_bytes=pool.usable_bytes,
        weight_bytes=pool.weight_bytes,
        overhead_bytes=pool.overhead_bytes,
    )


def _refused(gpu: Gpu, options: ReportOptions, reason: str) -> GpuFinding:
    return GpuFinding(
        gpu=gpu.id,
        name=gpu.name,
        verdict="does_not_fit",
        summary=f"{_label(gpu, options)}: does not fit: {reason}",
        reason=reason,
    )


def _label(gpu: Gpu, options: ReportOptions) -> str:
    return gpu.name if options.ranks == 1 else f"{options.ranks} x {gpu.name}"


def _notes(case: Case, asked: int | None) -> tuple[str, ...]:
    notes = []
    longest = case.workload.facts.longest_prompt_tokens
    if longest > case.pool.tokens:
        notes.append(
            f"its KV pool ({format_tokens(case.pool.tokens)} tokens) is smaller than the longest "
            f"prompt ({format_tokens(longest)} tokens), which it could not serve"
        )
    if asked and case.bands is None:
        notes.append("it has no host link: the given host tier is not judged")
    return tuple(notes)
