"""What a cache that forgets by time hits, beside what a provider logged: part of `mrc`'s result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_UNITS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"))

_LIVES = "time to live: as hosted models cache, no capacity; each touch starts it anew"
_LOGGED = (
    "logged as cached: lower where a provider wants a minimum prefix or explicit",
    "marks, counts in steps (OpenAI 128 tokens, as --chunk-tokens 128) or drops KV",
    "sooner; higher where agents share what is in no log",
)


@dataclass(frozen=True, slots=True)
class LoggedReads:
    """What providers logged over the calls for which they logged cached tokens."""

    calls: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def hit_ratio(self) -> float:
        """Cached tokens as a share of the logged prompt tokens."""
        return self.cached_tokens / self.prompt_tokens


@dataclass(frozen=True, slots=True)
class TtlPoint:
    """What calls hit with a time to live (microseconds; None: without limit).

    Ratios are hit tokens / prompt tokens, as `prefix_hit_ratio` of a capacity, over all calls and
    over those for which the provider logged cached tokens (None where there are none).
    """

    lifetime_us: int | None
    miss_ratio: float
    prefix_hit_ratio: float
    of_logged_calls: float | None


@dataclass(frozen=True, slots=True)
class TtlHits:
    """Hits by time to live over `calls` calls; `untimed` more have no times and are left out."""

    calls: int
    untimed: int
    points: tuple[TtlPoint, ...]
    logged: LoggedReads | None

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the JSON contract that `--ttl` asks for."""
        reads = self.logged
        return {
            "calls": self.calls,
            "untimed_calls": self.untimed,
            "points": [
                {
                    "ttl_seconds": _seconds(point.lifetime_us),
                    "miss_ratio": round(point.miss_ratio, 9),
                    "prefix_hit_ratio": round(point.prefix_hit_ratio, 9),
                    "logged_calls_prefix_hit_ratio": _rounded(point.of_logged_calls),
                }
                for point in self.points
            ],
            "logged": None
            if reads is None
            else {
                "calls": reads.calls,
                "prompt_tokens": reads.prompt_tokens,
                "cached_tokens": reads.cached_tokens,
                "hit_ratio": round(reads.hit_ratio, 9),
            },
        }


def csv_rows(hits: TtlHits) -> list[dict[str, Any]]:
    """Return the times to live as rows beside capacities, which they leave empty."""
    shown = ("ttl_seconds", "miss_ratio", "prefix_hit_ratio")
    points = hits.to_dict()["points"]
    return [
        {name: point[name] for name in shown}
        for point in points
        if point["ttl_seconds"] is not None
    ]


def table(hits: TtlHits) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: each time to live, then what the provider logged."""
    reads = hits.logged
    # Where every call has logged reads, the two columns would be the same.
    both = reads is not None and reads.calls < hits.calls
    head = ["time to live", "prefix hits"]
    rows = [[label(p.lifetime_us), f"{p.prefix_hit_ratio:.2%}"] for p in hits.points]
    if reads is not None:
        rows.append(["logged as cached", "" if both else f"{reads.hit_ratio:.2%}"])
    if both and reads is not None:
        head.append(f"of {reads.calls:,} logged calls")
        ratios = [*(point.of_logged_calls for point in hits.points), reads.hit_ratio]
        for row, ratio in zip(rows, ratios, strict=True):
            row.append("" if ratio is None else f"{ratio:.2%}")
    return head, rows


def group_table(by: str, groups: dict[str, TtlHits]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: a group a row, the times to live side by side."""
    first = next(iter(groups.values()))
    ends = [label(point.lifetime_us) for point in first.points]
    rows = [
        [
            name,
            *(f"{point.prefix_hit_ratio:.1%}" for point in hits.points),
            "-" if hits.logged is None else f"{hits.logged.hit_ratio:.1%}",
            "0" if hits.logged is None else f"{hits.logged.calls:,}",
        ]
        for name, hits in groups.items()
    ]
    return [by, *ends, "logged", "logged calls"], rows


def legend(hits: TtlHits) -> tuple[str, ...]:
    """Return what the figures mean."""
    return (_LIVES,) if hits.logged is None else (_LIVES, *_LOGGED)


def facts(hits: TtlHits) -> list[str]:
    """Return what must be said of the calls behind the figures."""
    if not hits.untimed:
        return []
    return [f"time to live: {hits.untimed:,} calls without times are left out"]


def label(lifetime_us: int | None) -> str:
    """Return a time to live such as `5 min`, `1 h` or `unlimited`."""
    if lifetime_us is None:
        return "unlimited"
    for size, unit in _UNITS:
        if lifetime_us % size == 0:
            return f"{lifetime_us // size:,} {unit}"
    return f"{lifetime_us / 1e6:g} s"


def _seconds(lifetime_us: int | None) -> float | int | None:
    if lifetime_us is None:
        return None
    whole, rest = divmod(lifetime_us, 1_000_000)
    return lifetime_us / 1e6 if rest else whole


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 9)
