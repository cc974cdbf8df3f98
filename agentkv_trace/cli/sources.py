"""`agentkv-trace sources`: which agents' logs are on this machine."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agentkv_trace.cli.options import QuietOption

if TYPE_CHECKING:
    from agentkv_trace.ingest.survey import Survey


def sources(quiet: QuietOption = False) -> None:
    """Show which agents' logs are on this machine, and the next command.

    Example:
      agentkv-trace sources
    """
    summary(quiet=quiet)


def summary(*, quiet: bool = False) -> bool:
    """Print what was found and the next command; False, and a word, if there is nothing."""
    from agentkv_trace.cli.output import say
    from agentkv_trace.cli.progress import progress
    from agentkv_trace.ingest.discover import default_logs
    from agentkv_trace.ingest.registry import SOURCES
    from agentkv_trace.ingest.survey import survey

    found = default_logs()
    total = sum(path.stat().st_size for path in found.paths() if path.is_file())
    with progress("Reading", total, quiet=quiet) as on_bytes:
        surveys = list(survey(found, on_bytes))
    for each in surveys:
        print(_line(each))
    if surveys:
        print("Next: agentkv-trace ingest -o trace.parquet")
    else:
        known = ", ".join(source.title for source in SOURCES if source.paths.roots(os.environ))
        say(
            f"No agents' logs on this machine (looked for: {known}). "
            "Next: agentkv-trace demo shows what there is to see",
            quiet=quiet,
        )
    return bool(surveys)


def _line(found: Survey) -> str:
    said = (
        f"{found.title}: {found.sessions:,} sessions, {found.calls:,} calls, "
        f"{found.size / 2**20:,.1f} MiB"
    )
    if found.first_us:
        said += f", {_day(found.first_us)} to {_day(found.last_us)}"
    return said


def _day(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d")
