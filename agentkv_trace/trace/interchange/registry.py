"""The tables of other tools' traces: read, refused and written."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.store import Trace


class Reader(Protocol):
    """How a foreign trace is recognised and read (a module of this folder)."""

    def looks_like(self, head: bytes) -> bool:
        """Tell by its first bytes whether a file is such a trace."""

    def read(
        self,
        files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]],
        notes: Notes,
        **options: Any,
    ) -> Trace:
        """Read all files into one trace; bad lines and files are counted and lose no other.

        A file is a name to show and its lines, without line ends, with their numbers. Options
        that a format does not know are ignored: `chunk_tokens`, `salt`, `start_gap_s` (weka).
        Raises InputError where no call is left.
        """


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign trace: its name on the command line and its module."""

    name: str
    title: str
    module: str

    @property
    def reader(self) -> Reader:
        """Return the module that reads it."""
        return cast("Reader", import_module(f"{__package__}.{self.module}"))


@dataclass(frozen=True, slots=True)
class Export:
    """One form in which a trace leaves: its name, its module and the function there."""

    name: str
    title: str
    module: str
    function: str
    binary: bool = False

    @property
    def write(self) -> Callable[[Trace, BinaryIO], None]:
        """Return the function that writes a trace to a file."""
        module = import_module(f"{__package__}.{self.module}")
        return cast("Callable[[Trace, BinaryIO], None]", getattr(module, self.function))


# The first that recognises a file reads it.
FORMATS = (
    Format("weka", "kv-cache-tester sessions (JSON)", "weka"),
    Format("lmcache", "LMCache lookup hashes (JSONL)", "lmcache"),
    Format("bailian", "Qwen-Bailian usage trace (JSONL)", "bailian"),
    Format("aiperf", "aiperf mooncake_trace with sessions (JSONL)", "aiperf"),
    Format("mooncake", "Mooncake trace (JSONL)", "mooncake"),
)

EXPORTS = (
    Export("mooncake", "Mooncake trace (JSONL)", "mooncake", "write"),
    Export("oracle-general", "libCacheSim oracleGeneral", "libcachesim", "write_oracle", True),
    Export("csv", "libCacheSim csv: time, id, size", "libcachesim", "write_csv"),
    Export("references", "Parquet, one row per chunk reference", "references", "write", True),
)

# What a file begins with, all of these in lower case, and why it cannot be used.
REFUSED: tuple[tuple[tuple[bytes, ...], str], ...] = (
    (
        (b"timestamp,", b"contexttokens", b"generatedtokens"),
        "an Azure LLM inference trace has lengths only and does not tell which prompts share a "
        "prefix; use a trace with chunk ids",
    ),
    (
        (b"timestamp,", b"request tokens", b"response tokens"),
        "a BurstGPT trace has lengths only and does not tell which prompts share a prefix; use a "
        "trace with chunk ids",
    ),
    (
        (b"lmct",),
        "an LMCache .lct recording cannot be read; run its server with --lookup-hash-log-dir",
    ),
    (
        (b"{", b'"session_id"', b'"input":', b'"output":'),
        "a trace of prompt texts has no chunk ids and would need the model's tokenizer; use a "
        "trace with chunk ids",
    ),
    (
        (b"{", b'"input_length"'),
        "calls have no hash_ids, so nothing tells which prompts share a prefix; use a trace with "
        "hash_ids",
    ),
)


def recognise(head: bytes) -> Format | None:
    """Return the format of a foreign trace by its first bytes, or None if it is none.

    Raises InputError with the reason for a trace that says nothing about reuse.
    """
    for known in FORMATS:
        if known.reader.looks_like(head):
            return known
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0].lower()
    for words, reason in REFUSED:
        if start.startswith(words[0]) and all(word in start for word in words):
            raise InputError(reason)
    return None
