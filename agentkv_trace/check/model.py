"""What `check` found; the JSON output has exactly these fields (`schemas/check.schema.json`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.check.rules import Unit

SCHEMA = "agentkv-trace/check/1"

Value = float | int | str | bool
"""A figure: a ratio or a size, the name of a fidelity, or whether tiers thrash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One figure of one scope (`all`, `agent codex`, `model m`); `error` is half its band.

    `where` is what it was measured on in words, empty where it depends on nothing; `name` tells
    it from the same figure elsewhere.
    """

    name: str
    figure: str
    scope: str
    where: str
    value: Value
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A gate with its verdict.

    `rule` is the key in the configuration, or `baseline`; `limit` what the value had to keep,
    `baseline` the value before. `cause` says what is to blame, where that is known.
    """

    rule: str
    figure: str
    scope: str
    where: str
    unit: Unit
    bound: str
    value: Value
    limit: Value
    baseline: Value | None
    error: float
    passed: bool
    message: str
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """All findings: the same input gives the same result, no clock and no path."""

    schema: str
    version: str
    passed: bool
    calls: int
    sessions: int
    prompt_tokens: int
    layout: bool
    config: str
    findings: tuple[Finding, ...]
    causes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Return the findings that did not pass."""
        return tuple(finding for finding in self.findings if not finding.passed)
