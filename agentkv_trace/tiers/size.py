"""Capacities as people write them: `4096chunks`, `2Mtok`, `40GiB`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentkv_trace.errors import InputError

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BYTES = {"b": 1} | {
    f"{prefix}{infix}b": (1024 if infix else 1000) ** power
    for power, prefix in enumerate("kmgtp", start=1)
    for infix in ("", "i")
}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)", re.IGNORECASE)
_HELP = "write it like 4096chunks, 2Mtok or 40GiB"


@dataclass(frozen=True, slots=True)
class Size:
    """A cache capacity in `chunks`, `tokens` or `bytes`."""

    amount: float
    unit: str

    @staticmethod
    def parse(text: str) -> Size:
        """Read a capacity with its unit. Raises InputError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise InputError(f"capacity {text!r}: {_HELP}")
        amount, unit = float(match[1]), match[2].lower()
        if unit in ("chunk", "chunks"):
            return Size(amount, "chunks")
        if unit in _BYTES:
            return Size(amount * _BYTES[unit], "bytes")
        token = re.fullmatch(r"([kmgt]?)(?:tok|toks|token|tokens)", unit)
        if token is None:
            raise InputError(f"capacity {text!r}: unknown unit {match[2]!r}; {_HELP}")
        return Size(amount * _DECIMAL[token[1]], "tokens")

    def chunks(self, chunk_tokens: int, bytes_per_token: float | None) -> int:
        """Return how many whole chunks fit. Raises InputError for bytes without a model."""
        if self.unit == "chunks":
            return int(self.amount)
        if self.unit == "tokens":
            return int(self.amount // chunk_tokens)
        if bytes_per_token is None:
            raise InputError("a capacity in bytes needs --model (or --kv-bytes-per-token)")
        return int(self.amount // (chunk_tokens * bytes_per_token))


def parse_sizes(text: str) -> list[Size]:
    """Read capacities separated by commas. Raises InputError."""
    return [Size.parse(part) for part in text.split(",")]
