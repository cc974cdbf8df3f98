"""One GPU of a report: its tiers over the trace, size by size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.advise import thrash as thrashing
from agentkv_trace.advise.economics import Traffic, recompute_s
from agentkv_trace.advise.sizing import MIN_GAIN
from agentkv_trace.advise.verdict import judge
from agentkv_trace.report.model import HostSize
from agentkv_trace.tiers.capacity import BATCHED_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentkv_trace.advise.economics import CostBands, Machine
    from agentkv_trace.advise.thrash import Thrash
    from agentkv_trace.advise.verdict import Verdict, Word
    from agentkv_trace.profiles.flops import PrefillCost
    from agentkv_trace.profiles.load import Gpu
    from agentkv_trace.report.model import ReportOptions
    from agentkv_trace.report.workload import Workload
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.capacity import KVPool
    from agentkv_trace.tiers.use import TierUse


@dataclass(slots=True)
class Case:
    """One GPU with its pool, machine and costs; sizes of host tier are bytes over all ranks.

    `bands` is None where the GPU has no host link. `best_hit_ratio` is what an unlimited tier
    gives with this backend. Replays are kept, since several questions ask for the same size.
    """

    workload: Workload
    backend: Backend
    options: ReportOptions
    gpu: Gpu
    pool: KVPool
    cost: PrefillCost
    machine: Machine
    bands: CostBands | None
    agents: int
    working_set: int
    best_hit_ratio: float = 0.0
    uses: dict[int, TierUse] = field(default_factory=dict)

    @property
    def pool_tokens(self) -> int:
        """Return the tokens of all replicas' pools together."""
        return self.pool.tokens * self.options.dp

    @property
    def alone(self) -> TierUse:
        """Return what the GPU gives without a host tier."""
        return self.use(0)

    @property
    def gpu_hit_ratio(self) -> float:
        """Return the hit ratio of the GPU alone."""
        return _ratio(int(self.alone.gpu.sum()), int(self.alone.prompt.sum()))

    def replay(self, sizes: Iterable[int]) -> None:
        """Replay sizes at once, so that they run in parallel."""
        wanted = [size for size in dict.fromkeys(sizes) if size not in self.uses]
        if wanted:
            chunks = [self._chunks(size) for size in wanted]
            found = self.workload.use(self.backend, self.pool_tokens, chunks)
            self.uses.update(zip(wanted, found, strict=True))

    def use(self, size: int) -> TierUse:
        """Return what the trace gets at a size."""
        self.replay([size])
        return self.uses[size]

    def hit_ratio(self, size: int) -> float:
        """Return the share of prompt tokens that is not computed at a size."""
        use = self.use(size)
        return _ratio(int(use.gpu.sum() + use.restored.sum()), int(use.prompt.sum()))

    def traffic(self, size: int) -> Traffic:
        """Return what the tier changes against the GPU alone."""
        alone, use = self.alone, self.use(size)
        hit = use.gpu + use.restored
        steps = -(-use.computed // BATCHED_TOKENS)
        each = {}
        if self.machine.overlap:
            each = {
                "restored_each": use.restored,
                "computed_linear_each": self.cost.linear_flops(hit, use.prompt),
                "computed_attention_each": self.cost.attention_flops(hit, use.prompt),
            }
        return Traffic(
            saved_linear=float(self.cost.linear_flops(alone.gpu, hit).sum()),
            saved_attention=float(self.cost.attention_flops(alone.gpu, hit).sum()),
            restored_tokens=int(use.restored.sum()),
            restores=int((use.restored > 0).sum()),
            written_tokens=int(use.written.sum()),
            steps=int(steps.clip(1).sum()),
            **each,
        )

    def prefill_s(self, mfu: float) -> float:
        """Return the seconds of all prefill without a host tier at a share of the peak."""
        alone = self.alone
        linear = float(self.cost.linear_flops(alone.gpu, alone.prompt).sum())
        attention = float(self.cost.attention_flops(alone.gpu, alone.prompt).sum())
        return float(recompute_s(linear, attention, self.machine, mfu)) / self.machine.replicas

    def verdict(self, size: int, traffic: Traffic | None = None) -> Verdict | None:
        """Return the verdict on a size; None where the GPU has no host link."""
        if self.bands is None:
            return None
        traffic = traffic or self.traffic(size)
        return judge(traffic, self.machine, self.bands, self.prefill_s)

    def word(self, size: int, verdict: Verdict) -> Word:
        """Return the verdict's word; neutral where hardly any hits are gained, unless it costs."""
        gained = self.hit_ratio(size) - self.gpu_hit_ratio
        return verdict.word if gained >= MIN_GAIN or verdict.word == "costs" else "neutral"

    def thrash(self, size: int) -> Thrash:
        """Return the prediction for a size."""
        curve, use = self.workload.curve, self.use(size)
        return thrashing.thrash(
            thrashing.Tiers(
                pool=self.pool_tokens,
                host=use.host_tokens,
                inclusive=self.backend.inclusive,
                agents=self.agents,
                mean_prompt=_ratio(curve.prompt_tokens, len(use.prompt)),
                working_set=self.working_set,
                restored=int(use.restored.sum()),
                written=int(use.written.sum()),
                evicted=int(use.evicted.sum()),
                computed=int(use.computed.sum()),
                compulsory=round(curve.prompt_tokens * (1 - curve.ceiling)),
            )
        )

    def host_size(self, size: int) -> HostSize:
        """Return the facts of a size."""
        use = self.use(size)
        hits = self.hit_ratio(size)
        gain = self.best_hit_ratio - self.gpu_hit_ratio
        written = int(use.written.sum())
        verdict = self.verdict(size) if size else None
        saved = None
        if verdict:
            saved = (verdict.least.gain_s, verdict.mid.gain_s, verdict.most.gain_s)
        return HostSize(
            total_bytes=size,
            per_rank_bytes=size // self.options.ranks,
            holds_tokens=use.host_tokens,
            hit_ratio=hits,
            recovered=min((hits - self.gpu_hit_ratio) / gain, 1.0) if gain > 0 else 0.0,
            restored_tokens=int(use.restored.sum()),
            computed_tokens=int(use.computed.sum()),
            written_tokens=written,
            evicted_share=int(use.evicted.sum()) / written if written else None,
            thrashes=self.thrash(size).predicted,
            saved_s=saved,
            verdict=self.word(size, verdict) if verdict else None,
        )

    def _chunks(self, size: int) -> int:
        rank_bytes = size // self.options.ranks
        per_replica = self.workload.host_chunks(
            self.backend, rank_bytes, self.pool.kv_bytes_per_token
        )
        return per_replica * self.options.dp


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
