"""What to do where the tiers thrash, and what each would leave to compute."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentkv_trace.advise.agents import most_agents
from agentkv_trace.advise.thrash import Fix, ranked
from agentkv_trace.report.model import FixFacts, ThrashFacts
from agentkv_trace.report.units import format_bytes
from agentkv_trace.tiers import capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.load import Model
    from agentkv_trace.report.case import Case
    from agentkv_trace.report.model import OnsetFacts

FULL_UTILIZATION = 0.95
"""What `--gpu-memory-utilization` may be raised to."""


def thrash_facts(
    case: Case,
    model: Model,
    judged_bytes: int,
    bought_bytes: int | None,
    sizes: list[int],
    onsets: Sequence[OnsetFacts] = (),
) -> ThrashFacts:
    """Return the prediction at the judged size, with the fixes where it thrashes."""
    onset = next((one for one in onsets if one.host_bytes == judged_bytes), None)
    found = case.thrash(judged_bytes)
    fixes: list[FixFacts] = []
    now = int(case.use(judged_bytes).computed.sum())
    if found.predicted:
        fewer = _replayed_fewer(case, onset) or _fewer_agents(case, judged_bytes)
        ways = [*_more_gpu(case, model, judged_bytes), *fewer]
        if bought_bytes and bought_bytes > judged_bytes:
            left = int(case.use(bought_bytes).computed.sum())
            ways.append(
                Fix(action=f"a host tier of {_size(case, bought_bytes)}", computed_tokens=left)
            )
        ways += _write_filter(case, judged_bytes)
        fixes = [
            FixFacts(
                action=fix.action,
                computed_tokens=fix.computed_tokens,
                saved_share=1 - fix.computed_tokens / now,
                bound=fix.bound,
            )
            for fix in ranked(ways, now)
        ]
    thrashing = [size for size in sizes if size and case.thrash(size).predicted]
    use = case.use(judged_bytes)
    written = int(use.written.sum())
    return ThrashFacts(
        predicted=found.predicted,
        judged_bytes=judged_bytes,
        gamma_gpu=found.gamma_gpu,
        gamma_host=found.gamma_host,
        restored_per_written=int(use.restored.sum()) / written if written else None,
        evicted_share=found.evicted_share,
        computed_per_compulsory=found.computed_per_compulsory,
        begins_at_agents=found.begins_at_agents,
        below_bytes=max(thrashing, default=None),
        fixes=tuple(fixes),
    )


def _more_gpu(case: Case, model: Model, judged: int) -> list[Fix]:
    """Replay with a larger share of GPU memory, where the pool was computed from it."""
    options = case.options
    if options.gpu_kv_tokens is not None or options.gpu_memory_utilization >= FULL_UTILIZATION:
        return []
    more = replace(options, gpu_memory_utilization=FULL_UTILIZATION)
    pool = capacity.kv_pool(model, case.gpu, more)
    other = replace(case, pool=pool, options=more, uses={})
    left = int(other.use(judged).computed.sum())
    action = f"--gpu-memory-utilization {FULL_UTILIZATION}"
    return [Fix(action=action, computed_tokens=left)]


def _replayed_fewer(case: Case, onset: OnsetFacts | None) -> list[Fix]:
    """Take the most agents that do not thrash from their replay, the share computed likewise."""
    if onset is None or onset.agents is None or not 1 < onset.agents <= case.agents:
        return []
    most = onset.agents - 1
    hits = next(point.hit_ratio for point in onset.points if point.agents == most)
    left = round(case.workload.curve.prompt_tokens * (1 - hits))
    noun = "agent" if most == 1 else "agents"
    return [Fix(action=f"at most {most} {noun} at once (replayed)", computed_tokens=left)]


def _fewer_agents(case: Case, judged: int) -> list[Fix]:
    """Estimate fewer agents: distances in the stack shrink with what the others touch."""
    curve, use = case.workload.curve, case.use(judged)
    calls = len(use.prompt)
    mean = curve.prompt_tokens / calls if calls else 0.0
    tokens = case.pool_tokens
    tokens = max(tokens, use.host_tokens) if case.backend.inclusive else tokens + use.host_tokens
    agents = most_agents(tokens, mean)
    if not 1 <= agents < case.agents:
        return []
    factor = (case.agents - 1) / max(agents - 1, 0.5)
    hits = curve.prefix_hit_ratio(int(tokens * factor) // curve.chunk_tokens)
    left = round(curve.prompt_tokens * (1 - hits))
    noun = "agent" if agents == 1 else "agents"
    return [Fix(action=f"at most {agents} {noun} at once (estimate)", computed_tokens=left)]


def _write_filter(case: Case, judged: int) -> list[Fix]:
    """Bound what a write filter can do: the tier keeps what fits, and all of it is reused."""
    use = case.use(judged)
    found = case.thrash(judged)
    if not use.host_tokens or found.gamma_host is None or found.gamma_host <= 1:
        return []
    kept = min(use.host_tokens / case.working_set, 1.0) if case.working_set else 1.0
    missed = case.best_hit_ratio - case.gpu_hit_ratio
    hits = case.gpu_hit_ratio + kept * missed
    left = round(case.workload.curve.prompt_tokens * (1 - hits))
    return [
        Fix(action="a write filter, while the tier is too small", computed_tokens=left, bound=True)
    ]


def _size(case: Case, size: int) -> str:
    ranks = case.options.ranks
    each = f" ({format_bytes(size // ranks)} per rank)" if ranks > 1 else ""
    return f"{format_bytes(size)}{each}"
