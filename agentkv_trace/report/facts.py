"""The parts of a report that are facts, not findings: workload, model, backend, costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.advise import sizing
from agentkv_trace.advise.agents import reuse_tokens
from agentkv_trace.advise.economics import (
    break_even_gbps,
    compute_per_host_byte,
    load_s,
    offload_benefit,
    prefill_s,
)
from agentkv_trace.report.model import BackendFacts, EconomicsFacts, ModelFacts, WorkloadFacts
from agentkv_trace.tiers import capacity

if TYPE_CHECKING:
    from agentkv_trace.advise.economics import Costs
    from agentkv_trace.profiles.connectors import Connector
    from agentkv_trace.profiles.flops import PrefillCost
    from agentkv_trace.profiles.load import Model
    from agentkv_trace.report.case import Case
    from agentkv_trace.report.model import ReportOptions, Three
    from agentkv_trace.report.workload import Workload
    from agentkv_trace.tiers.backends import Backend


def workload_facts(
    workload: Workload, options: ReportOptions, kv_rank_bytes: int, agents: int
) -> WorkloadFacts:
    """Return the trace and its curve, in tokens and in bytes of the model."""
    curve, trace = workload.curve, workload.facts
    every = sizing.working_set(curve) * curve.chunk_tokens
    some = sizing.working_set(curve, options.recover) * curve.chunk_tokens
    mean = curve.prompt_tokens / trace.calls if trace.calls else 0.0
    reuse = round(reuse_tokens(agents, mean))
    all_ranks = kv_rank_bytes * options.replica_ranks
    return WorkloadFacts(
        calls=trace.calls,
        sessions=trace.sessions,
        prompt_tokens=curve.prompt_tokens,
        mean_prompt_tokens=mean,
        longest_prompt_tokens=trace.longest_prompt_tokens,
        tokenizer=trace.tokenizer,
        chunk_tokens=curve.chunk_tokens,
        references=curve.references,
        unique_chunks=curve.unique_chunks,
        best_hit_ratio=curve.ceiling,
        next_call_reuse=trace.next_call_reuse,
        working_set_tokens=every,
        working_set_bytes=every * all_ranks,
        recover_working_set_tokens=some,
        recover_working_set_bytes=some * all_ranks,
        agents=agents,
        reuse_tokens=reuse,
        reuse_bytes=reuse * all_ranks,
        reuse_rank_bytes=reuse * kv_rank_bytes,
    )


def model_facts(
    model: Model, options: ReportOptions, kv_rank_bytes: int, cost: PrefillCost
) -> ModelFacts:
    """Return the model's figures for these options."""
    return ModelFacts(
        model=model.id,
        name=model.name,
        attention=model.attention,
        params=model.params,
        kv_bytes_per_token_per_rank=kv_rank_bytes,
        kv_bytes_per_token_all_ranks=kv_rank_bytes * options.replica_ranks,
        weight_bytes_per_rank=capacity.weight_bytes(
            model, options.weight_dtype, options.replica_ranks
        ),
        linear_flops_per_token=cost.linear,
        attention_flops_per_position=cost.full,
        confidence=model.confidence,
    )


def backend_facts(backend: Backend, connector: Connector, workload: Workload) -> BackendFacts:
    """Return the backend's figures for this trace."""
    return BackendFacts(
        backend=backend.id,
        name=backend.name,
        model=backend.model,
        proof=backend.proof,
        inclusive=backend.inclusive,
        host_chunk_tokens=workload.host_chunk_tokens(backend),
        connector=connector.id,
        connector_name=connector.name,
        connector_confidence=connector.confidence,
    )


def economics_facts(case: Case, judged_bytes: int, block: float) -> EconomicsFacts | None:
    """Return the costs of a GPU and the balance of the judged size; None without a host link."""
    bands, machine, cost = case.bands, case.machine, case.cost
    peak_link = case.gpu.host_link.peak_gbps
    if bands is None or not peak_link:
        return None
    sets = (bands.least(), bands.mid(), bands.most())
    traffic = case.traffic(judged_bytes)
    verdict = case.verdict(judged_bytes, traffic)
    assert verdict is not None
    balances = (verdict.least, verdict.mid, verdict.most)
    calls = len(case.alone.prompt)
    tokens = round(case.workload.curve.prompt_tokens / calls) if calls else 0
    tokens = max(tokens, 1)

    def each(function: object) -> Three:
        values = sorted(function(costs) for costs in sets)  # type: ignore[operator]
        return values[0], values[1], values[2]

    def benefit(costs: Costs) -> float:
        return offload_benefit(cost, tokens, machine, costs)

    return EconomicsFacts(
        flops_per_host_byte=compute_per_host_byte(case.gpu.bf16_tflops * 1e12, peak_link),
        peak_tflops=machine.linear_flops / 1e12,
        mfu=_three(list(bands.mfu)),
        h2d_gbps=_three(list(bands.h2d_gbps)),
        d2h_gbps=_three(list(bands.d2h_gbps)),
        restore_ms=_milli(bands.restore_s),
        store_sync_ms=_milli(bands.store_sync_s),
        write_exposed=_three(list(bands.write_exposed)),
        overlap=machine.overlap,
        block_bytes=block,
        example_tokens=tokens,
        example_recompute_s=each(
            lambda costs: float(prefill_s(cost, 0, tokens, machine, costs.mfu))
        ),
        example_load_s=each(lambda costs: float(load_s(tokens, machine, costs))),
        offload_benefit=each(benefit),
        break_even_gbps=each(lambda costs: break_even_gbps(cost, tokens, machine, costs.mfu)),
        judged_bytes=judged_bytes,
        prefill_s=_three([case.prefill_s(costs.mfu) for costs in sets]),
        saved_prefill_s=_three([balance.saved_s for balance in balances]),
        restore_s=_three([balance.restore_s for balance in balances]),
        write_s=_three([balance.write_s for balance in balances]),
        sync_s=_three([balance.sync_s for balance in balances]),
        gain_s=_three([balance.gain_s for balance in balances]),
        restores=traffic.restores,
        steps=traffic.steps,
    )


def _milli(band: tuple[float, float, float]) -> Three:
    return _three([1e3 * value for value in band])


def _three(values: list[float]) -> Three:
    low, mid, high = values
    return low, mid, high
