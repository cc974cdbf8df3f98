"""The figures that are measured, and the gates on them: two literal tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["ratio", "tokens", "bytes", "fidelity", "flag"]


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured; `better` says in which direction, `tolerance` by how much it may regress.

    A tolerance is in points of ratios (`1pp`) or per cent of sizes (`5%`); None: not compared
    with a baseline.
    """

    name: str
    words: str
    unit: Unit
    better: Literal["high", "low"]
    tolerance: str | None
    explained: bool = True
    """Whether lost prefixes can explain a bad value."""


FIGURES = (
    Figure("hit_ratio", "prefix-hit ratio", "ratio", "high", "1pp"),
    Figure("next_call_reuse", "reuse in the session's next call", "ratio", "high", "1pp"),
    Figure("lost_share", "prompt tokens lost to breaks", "ratio", "low", "0.5pp"),
    Figure("head_change_share", "prompt tokens lost to head changes", "ratio", "low", "0.1pp"),
    Figure("lost_tokens", "tokens lost to breaks", "tokens", "low", None),
    Figure("head_change_tokens", "tokens lost to head changes", "tokens", "low", None),
    Figure("working_set_tokens", "working set", "tokens", "low", "5%"),
    Figure("host_bytes", "host memory needed", "bytes", "low", "5%"),
    Figure("thrash", "thrashing", "flag", "low", None),
    Figure("fidelity", "weakest fidelity", "fidelity", "high", "0%", explained=False),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A gate: its key in the configuration, the figure, which side the limit is, what it needs."""

    key: str
    figure: str
    bound: Literal["min", "max"]
    help: str
    needs: tuple[str, ...] = ()
    scoped: bool = True
    """Whether it may be set per agent and model."""


RULES = (
    Rule(
        "min-hit-ratio",
        "hit_ratio",
        "min",
        "least prefix-hit ratio, at `capacity`, else on each `gpu`, else without limit",
    ),
    Rule("min-next-call-reuse", "next_call_reuse", "min", "least share of new KV reused at once"),
    Rule("max-lost-tokens", "lost_tokens", "max", "most tokens lost to breaks"),
    Rule("max-lost-share", "lost_share", "max", "most prompt tokens lost to breaks, as a share"),
    Rule(
        "max-head-change-tokens",
        "head_change_tokens",
        "max",
        "most tokens lost to changed heads and tools (needs a layout)",
    ),
    Rule("max-working-set", "working_set_tokens", "max", "largest working set: 2Mtok, 40GiB"),
    Rule(
        "max-host-size",
        "host_bytes",
        "max",
        "most host memory needed on each GPU: 64GiB",
        ("profile", "gpu"),
        scoped=False,
    ),
    Rule(
        "no-thrash",
        "thrash",
        "max",
        "true: no thrashing on each GPU at `host-size`, with `agents` replayed if given",
        ("profile", "gpu"),
        scoped=False,
    ),
    Rule("min-fidelity", "fidelity", "min", "weakest fidelity that any call may have"),
)


def figure(name: str) -> Figure:
    """Return the figure of a name."""
    return next(each for each in FIGURES if each.name == name)
