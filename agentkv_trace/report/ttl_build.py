"""From a trace to its hits by time to live."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.engine.mrc import group_codes
from agentkv_trace.engine.ttl import ttl_hits
from agentkv_trace.errors import InputError
from agentkv_trace.report.ttl import LoggedReads, TtlHits, TtlPoint

if TYPE_CHECKING:
    from typing import Any

    from agentkv_trace.engine.path_stack import Runs, Timing
    from agentkv_trace.trace.store import Trace

HOSTED_US = (300_000_000, 3_600_000_000)
"""Times to live that are shown where a log tells of a provider's cache: 5 minutes, 1 hour."""

_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_US = 10**15


def parse_lifetimes(text: str) -> tuple[int, ...]:
    """Read times to live separated by commas, such as `5m,1h`, as microseconds.

    Raises InputError.
    """
    found = []
    for part in text.split(","):
        match = _FORM.fullmatch(part.strip().lower())
        lifetime = round(float(match[1]) * _SECONDS[match[2]] * 1e6) if match else 0
        if not 1 <= lifetime <= _LONGEST_US:
            raise InputError(f"--ttl {part.strip()!r}: write it like 5m or 1h (units s, m, h, d)")
        found.append(lifetime)
    return tuple(found)


def tells_of_hosted_cache(trace: Trace) -> bool:
    """Tell whether calls with times are among a trace's, and a provider logged cached tokens."""
    reads = trace.array("logged_cached_tokens") > 0
    return bool(reads.any() and _timed(trace).any())


def build_ttl(
    trace: Trace, runs: Runs, timing: Timing, lifetimes_us: tuple[int, ...], by: str | None = None
) -> tuple[TtlHits, dict[str, TtlHits]]:
    """Return the hits by time to live of all calls, and of each group by column `by`.

    `runs` are the trace's, made with `timing`; groups without a call that has times are left out.
    Raises InputError where no call has times.
    """
    import numpy as np

    if not _timed(trace).any():
        raise InputError("--ttl: these calls have no times in their logs, only an order")
    ends = trace.array("t_end_us")
    hits = ttl_hits(
        runs,
        trace.array("t_start_us"),
        # Nothing is further back than the whole trace is long.
        [*lifetimes_us, int(ends.max()) + 1],
        t_end_us=ends if timing == "overlap" else None,
    )
    lifetimes = (*lifetimes_us, None)
    (whole,) = _by(trace, hits, lifetimes, np.zeros(len(trace), np.int64), 1)
    if by is None:
        return whole, {}
    codes, names = group_codes(trace, by)
    found = zip(names, _by(trace, hits, lifetimes, codes, len(names)), strict=True)
    return whole, {name: group for name, group in found if group.calls}


def _timed(trace: Trace) -> Any:
    """Return bool[calls]: whose times are more than an order."""
    codes, names = trace.codes("time_source")
    return codes != (names.index("order_only") if "order_only" in names else -1)


def _by(
    trace: Trace, hits: Any, lifetimes: tuple[int | None, ...], codes: Any, groups: int
) -> list[TtlHits]:
    """Return the hits of each group. `hits` is int64[lifetimes, calls], `codes` int[calls]."""
    import numpy as np

    chunk = trace.meta.chunk_tokens
    prompt, read = trace.array("logged_prompt_tokens"), trace.array("logged_cached_tokens")
    timed = _timed(trace)
    logged = timed & (read >= 0) & (prompt > 0)

    def sums(values: Any, among: Any) -> list[int]:
        # Doubles hold these sums exactly: they are far below 2**53.
        found = np.bincount(codes[among], weights=values[among], minlength=groups)
        return found.astype(np.int64).tolist()  # type: ignore[no-any-return]

    ones = np.ones(len(trace), np.int64)
    calls, untimed, readings = sums(ones, timed), sums(ones, ~timed), sums(ones, logged)
    tokens, chunks = (
        sums(trace.array("prompt_tokens"), timed),
        sums(trace.array("prompt_chunks"), timed),
    )
    logged_tokens = sums(trace.array("prompt_tokens"), logged)
    prompts, reads = sums(prompt, logged), sums(read, logged)
    hit = [sums(row, timed) for row in hits]
    logged_hit = [sums(row, logged) for row in hits]
    return [
        TtlHits(
            calls[k],
            untimed[k],
            tuple(
                TtlPoint(
                    lifetime,
                    1.0 - hit[i][k] / chunks[k] if chunks[k] else 1.0,
                    hit[i][k] * chunk / tokens[k] if tokens[k] else 0.0,
                    logged_hit[i][k] * chunk / logged_tokens[k] if logged_tokens[k] else None,
                )
                for i, lifetime in enumerate(lifetimes)
            ),
            LoggedReads(readings[k], prompts[k], reads[k]) if readings[k] else None,
        )
        for k in range(groups)
    ]
