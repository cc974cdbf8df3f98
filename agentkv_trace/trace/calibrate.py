"""How many bytes are a token, and how long is what no log holds.

All comes from the usage that providers log: a prompt's logged tokens are its hidden head,
its visible bytes at one rate, and what it holds of earlier reasoning, at one scale for the
whole trace.
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


MAX_REASONING_SCALE = 64.0
"""Bounds what is fitted where usage counts reasoning in another way than prompts do."""

_ENOUGH = 0.2
"""Steps without reasoning give the rate where they hold this share of the visible bytes."""


@dataclass(frozen=True, slots=True)
class Growth:
    """From one call of a session to the next: what was added to the prompt.

    `tokens` is the growth of logged usage less opaque pieces of known length, `reasoning` the
    tokens of reasoning that usage told when it was made.
    """

    visible_bytes: int
    tokens: int
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """One call with logged usage: its head and what else is in its prompt, as in Growth."""

    head: int
    visible_bytes: int
    tokens: int
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per token of visible text, and prompt tokens per token of reasoning in usage."""

    bytes_per_token: float
    reasoning_scale: float = 1.0


def fit(
    growths: Iterable[Growth],
    measured: Iterable[Measured],
    *,
    fixed_bytes_per_token: float | None = None,
) -> Rates:
    """Return the rates of a trace.

    Bytes per token are the sum of visible bytes over the sum of token growth, so the hidden
    head cancels; from steps without reasoning where there are enough. What the other steps
    grow beyond their visible bytes is reasoning: some providers keep all of it in the prompt,
    some drop it. At last the rate is raised as far as needed that no head becomes negative,
    outliers aside.
    """
    steps = [growth for growth in growths if growth.tokens > 0 and growth.visible_bytes > 0]
    plain = [growth for growth in steps if not growth.reasoning]
    mixed = [growth for growth in steps if growth.reasoning]
    if _visible(plain) < _ENOUGH * _visible(steps):
        plain = steps
    tokens = sum(growth.tokens for growth in plain)
    rate = fixed_bytes_per_token or (_visible(plain) / tokens if tokens else None)
    if rate is None:
        rate = DEFAULT_BYTES_PER_TOKEN
    scale = 1.0
    if mixed and plain is not steps:
        hidden = sum(growth.tokens for growth in mixed) - _visible(mixed) / rate
        scale = hidden / sum(growth.reasoning for growth in mixed)
        scale = min(max(scale, 0.0), MAX_REASONING_SCALE)
    if fixed_bytes_per_token:
        return Rates(rate, scale)
    by_head = _by_head(measured)
    calls = sum(map(len, by_head.values()))
    for group in by_head.values():
        needed = median(m.visible_bytes / max(m.tokens - scale * m.reasoning, 1.0) for m in group)
        if len(group) >= 3 or len(group) >= _OUTLIER_SHARE * calls:
            rate = max(rate, needed)
    return Rates(min(max(rate, PLAUSIBLE[0]), PLAUSIBLE[1]), scale)


def head_tokens(measured: Iterable[Measured], rates: Rates) -> dict[int, int]:
    """Return each head's length in tokens, by the head's index.

    The median over its calls of what is logged less what is seen, not below zero.
    """
    return {
        head: max(
            0,
            round(
                median(
                    m.tokens
                    - m.visible_bytes / rates.bytes_per_token
                    - rates.reasoning_scale * m.reasoning
                    for m in group
                )
            ),
        )
        for head, group in _by_head(measured).items()
    }


def _visible(growths: list[Growth]) -> int:
    return sum(growth.visible_bytes for growth in growths)


def _by_head(measured: Iterable[Measured]) -> dict[int, list[Measured]]:
    groups: dict[int, list[Measured]] = {}
    for m in measured:
        if m.tokens > 0:
            groups.setdefault(m.head, []).append(m)
    return groups
