"""Codex logs to calls: every file's calls in order, whatever its era, and none counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex import bundle
from agentkv_trace.ingest.codex.files import Files
from agentkv_trace.ingest.codex.heads import base_key
from agentkv_trace.ingest.codex.merge import merged
from agentkv_trace.ingest.codex.records import STARTS, Meta, whole
from agentkv_trace.ingest.codex.thread import Thread
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.ingest.codex.pending import Found
    from agentkv_trace.trace.call import LoggedCall

MAX_ANCESTORS = 64
"""Forks of forks that are followed upwards; more can only be a circle."""


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of rollouts and trace bundles (their `manifest.json`), file by file.

    What a file refers to (a fork's parent) is looked for among `files` only. A file that cannot
    be read is skipped and counted, and never loses the others. `on_bytes` is told how much was
    read, in bytes on disk. Raises InputError in strict mode.
    """
    found = Files(files, notes)
    traced: dict[str, list[Found]] = {}
    for path in found.bundles:
        try:
            for call in bundle.read(path, found, notes, on_bytes):
                traced.setdefault(call.call.session, []).append(call)
        except OSError:
            notes.skip("unreadable file", str(path))
    for thread in found.threads:
        calls = _rollout(thread, found, notes, on_bytes)
        yield from _counted(merged(calls, traced.pop(thread, [])), notes)
    for rest in traced.values():
        yield from _counted(iter(rest), notes)


def parts(files: Sequence[Path]) -> list[list[Path]]:
    """Split files by lineage: forks and sub-agents need their parents, bundles their rollouts."""
    found = Files(files, Notes())
    if found.bundles:
        # A bundle tells the threads it holds only when it is read.
        return [list(files)]
    root: dict[str, str] = {}

    def find(thread: str) -> str:
        while root.setdefault(thread, thread) != thread:
            thread = root[thread]
        return thread

    for thread, (_, meta) in found.threads.items():
        for other in (meta.parent, meta.forked_from, meta.base_thread):
            if other is not None:
                root[find(thread)] = find(other)
    groups: dict[str, list[Path]] = {}
    for path in dict.fromkeys(files):
        known = found.thread_of.get(path)
        groups.setdefault(str(path) if known is None else find(known), []).append(path)
    return list(groups.values())


def _counted(calls: Iterator[Found], notes: Notes) -> Iterator[LoggedCall]:
    any_call = False
    for found in calls:
        any_call = True
        notes.count("calls")
        yield found.call
    if any_call:
        notes.count("sessions")


def _rollout(
    thread: str, files: Files, notes: Notes, on_bytes: Callable[[int], None] | None
) -> Iterator[Found]:
    path, meta = files.threads[thread]
    machine = _machine(meta, files, notes)
    try:
        _inherit(machine, meta, files, notes)
        bad = notes.skipped.total()
        for _, record in reading.objects(path, notes, STARTS, on_bytes):
            machine.damaged = notes.skipped.total() != bad
            machine.feed(record)
            if machine.ready:
                yield from machine.ready
                machine.ready.clear()
    except OSError:
        notes.skip("unreadable file", str(path))
    machine.finish()
    yield from machine.ready


def _machine(meta: Meta, files: Files, notes: Notes) -> Thread:
    machine = Thread(meta, notes, files.vectors_of)
    machine.heads.base_text = files.sent_bases.get(base_key(meta), meta.base_text)
    return machine


def _inherit(machine: Thread, meta: Meta, files: Files, notes: Notes, depth: int = 0) -> None:
    """Give a fork by reference the history that its parent had at the fork."""
    if meta.base_thread is None:
        return
    parent = files.threads.get(meta.base_thread)
    if parent is None or depth == MAX_ANCESTORS:
        machine.heads.missing_history = f"{meta.base_thread}:{meta.base_ordinal}"
        notes.count("forks without their parent")
        return
    path, parent_meta = parent
    quiet = type(notes)()
    source = _machine(parent_meta, files, quiet)
    _inherit(source, parent_meta, files, quiet, depth + 1)
    for _, record in reading.objects(path, quiet, STARTS):
        ordinal = whole(record.get("ordinal"))
        if ordinal is not None and ordinal >= meta.base_ordinal:
            break
        source.feed(record)
        source.ready.clear()
    source.finish()
    machine.inherit(source)
