"""The figures of a trace that was good: a small file to commit, and what may not get worse."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.check.rules import figure
from agentkv_trace.errors import InputError
from agentkv_trace.trace.call import FIDELITIES

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.check.config import Config
    from agentkv_trace.check.figures import Figures
    from agentkv_trace.check.model import Measured, Value
    from agentkv_trace.check.values import Tolerance
    from agentkv_trace.trace.store import Trace

SCHEMA = "agentkv-trace/baseline/1"
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Baseline:
    """Figures by scope and name, each with its value and error, and how they were measured."""

    config: str
    chunk_tokens: int
    tokenizer: dict[str, Any]
    sampling: dict[str, Any] | None
    calls: int
    figures: dict[str, dict[str, dict[str, Any]]]

    @property
    def bytes_per_token(self) -> float | None:
        """Return the rate that logs must be read at to compare, where it is one of bytes."""
        chunk = self.tokenizer.get("bytes_per_chunk")
        return None if chunk is None else chunk / self.chunk_tokens


def make(trace: Trace, figures: Figures, config: Config) -> Baseline:
    """Return the baseline of a trace's figures."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in figures.measured:
        if figure(one.figure).tolerance is not None:
            entry = {"value": _rounded(one.value), "error": _rounded(one.error)}
            found.setdefault(one.scope, {})[one.name] = entry
    return Baseline(
        config=config.hash,
        chunk_tokens=trace.meta.chunk_tokens,
        tokenizer=_pinned(trace),
        sampling=figures.sampling,
        calls=len(trace),
        figures=found,
    )


def render(baseline: Baseline) -> str:
    """Return the file's text: one figure a line, always in the same order."""
    head = {
        "schema": SCHEMA,
        "config": baseline.config,
        "chunk_tokens": baseline.chunk_tokens,
        "tokenizer": baseline.tokenizer,
        "sampling": baseline.sampling,
        "calls": baseline.calls,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    scopes = []
    for scope, figures in baseline.figures.items():
        rows = [f"      {json.dumps(name)}: {json.dumps(one)}" for name, one in figures.items()]
        scopes.append(f"    {json.dumps(scope)}: {{\n" + ",\n".join(rows) + "\n    }")
    inside = ",\n".join(scopes)
    return "{\n" + "\n".join(lines) + '\n  "figures": {\n' + inside + "\n  }\n}\n"


def read(path: Path) -> Baseline:
    """Read a baseline. Raises InputError, naming the file, if it is none that we can read."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        kind, _, major = stored["schema"].rpartition("/")
        if kind != SCHEMA.rpartition("/")[0]:
            raise ValueError(stored["schema"])
        if int(major) > int(SCHEMA.rpartition("/")[2]):
            raise InputError(
                f"{path}: written by a newer agentkv-trace (schema {stored['schema']}); upgrade it"
            )
        names = ("config", "chunk_tokens", "tokenizer", "sampling", "calls", "figures")
        baseline = Baseline(*(stored[name] for name in names))
        for scope in baseline.figures.values():
            for one in scope.values():
                float(one["error"]), one["value"]
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such baseline; make it with `agentkv-trace check --update-baseline`"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: damaged baseline ({type(error).__name__}: {error}); "
            "make it again with --update-baseline"
        ) from None
    return baseline


def demand_comparable(baseline: Baseline, trace: Trace, config: Config, where: Path) -> None:
    """Raise InputError where figures of both would mean different things."""
    if baseline.config != config.hash:
        raise InputError(
            f"{where}: made with another configuration ({baseline.config}, now {config.hash}); "
            "if that is meant, run `agentkv-trace check --update-baseline`"
        )
    for what, then, now in (
        ("chunks", baseline.chunk_tokens, trace.meta.chunk_tokens),
        ("tokenizer", baseline.tokenizer, _pinned(trace)),
    ):
        if then != now:
            rate = baseline.bytes_per_token
            fix = f"ingest with --bytes-per-token {rate:g}" if rate else "ingest as it was"
            raise InputError(f"{where}: {what} differ: {then} there, {now} here; {fix}")


def _pinned(trace: Trace) -> dict[str, Any]:
    return {key: each for key, each in trace.meta.tokenizer.items() if key != "reasoning_scale"}


def _rounded(value: Value) -> Value:
    return round(value, DIGITS) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure against its baseline: the worst value that passes, and whether it does."""

    before: Value
    limit: Value
    error: float
    passed: bool


def compare(one: Measured, stored: dict[str, Any], tolerance: Tolerance) -> Compared:
    """Return whether a figure regressed by no more than is allowed.

    The errors of both are allowed on top of the tolerance: a difference inside them says
    nothing.
    """
    kind = figure(one.figure)
    before, error = stored["value"], float(stored["error"]) + one.error
    if kind.unit == "fidelity":
        passed = FIDELITIES.index(str(one.value)) <= FIDELITIES.index(before)
        return Compared(before, before, 0.0, passed)
    room = tolerance.of(float(before)) + error + 10**-DIGITS
    if kind.better == "high":
        limit = float(before) - room
        return Compared(before, limit, error, float(one.value) >= limit)
    limit = float(before) + room
    return Compared(before, limit, error, float(one.value) <= limit)
