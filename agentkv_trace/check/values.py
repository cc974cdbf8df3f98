"""Limits and tolerances as people write them, and values as people read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.errors import InputError
from agentkv_trace.report.units import format_bytes, format_tokens
from agentkv_trace.tiers.size import Size
from agentkv_trace.trace.call import FIDELITIES

if TYPE_CHECKING:
    from agentkv_trace.check.model import Value
    from agentkv_trace.check.rules import Rule, Unit

_TOLERANCE = re.compile(r"(\d+(?:\.\d+)?)\s*(pp|%)")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a figure may regress: in points of a ratio, or in per cent of its value."""

    amount: float
    unit: str

    @staticmethod
    def parse(text: object, where: str = "tolerance") -> Tolerance:
        """Read `1pp` or `5%`. Raises InputError."""
        match = _TOLERANCE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise InputError(f"{where}: must be like '1pp' (points) or '5%', not {text!r}")
        return Tolerance(float(match[1]), match[2])

    def fits(self, unit: Unit) -> bool:
        """Tell whether figures of a unit can have it."""
        return (self.unit == "pp") == (unit == "ratio")

    def of(self, value: float) -> float:
        """Return the difference it allows from a value."""
        return self.amount / 100 * (1.0 if self.unit == "pp" else value)

    def __str__(self) -> str:
        return f"{self.amount:g}{self.unit}"


def limit_of(rule: Rule, value: Any, where: str) -> Any:
    """Return the limit of a gate as given; sizes stay text until the chunk is known.

    Raises InputError where it cannot be meant.
    """
    if rule.key == "no-thrash":
        if not isinstance(value, bool):
            raise InputError(f"{where}: must be true or false")
        return value
    if rule.key == "min-fidelity":
        if value not in FIDELITIES:
            raise InputError(f"{where}: must be one of {', '.join(FIDELITIES)}")
        return value
    if rule.key in ("max-working-set", "max-host-size"):
        return _size(value, where, bytes_only=rule.key == "max-host-size")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"{where}: must be a number")
    if rule.key.endswith("-tokens"):
        if not isinstance(value, int) or value < 0:
            raise InputError(f"{where}: must be a whole number of tokens, zero or more")
        return value
    return _ratio(value, where)


def _size(value: Any, where: str, *, bytes_only: bool) -> str:
    text = f"{value}tok" if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise InputError(f"{where}: must be a size such as 2Mtok or 40GiB")
    try:
        size = Size.parse(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if bytes_only and size.unit != "bytes":
        raise InputError(f"{where}: must be in bytes, such as 64GiB")
    return text


def _ratio(value: float | str, where: str) -> float:
    """Read a share from 0 to 1, or a percentage as text."""
    if isinstance(value, str):
        percent = value.strip().removesuffix("%")
        try:
            value = float(percent) / 100 if value.strip().endswith("%") else -1.0
        except ValueError:
            value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"{where}: must be a share from 0 to 1, or like '90%'")
    return float(value)


def in_words(value: Value, unit: Unit) -> str:
    """Return a value as text with its unit."""
    if unit == "ratio":
        return f"{100 * float(value):.2f}%"
    if unit == "tokens":
        return f"{format_tokens(int(value))} tokens"
    if unit == "bytes":
        return format_bytes(float(value))
    if unit == "flag":
        return "predicted" if value else "not predicted"
    return str(value)
