"""One trace from what a verb was given: a trace file, or logs that are read on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.trace.select import Filter
    from agentkv_trace.trace.store import Trace


def load_any(
    names: list[str],
    only: Filter | None,
    *,
    bytes_per_token: float | None = None,
    quiet: bool = False,
) -> Trace:
    """Read a trace file as it is, or logs (with the layout) into a trace.

    Raises InputError where nothing is left of it.
    """
    from agentkv_trace.cli.options import load

    if len(names) == 1 and is_trace(names[0]):
        return load(Path(names[0]), only)
    from agentkv_trace.cli.ingest import read_sources
    from agentkv_trace.ingest.run import Options

    options = Options(bytes_per_token=bytes_per_token, layout=True)
    return read_sources(names, options, only, quiet=quiet).trace


def is_trace(name: str) -> bool:
    """Tell whether a name is that of a trace file."""
    path = Path(name)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"
