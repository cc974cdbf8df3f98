"""What a restore, a recomputation and a store cost, and what a tier costs over a trace.

Pure functions; times in seconds, rates in GB/s (10^9 bytes), sizes in bytes. "Eq." counts the
equations of EfficientAgent (arXiv 2609.33762), which these extend: work grows with the position,
copies have an efficiency, stores may block, restores may overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.profiles.flops import PrefillCost

GIGA = 1e9


class Band(NamedTuple):
    """A figure that is not known exactly: low, mid and high."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """One set of costs, all known.

    mfu: share of the peak that prefill reaches. h2d_gbps, d2h_gbps: copies per rank, to the GPU
    and from it, as they arrive. restore_s: fixed time of a restore. store_sync_s: wait of each
    prefill step for its store. write_exposed: share of the copies to host that the engine feels.
    """

    mfu: float
    h2d_gbps: float
    d2h_gbps: float
    restore_s: float
    store_sync_s: float
    write_exposed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBands:
    """The same costs as bands, low to high as figures (not by whom they favour)."""

    mfu: Band
    h2d_gbps: Band
    d2h_gbps: Band
    restore_s: Band
    store_sync_s: Band
    write_exposed: Band

    def mid(self) -> Costs:
        """Return the costs in the middle of all bands."""
        return Costs(**{name: band.mid for name, band in self})

    def least(self) -> Costs:
        """Return the costs at which a host tier gains least.

        Fast prefill, slow copies, long waits.
        """
        return Costs(**{name: self._end(name, favourable=False) for name, _ in self})

    def most(self) -> Costs:
        """Return the costs at which a host tier gains most."""
        return Costs(**{name: self._end(name, favourable=True) for name, _ in self})

    def vary(self, name: str, value: float) -> Costs:
        """Return the middle costs with one of them set."""
        return replace(self.mid(), **{name: value})

    def __iter__(self) -> Iterator[tuple[str, Band]]:
        for field in fields(self):
            yield field.name, getattr(self, field.name)

    def _end(self, name: str, *, favourable: bool) -> float:
        band: Band = getattr(self, name)
        more_is_better = name in ("h2d_gbps", "d2h_gbps")
        return band.high if more_is_better == favourable else band.low


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The GPUs of one replica as one machine for prefill.

    linear_flops, attention_flops: peak FLOP/s over its ranks, of the matrices and of attention.
    kv_rank_bytes: KV per token on one rank; every rank copies its part over its own share of the
    link at once. overlap: share of a call's computing that hides its restore. replicas: how many
    of them share the calls; times over a trace are divided by it, times of one call are not.
    """

    linear_flops: float
    attention_flops: float
    kv_rank_bytes: float
    overlap: float = 0.0
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a tier changes over a trace, against the GPU alone; sums over calls.

    saved_*: FLOPs no longer computed; steps: prefill steps with the tier. Where the connector
    overlaps, `restored_each` and `computed_*_each` hold the same per call (arrays of one shape).
    """

    saved_linear: float
    saved_attention: float
    restored_tokens: int
    restores: int
    written_tokens: int
    steps: int
    restored_each: Any = None
    computed_linear_each: Any = None
    computed_attention_each: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Seconds over the trace; `saved` is prefill no longer computed, the others are paid."""

    saved_s: float
    restore_s: float
    write_s: float
    sync_s: float

    @property
    def gain_s(self) -> float:
        """Return the seconds the tier saves; below zero it costs."""
        return self.saved_s - self.restore_s - self.write_s - self.sync_s


def compute_per_host_byte(flops: float, link_gbps: float) -> float:
    """Return FLOP/s over bytes/s of the host link (paper, section 3): 2.2K, 2.3K and 15.5K there.

    The paper divides peak by raw lane rate. Alone it decides nothing: it knows neither hits nor
    waits.
    """
    return flops / (link_gbps * GIGA)


def recompute_s(linear: Any, attention: Any, machine: Machine, mfu: float) -> Any:
    """Return seconds to compute so many FLOPs (Eq. 2: T_rec, there n * t_pf)."""
    return (linear / machine.linear_flops + attention / machine.attention_flops) / mfu


def prefill_s(cost: PrefillCost, start: Any, end: Any, machine: Machine, mfu: float) -> Any:
    """Return seconds to compute positions `start` to `end`: later ones cost more.

    T_rec(s, e) = [A (e - s) + a (e^2 - s^2) / 2] / (mfu * peak).
    """
    return recompute_s(
        cost.linear_flops(start, end), cost.attention_flops(start, end), machine, mfu
    )


def load_s(tokens: Any, machine: Machine, costs: Costs) -> Any:
    """Return seconds of one restore of `tokens`: bytes on a rank / rate + fixed time (Eq. 2)."""
    return tokens * machine.kv_rank_bytes / (costs.h2d_gbps * GIGA) + costs.restore_s


def offload_benefit(cost: PrefillCost, tokens: int, machine: Machine, costs: Costs) -> float:
    """Return OBR = 1 - T_load / T_rec for a prefix of `tokens` (Eq. 2).

    Above 0 a hit that exists is worth restoring. It does not say that hits exist, nor what
    storing costs.
    """
    computed = prefill_s(cost, 0, tokens, machine, costs.mfu)
    return float(1 - load_s(tokens, machine, costs) / computed)


def break_even_gbps(cost: PrefillCost, tokens: int, machine: Machine, mfu: float) -> float:
    """Return the rate per rank from which restoring a prefix beats computing it.

    B* = bytes / T_rec, without the fixed time of a restore.
    """
    computed = prefill_s(cost, 0, tokens, machine, mfu)
    return float(tokens * machine.kv_rank_bytes / computed / GIGA)


def time_balance(traffic: Traffic, machine: Machine, costs: Costs) -> Balance:
    """Return the time balance over a trace (Eq. 3).

    dT = -(saved prefill) + R * beta / B + dT_other, where dT_other is what the engine feels of
    the copies to host, and the wait of every prefill step for its store. With overlap a restore
    counts as far as the call's own computing does not hide it.
    """
    saved = recompute_s(traffic.saved_linear, traffic.saved_attention, machine, costs.mfu)
    if machine.overlap and traffic.restored_each is not None:
        each = load_s(traffic.restored_each, machine, costs) * (traffic.restored_each > 0)
        hidden = machine.overlap * recompute_s(
            traffic.computed_linear_each, traffic.computed_attention_each, machine, costs.mfu
        )
        restore = float((each - hidden).clip(0).sum())
    else:
        copied = traffic.restored_tokens * machine.kv_rank_bytes / (costs.h2d_gbps * GIGA)
        restore = copied + traffic.restores * costs.restore_s
    copied = traffic.written_tokens * machine.kv_rank_bytes / (costs.d2h_gbps * GIGA)
    return Balance(
        saved_s=float(saved) / machine.replicas,
        restore_s=restore / machine.replicas,
        write_s=copied * costs.write_exposed / machine.replicas,
        sync_s=traffic.steps * costs.store_sync_s / machine.replicas,
    )
