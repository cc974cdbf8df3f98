"""How many bytes are a token, and how long are the heads that no log holds.

Both come from the usage that providers log: a prompt's logged tokens are its hidden head
plus its visible bytes at one rate for the whole trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_BYTES_PER_TOKEN = 4.0
"""Used where no usage is logged."""

PLAUSIBLE = (1.0, 8.0)
"""Bytes per token of any text: a fit outside says that the usage is not of this text."""

_OUTLIER_SHARE = 0.05
"""A head seen in fewer calls than this share (and fewer than 3) cannot raise the rate."""


@dataclass(frozen=True, slots=True)
class Growth:
    """From one call of a session to the next: visible bytes and logged tokens added."""

    visible_bytes: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One call with logged usage: its head, its visible bytes, and all tokens that are not head.

    `tokens` is the logged prompt length less opaque pieces of known length.
    """

    head: int
    visible_bytes: int
    tokens: int


def bytes_per_token(growths: Iterable[Growth], measured: Iterable[Measured]) -> float:
    """Return one rate for the whole trace.

    Sum of visible bytes over sum of token growth, so the hidden head cancels; raised as far
    as needed that no head becomes negative, outliers aside.
    """
    visible = tokens = 0
    for growth in growths:
        if growth.tokens > 0 and growth.visible_bytes > 0:
            visible += growth.visible_bytes
            tokens += growth.tokens
    rate = visible / tokens if tokens else DEFAULT_BYTES_PER_TOKEN
    by_head = _by_head(measured)
    calls = sum(map(len, by_head.values()))
    for group in by_head.values():
        needed = median(m.visible_bytes / m.tokens for m in group)
        if len(group) >= 3 or len(group) >= _OUTLIER_SHARE * calls:
            rate = max(rate, needed)
    return min(max(rate, PLAUSIBLE[0]), PLAUSIBLE[1])


def head_tokens(measured: Iterable[Measured], rate: float) -> dict[int, int]:
    """Return each head's length in tokens at `rate` bytes per token, by the head's index.

    The median over its calls of logged minus visible tokens, not below zero.
    """
    return {
        head: max(0, round(median(m.tokens - m.visible_bytes / rate for m in group)))
        for head, group in _by_head(measured).items()
    }


def _by_head(measured: Iterable[Measured]) -> dict[int, list[Measured]]:
    groups: dict[int, list[Measured]] = {}
    for m in measured:
        if m.tokens > 0:
            groups.setdefault(m.head, []).append(m)
    return groups
