"""Logs read by several processes: each takes files that belong together."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agentkv_trace.ingest.registry import SOURCES, Source, parts
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import Harvest, TraceBuilder
from agentkv_trace.trace.tokenizers import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BATCH_BYTES = 16 << 20
"""Files that belong to nobody are read together up to this size."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What one process reads, and where it puts the text."""

    source: str
    files: tuple[Path, ...]
    size: int
    tokenizer: str
    strict: bool
    text: Path


def read(
    logs: Mapping[Source, Sequence[Path]],
    builder: TraceBuilder,
    notes: Mapping[str, Notes],
    *,
    jobs: int,
    tokenizer: str,
    strict: bool,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Read the logs of all sources into a builder, `jobs` processes at a time.

    The trace does not depend on their number. `notes` are by the name of the source. Raises
    what reading raises.
    """
    with TemporaryDirectory() as folder:
        work = [
            _Work(source.name, files, size, tokenizer, strict, Path(folder) / f"{source.name}-{n}")
            for source, paths in logs.items()
            for n, (files, size) in enumerate(_batches(parts(source, paths)))
        ]
        # A fresh process, not a fork: other threads of ours may hold locks.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(work)), context) as pool:
            for each, (harvest, noted) in zip(work, pool.map(_read, work), strict=True):
                builder.absorb(harvest)
                each.text.unlink()
                notes[each.source].merge(noted)
                if on_bytes is not None:
                    on_bytes(each.size)


def _batches(groups: list[list[Path]]) -> list[tuple[tuple[Path, ...], int]]:
    """Join small groups, so that a process has enough to do, and tell their sizes."""
    batches: list[tuple[tuple[Path, ...], int]] = []
    for group in groups:
        size = sum(path.stat().st_size for path in group if path.is_file())
        if batches and batches[-1][1] + size <= BATCH_BYTES:
            files, before = batches[-1]
            batches[-1] = ((*files, *group), before + size)
        else:
            batches.append((tuple(group), size))
    return batches


def _read(work: _Work) -> tuple[Harvest, Notes]:
    source = next(source for source in SOURCES if source.name == work.source)
    notes = Notes(strict=work.strict)
    with TraceBuilder(load(work.tokenizer)) as builder:
        for call in source.calls.read(work.files, notes):
            builder.add(call)
        return builder.harvest(work.text), notes
