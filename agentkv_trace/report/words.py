"""A finding in one sentence: the answer first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.advise.verdict import SMALL, in_words
from agentkv_trace.report.units import format_bytes, format_ratio

if TYPE_CHECKING:
    from agentkv_trace.advise.verdict import Verdict
    from agentkv_trace.report.model import HostSize


def neutral(label: str, reason: str) -> str:
    """Return the sentence for a tier that has nothing to do."""
    return f"{label}: neutral: buy no host memory: {reason}"


def useless(label: str, size: HostSize, reason: str, verdict: Verdict) -> str:
    """Return the sentence for a size that gives no hits, with what it may lose if that counts."""
    lost = ""
    if -verdict.least.gain_s > SMALL * verdict.prefill_s:
        lost = f" and may lose {_share(verdict.least.gain_s, verdict)}"
    return f"{label}: neutral: {memory(size)} adds nothing{lost}: {reason}"


def judged(label: str, size: HostSize, gpu_hits: float, verdict: Verdict, *, asked: bool) -> str:
    """Return the sentence for a size with a verdict; asked: the size was given, not recommended."""
    hits = f"hits {format_ratio(gpu_hits)} -> {format_ratio(size.hit_ratio)}"
    share = _share(verdict.mid.gain_s, verdict)
    if verdict.word == "pays":
        buy = "" if asked else "buy "
        return f"{label}: pays: {buy}{memory(size)}: {hits}, saves {share}"
    if verdict.word == "costs":
        return f"{label}: costs: buy no host memory: {memory(size)}: {hits}, but loses {share}"
    if verdict.word == "neutral":
        return f"{label}: neutral: {memory(size)}: {hits}, within 1% of prefill time"
    assert verdict.decider is not None
    lost, saved = (_share(balance.gain_s, verdict) for balance in (verdict.least, verdict.most))
    return (
        f"{label}: depends on {in_words(verdict.decider)}: {memory(size)}: {hits}; loses {lost} at "
        f"worst, saves {saved} at best"
    )


def memory(size: HostSize) -> str:
    """Return a size as `64 GiB host memory`, with the part of a rank where there are several."""
    each = ""
    if size.per_rank_bytes != size.total_bytes:
        each = f" ({format_bytes(size.per_rank_bytes)} per rank)"
    return f"{format_bytes(size.total_bytes)} host memory{each}"


def _share(seconds: float, verdict: Verdict) -> str:
    """Return a time as a share of the prefill time without the tier, or a multiple of it."""
    share = abs(seconds) / verdict.prefill_s if verdict.prefill_s else 0.0
    if share > 1:
        return f"{share:.1f} times the prefill time"
    return f"{format_ratio(share)} of prefill time"
