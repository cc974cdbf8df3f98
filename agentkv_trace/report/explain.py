"""The arithmetic of a verdict, step by step, for one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report.units import (
    format_bytes,
    format_count,
    format_ratio,
    format_seconds,
)

if TYPE_CHECKING:
    from agentkv_trace.report.model import EconomicsFacts, GpuFinding, Report, Three

Steps = list[tuple[str, list[str]]]


def arithmetic(report: Report) -> Steps:
    """Return titled steps for the first GPU with a verdict on a size, else for the first."""
    finding = next((f for f in report.gpus if f.economics), None)
    if finding is None:
        finding = report.gpus[0]
    steps: Steps = [(f"How {finding.name} gets its verdict", [finding.summary])]
    steps += _capacity(report, finding)
    if finding.alone is None:
        return steps
    steps += _hits(report, finding)
    if finding.economics:
        steps += _one_prompt(report, finding.economics)
        steps += _trace(finding, finding.economics)
    return steps


def _capacity(report: Report, finding: GpuFinding) -> Steps:
    model, pool = report.model, finding.pool
    lines = [
        f"KV = {model.kv_bytes_per_token_per_rank:,} bytes per token on a rank "
        f"({model.attention}, {report.options.kv_dtype})"
    ]
    if pool is None:
        return [("1. KV pool", [*lines, finding.reason or ""])]
    if pool.usable_bytes is None:
        lines.append(f"pool = {pool.tokens:,} tokens, as given")
    else:
        usable = format_bytes(pool.usable_bytes)
        weights = format_bytes(pool.weight_bytes or 0)
        overhead = format_bytes(pool.overhead_bytes or 0)
        lines.append(
            f"pool = ({usable} usable - {weights} weights - {overhead} overhead) / "
            f"{model.kv_bytes_per_token_per_rank:,} = {pool.tokens:,} tokens"
        )
    return [("1. KV pool", lines)]


def _hits(report: Report, finding: GpuFinding) -> Steps:
    work, alone, judged = report.workload, finding.alone, finding.judged
    assert alone is not None
    lines = [
        f"prompts = {work.prompt_tokens:,} tokens in {work.calls:,} calls, "
        f"{format_ratio(work.best_hit_ratio)} of them processed before",
        f"GPU alone = {format_ratio(alone.hit_ratio)} hit, {alone.computed_tokens:,} computed",
        f"working set = {work.recover_working_set_tokens:,} tokens for "
        f"{format_ratio(report.options.recover)} of all hits; scale (A - 1) * N = "
        f"({work.agents} - 1) * {work.mean_prompt_tokens:,.0f} = {work.reuse_tokens:,} tokens, "
        f"{format_bytes(work.reuse_rank_bytes)} per rank",
    ]
    if judged:
        lines.append(
            f"with {format_bytes(judged.total_bytes)} = {judged.holds_tokens:,} tokens on host: "
            f"{format_ratio(judged.hit_ratio)} hit, {judged.restored_tokens:,} restored, "
            f"{judged.computed_tokens:,} computed, {judged.written_tokens:,} written"
        )
    thrash = finding.thrash
    if thrash:
        host = f", (A - 1) * N / host = {thrash.gamma_host:.2f}" if thrash.gamma_host else ""
        lines.append(f"pressure: A * N / pool = {thrash.gamma_gpu:.2f}{host}")
    return [(f"2. Hits ({report.backend.model})", lines)]


def _one_prompt(report: Report, facts: EconomicsFacts) -> Steps:
    model, tokens = report.model, facts.example_tokens
    linear = model.linear_flops_per_token * tokens
    attention = model.attention_flops_per_position * tokens * tokens / 2
    per_rank = tokens * model.kv_bytes_per_token_per_rank
    low, _, high = facts.example_recompute_s
    lines = [
        f"work = {model.linear_flops_per_token:.3g} * n + {model.attention_flops_per_position:.3g} "
        f"* n^2 / 2 = {linear + attention:.3g} FLOP for n = {tokens:,} (full attention)",
        f"recompute = work / ({facts.peak_tflops:,.0f} TFLOPS * {_span(facts.mfu)} of peak) = "
        f"{format_seconds(low)} to {format_seconds(high)}",
        f"load = {format_bytes(per_rank)} on a rank / {_span(facts.h2d_gbps)} GB/s (copies of "
        f"{format_bytes(facts.block_bytes)}) + {_span(facts.restore_ms)} ms = "
        f"{format_seconds(facts.example_load_s[0])} to {format_seconds(facts.example_load_s[2])}",
        f"benefit = 1 - load / recompute = {_span(facts.offload_benefit)}; even at "
        f"{_span(facts.break_even_gbps)} GB/s per rank",
        f"peak compute per host link byte = {format_count(facts.flops_per_host_byte)} FLOP "
        "(decides nothing alone)",
    ]
    return [("3. One prompt of mean length, restored whole", lines)]


def _trace(finding: GpuFinding, facts: EconomicsFacts) -> Steps:
    lines = [
        f"at {name} costs: {_paid(facts, which)}"
        for which, name in enumerate(("the least favourable", "the middle", "the most favourable"))
    ]
    lines.append(
        f"{facts.restores:,} restores; {facts.steps:,} prefill steps that wait "
        f"{_span(facts.store_sync_ms)} ms; {_span(facts.write_exposed)} of copies to host are felt"
        + (f"; {facts.overlap:g} of computing hides restores" if facts.overlap else "")
    )
    lines.append(f"verdict: {finding.verdict.replace('_', ' ')}")
    if finding.depends_on:
        lines.append(f"it depends on {finding.depends_on}")
    judged = format_bytes(facts.judged_bytes)
    return [(f"4. Time over the trace with {judged}, against the GPU alone", lines)]


def _paid(facts: EconomicsFacts, which: int) -> str:
    gain = facts.gain_s[which]
    word = "saves" if gain >= 0 else "loses"
    return (
        f"{format_seconds(facts.saved_prefill_s[which])} prefill saved - "
        f"{format_seconds(facts.restore_s[which])} restores - "
        f"{format_seconds(facts.write_s[which])} writes - "
        f"{format_seconds(facts.sync_s[which])} waits: {word} {format_seconds(gain)} of "
        f"{format_seconds(facts.prefill_s[which])}"
    )


def _span(three: Three) -> str:
    low, mid, high = (f"{value:.3g}" for value in three)
    return low if low == mid == high else f"{low}/{mid}/{high}"
