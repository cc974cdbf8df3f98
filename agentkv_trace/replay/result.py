"""What a replay found: per call, over time, and in sums."""

# ruff: noqa: TID253
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace.replay.segments import EVICTED, UNUSED, WRITTEN
from agentkv_trace.replay.work import REJECTED, SERIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.replay.timeline import Timeline

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One replay.

    prompt, output: tokens of each replayed call; call: its row in the trace; done: what became of
    it (`work.DONE` records). counts: int64[tiers, segments.COUNTS], chunks of each tier (GPU and
    host of replica 0, of replica 1, ...). series: float64[samples, SERIES]. agents: families that
    run at a time at most.
    """

    setting: Setting
    timeline: Timeline
    agents: int
    chunk_tokens: int
    host_chunk_tokens: int
    pool_tokens: int | None
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    call: NDArray[np.int32]
    session: NDArray[np.int32]
    done: Any
    counts: NDArray[np.int64]
    series: NDArray[np.float64]
    preemptions: int
    notes: tuple[str, ...] = field(default=())

    @property
    def served(self) -> NDArray[np.bool_]:
        """Return which calls were served: bool[calls]."""
        served: NDArray[np.bool_] = self.done.state != REJECTED
        return served

    @property
    def computed_tokens(self) -> int:
        """Return the prompt tokens computed, those computed again after a preemption aside."""
        return int(self.done.computed.sum(dtype=np.int64))

    @property
    def makespan_s(self) -> float:
        """Return the seconds from the first arrival to the last end."""
        if not self.done.ended.size:
            return 0.0
        return float(self.done.ended.max() - self.done.arrived.min())

    def summary(self) -> dict[str, Any]:
        """Return the sums: seconds, tokens and shares; None where there is nothing to divide by."""
        done, served = self.done, self.served
        prompt = int(self.prompt[served].sum())
        output = int(self.output[served].sum())
        span = self.makespan_s
        gpu, restored = (int(part.sum(dtype=np.int64)) for part in (done.gpu, done.restored))
        host = self.counts[1::2].sum(axis=0) * self.host_chunk_tokens
        pool = self.counts[0::2].sum(axis=0) * self.chunk_tokens
        return {
            "calls": int(served.sum()),
            "rejected": int((~served).sum()),
            "makespan_s": span,
            "calls_per_s": _ratio(int(served.sum()), span),
            "prompt_tokens_per_s": _ratio(prompt, span),
            "output_tokens_per_s": _ratio(output, span),
            "ttft_s": _spread((done.first - done.arrived)[served]),
            "latency_s": _spread((done.ended - done.arrived)[served]),
            "queued_s": _spread((done.started - done.arrived)[served]),
            "prompt_tokens": prompt,
            "gpu_tokens": gpu,
            "restored_tokens": restored,
            "computed_tokens": self.computed_tokens,
            "recomputed_tokens": int(done.recomputed.sum(dtype=np.int64)),
            "written_tokens": int(host[WRITTEN]),
            "gpu_hit_ratio": _ratio(gpu, prompt),
            "host_hit_ratio": _ratio(restored, prompt),
            "hit_ratio": _ratio(gpu + restored, prompt),
            "external_hit_ratio": _ratio(restored, prompt - gpu),
            "host_evicted_tokens": int(host[EVICTED]),
            "host_evicted_before_reuse": _ratio(int(host[UNUSED]), int(host[WRITTEN])),
            "gpu_evicted_before_reuse": _ratio(int(pool[UNUSED]), int(pool[WRITTEN])),
            "gpu_occupancy": self._occupancy("resident_chunks"),
            "gpu_held": self._occupancy("held_chunks"),
            "mean_live_tokens": self._mean("live_tokens"),
            "mean_queue": self._in_all(done.started - done.arrived),
            "mean_running": self._in_all(done.ended - done.started),
            "preemptions": self.preemptions,
        }

    def over_time(self) -> dict[str, NDArray[np.float64]]:
        """Return the samples over time by name, and the hit ratios between one and the next."""
        columns = {name: self.series[:, i] for i, name in enumerate(SERIES)}
        steps = {name: np.diff(columns[name], prepend=0.0) for name in SERIES[-3:]}
        total = np.maximum(steps["prompt_tokens"], 1)
        columns["gpu_hit_ratio"] = steps["gpu_tokens"] / total
        columns["host_hit_ratio"] = steps["restored_tokens"] / total
        return columns

    def _in_all(self, seconds: NDArray[np.float64]) -> float | None:
        """Return how many calls are in a state at a time, from how long each was (Little's law)."""
        return _ratio(float(seconds[self.served].sum()), self.makespan_s)

    def _mean(self, name: str) -> float | None:
        """Return the mean of a series over time."""
        time, values = self.series[:, 0], self.series[:, SERIES.index(name)]
        if not time.size or time[-1] <= time[0]:
            return None
        return float(np.average(values[1:], weights=np.diff(time)))

    def _occupancy(self, name: str) -> float | None:
        mean = self._mean(name)
        if mean is None or self.pool_tokens is None:
            return None
        return mean * self.chunk_tokens / self.pool_tokens / self.setting.replicas


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _spread(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Return mean and percentiles, None without values."""
    if not values.size:
        return dict.fromkeys(("mean", *(f"p{percent}" for percent in PERCENTILES)))
    found = np.percentile(values, PERCENTILES)
    spread: dict[str, float | None] = {"mean": float(values.mean())}
    for percent, value in zip(PERCENTILES, found, strict=True):
        spread[f"p{percent}"] = float(value)
    return spread
