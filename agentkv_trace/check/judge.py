"""From figures, gates and a baseline to findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_trace import __version__
from agentkv_trace.advise.break_causes import top_causes
from agentkv_trace.advise.break_places import place_words
from agentkv_trace.advise.break_words import CAUSES, CLASSES, HEAD_CLASSES
from agentkv_trace.check import baseline as baselines
from agentkv_trace.check.figures import bytes_per_token
from agentkv_trace.check.model import SCHEMA, CheckResult, Finding, Measured
from agentkv_trace.check.rules import figure
from agentkv_trace.check.values import Tolerance, in_words
from agentkv_trace.errors import InputError
from agentkv_trace.report.units import format_tokens
from agentkv_trace.tiers.size import Size
from agentkv_trace.trace.call import FIDELITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.break_causes import TopCause
    from agentkv_trace.advise.breaks import Break
    from agentkv_trace.check.baseline import Baseline
    from agentkv_trace.check.config import Config, Gate
    from agentkv_trace.check.figures import Figures
    from agentkv_trace.trace.store import Trace

CAUSES_NAMED = 2
"""Causes that a failed finding names."""

NO_CAUSE = "no call lost its prefix: the workload itself is another"


def judge(trace: Trace, figures: Figures, config: Config, baseline: Baseline | None) -> CheckResult:
    """Return the verdict of every gate and of every figure in the baseline.

    Raises InputError where a gate asks for what the trace or the configuration does not have.
    """
    explained = _Causes(trace, figures.breaks)
    findings: list[Finding] = []
    notes: list[str] = []
    for gate in config.gates:
        chosen = _measured(figures, gate, trace, config)
        if not chosen:
            notes.append(f"{gate.rule.key}: no call of {gate.scope}")
        findings += [_gated(gate, one, config, trace, explained) for one in chosen]
    if baseline is not None:
        by_name = {(one.scope, one.name): one for one in figures.measured}
        for scope, entries in baseline.figures.items():
            for name, stored in entries.items():
                now = by_name.get((scope, name))
                if now is None:
                    notes.append(f"{name} of {scope} is in the baseline and was not measured")
                else:
                    findings.append(_compared(now, stored, config, explained))
    if trace.layout() is None:
        notes.append(
            "the trace has no layout, so causes are not known: "
            "ingest --with-layout, or check the logs themselves"
        )
    return CheckResult(
        schema=SCHEMA,
        version=__version__,
        passed=all(finding.passed for finding in findings),
        calls=len(trace),
        sessions=len(set(trace.codes("session")[0].tolist())),
        prompt_tokens=int(trace.array("prompt_tokens").sum(dtype="int64")),
        layout=trace.layout() is not None,
        config=config.hash,
        findings=tuple(findings),
        causes=tuple(explained.all()),
        notes=tuple(notes),
    )


def _measured(figures: Figures, gate: Gate, trace: Trace, config: Config) -> list[Measured]:
    """Return what a gate is about. Raises InputError where it cannot be measured."""
    missing = [key for key in gate.rule.needs if not config.get(key)]
    if missing:
        raise InputError(f"check: {gate.rule.key} needs {' and '.join(missing)}")
    found = [
        one
        for one in figures.measured
        if one.figure == gate.rule.figure and one.scope == gate.scope
    ]
    if not found and gate.rule.figure.startswith("head_change") and trace.layout() is None:
        raise InputError(
            f"check: {gate.rule.key} needs the layout: ingest --with-layout, or check the logs"
        )
    return found


def _gated(gate: Gate, one: Measured, config: Config, trace: Trace, causes: _Causes) -> Finding:
    kind = figure(one.figure)
    limit = _limit(gate, config, trace.meta.chunk_tokens)
    if kind.unit == "fidelity":
        passed = FIDELITIES.index(str(one.value)) <= FIDELITIES.index(limit)
    elif kind.unit == "flag":
        passed = not (one.value and gate.limit)
    elif gate.rule.bound == "min":
        passed = float(one.value) + one.error >= limit
    else:
        passed = float(one.value) - one.error <= limit
    side = "at least" if gate.rule.bound == "min" else "at most"
    value = in_words(one.value, kind.unit)
    asked = f", {side} {in_words(limit, kind.unit)}" if kind.unit != "flag" else ""
    return Finding(
        rule=gate.rule.key,
        figure=one.figure,
        scope=one.scope,
        where=one.where,
        unit=kind.unit,
        bound=gate.rule.bound,
        value=one.value,
        limit=limit,
        baseline=None,
        error=one.error,
        passed=passed,
        message=f"{_subject(one)}: {value}{_band(one.error, kind.unit)}{asked}",
        cause=None if passed else causes.of(one),
    )


def _limit(gate: Gate, config: Config, chunk_tokens: int) -> Any:
    if gate.rule.key == "max-working-set":
        size = Size.parse(gate.limit)
        per_token = bytes_per_token(config) if size.unit == "bytes" else None
        return size.chunks(chunk_tokens, per_token) * chunk_tokens
    if gate.rule.key == "max-host-size":
        return int(Size.parse(gate.limit).amount)
    return False if gate.rule.key == "no-thrash" else gate.limit


def _compared(one: Measured, stored: dict[str, Any], config: Config, causes: _Causes) -> Finding:
    kind = figure(one.figure)
    tolerance = config.tolerances.get(one.figure) or Tolerance.parse(kind.tolerance)
    found = baselines.compare(one, stored, tolerance)
    before, value = in_words(found.before, kind.unit), in_words(one.value, kind.unit)
    allowed = "" if kind.unit == "fidelity" else f", may {_worsen(kind.better)} by {tolerance}"
    return Finding(
        rule="baseline",
        figure=one.figure,
        scope=one.scope,
        where=one.where,
        unit=kind.unit,
        bound="min" if kind.better == "high" else "max",
        value=one.value,
        limit=found.limit,
        baseline=found.before,
        error=found.error,
        passed=found.passed,
        message=(
            f"{_subject(one)}: {value}{_band(found.error, kind.unit)}, "
            f"{before} in the baseline{allowed}"
        ),
        cause=None if found.passed else causes.of(one),
    )


def _worsen(better: str) -> str:
    return "fall" if better == "high" else "grow"


def _subject(one: Measured) -> str:
    scope = "" if one.scope == "all" else f" of {one.scope}"
    return " ".join(filter(None, (figure(one.figure).words + scope, one.where)))


def _band(error: float, unit: Any) -> str:
    return f" (+-{in_words(error, unit)})" if error else ""


class _Causes:
    """The causes of a trace's breaks in sentences; made when one is asked for."""

    def __init__(self, trace: Trace, breaks: Sequence[Break]) -> None:
        self._trace = trace
        self._breaks = [one for one in breaks if one.kind != "resumed_expired"]
        self._found: list[TopCause] | None = None

    def _top(self) -> list[TopCause]:
        if self._found is None:
            self._found = top_causes(self._trace, self._breaks)
        return self._found

    def all(self) -> list[str]:
        """Return the causes that lost most, in sentences."""
        return self._sentences(self._top()[:5])

    def of(self, one: Measured) -> str | None:
        """Return what is to blame for a figure's value."""
        if not figure(one.figure).explained:
            return None
        heads = one.figure.startswith("head_change")
        chosen = [each for each in self._top() if not heads or each.kind in HEAD_CLASSES]
        return "; ".join(self._sentences(chosen[:CAUSES_NAMED])) or NO_CAUSE

    def _sentences(self, causes: Sequence[TopCause]) -> list[str]:
        examples = [self._breaks[cause.members[0]] for cause in causes]
        places = place_words(self._trace.layout(), examples)
        return [
            self._sentence(cause, one, place)
            for cause, one, place in zip(causes, examples, places, strict=True)
        ]

    def _sentence(self, cause: TopCause, one: Break, place: str) -> str:
        words = CLASSES[cause.kind]
        if cause.cause:
            words += f": {CAUSES[cause.cause].words}"
        calls = len(cause.members)
        session = self._trace.table["session"][one.call].as_py()
        index = self._trace.table["index"][one.call].as_py()
        where = f", {place}" if place else ""
        return (
            f"{words}: {calls:,} call{'' if calls == 1 else 's'} lost "
            f"{format_tokens(cause.lost_tokens)} tokens, such as {session} call {index} at token "
            f"{one.token:,}{where}"
        )
