"""The table of sources that `ingest` reads."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.call import LoggedCall


class Paths(Protocol):
    """Where a source's logs are and what they look like (its `paths` module)."""

    def roots(self, env: Mapping[str, str]) -> list[Path]:
        """Return the folders where this agent keeps its logs, existing or not."""

    def find(self, folder: Path) -> list[Path]:
        """Return the logs below a folder, each session's once."""

    def looks_like(self, path: Path, head: bytes) -> bool:
        """Tell by the first bytes of its content, decompressed, whether a file is such a log."""


class Calls(Protocol):
    """How a source's logs become calls (its `calls` module)."""

    def read(
        self,
        files: Sequence[Path],
        notes: Notes,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[LoggedCall]:
        """Yield the calls of all files, each session's in order; one bad file loses no other.

        A module may also have `parts(files)`: the files split into those that must be read
        together, so that parts can be read at the same time. OpenCode's and OpenHands' have none:
        a session may be in several stores or begin with a copy of any other.
        """


def parts(source: Source, files: Sequence[Path]) -> list[list[Path]]:
    """Split files into those that must be read together: all of them unless the source knows."""
    split = getattr(source.calls, "parts", None)
    return [list(files)] if split is None else cast("list[list[Path]]", split(files))


@dataclass(frozen=True, slots=True)
class Source:
    """One agent's logs: its name on the command line and its package.

    A `generic` source is looked for in a folder only where no agent's own logs are: what stands
    beside those records the same calls.
    """

    name: str
    title: str
    package: str
    generic: bool = False

    @property
    def paths(self) -> Paths:
        """Return the module that finds its logs."""
        return cast("Paths", import_module(f"{self.package}.paths"))

    @property
    def calls(self) -> Calls:
        """Return the module that reads its logs."""
        return cast("Calls", import_module(f"{self.package}.calls"))


SOURCES = (
    Source("codex", "Codex CLI", "agentkv_trace.ingest.codex"),
    Source("opencode", "OpenCode", "agentkv_trace.ingest.opencode"),
    Source("openhands", "OpenHands", "agentkv_trace.ingest.openhands"),
    Source("claude", "Claude Code", "agentkv_trace.ingest.claude"),
    Source("mini-swe", "mini-swe-agent", "agentkv_trace.ingest.mini_swe"),
    Source("swe-agent", "SWE-agent", "agentkv_trace.ingest.swe_agent"),
    Source("gateways", "gateways and tracers", "agentkv_trace.ingest.gateways"),
    Source("requests", "raw request logs", "agentkv_trace.ingest.requests", generic=True),
)
