"""What an ingest run read, skipped and deduplicated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agentkv_trace.errors import InputError

MAX_EXAMPLES = 5
"""How many places are kept for each reason."""


@dataclass(slots=True)
class Notes:
    """Counts for one source; `examples` holds a few `path:line` per reason, for the screen only."""

    strict: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, what: str, amount: int = 1) -> None:
        """Add to a count such as `files`, `bytes`, `sessions` or `deduplicated calls`."""
        self.counts[what] += amount

    def skip(self, reason: str, path: str, line: int | None = None) -> None:
        """Count something that could not be used, with its place.

        Raises InputError in strict mode.
        """
        where = path if line is None else f"{path}:{line}"
        if self.strict:
            raise InputError(f"{where}: {reason} (without --strict it would be skipped)")
        self.skipped[reason] += 1
        places = self.examples.setdefault(reason, [])
        if len(places) < MAX_EXAMPLES:
            places.append(where)

    def merge(self, other: Notes) -> None:
        """Add what another reader of the same source has noted."""
        self.counts.update(other.counts)
        self.skipped.update(other.skipped)
        for reason, places in other.examples.items():
            kept = self.examples.setdefault(reason, [])
            kept.extend(places[: MAX_EXAMPLES - len(kept)])
