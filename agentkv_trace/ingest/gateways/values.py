"""JSON values of a file: one a line, one document, or an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.records import MAX_TOKENS, Record, whole
from agentkv_trace.ingest.mini_swe import document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.notes import Notes


def objects(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, Record]]:
    """Yield the JSON objects of a file with their lines, those of an array one by one.

    Counts `bytes` and `lines`. Raises OSError where the file cannot be read.
    """
    if is_by_lines(path):
        for number, line in reading.lines(path, notes, reading.counter(notes, on_bytes)):
            notes.count("lines")
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                # Behind a record that was cut off, the next begins as all do in this log.
                starts = [line[: line.find(b":") + 1]] if line.startswith(b'{"') else []
                for record in reading.decode(line, notes, path, number, starts):
                    yield number, record
                continue
            yield from _objects_in(value, path, number, notes)
        return
    data = document.load(path, notes, on_bytes)
    if data is None:
        return
    value = document.decoded(data, object, notes)
    if value is None:
        items = document.whole_items(data, "observations")
        notes.skip("document is cut off or damaged", str(path))
        value = items
    yield from _objects_in(value, path, 1, notes)


def is_by_lines(path: Path) -> bool:
    """Tell whether a file's first line is a JSON value by itself, and short enough for a line."""
    from agentkv_trace.notes import Notes

    notes = Notes()
    for _, line in reading.lines(path, notes):
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return len(line) > 1 and line[:1] == b"{" and line[1:].lstrip()[:1] == b'"'
        return True
    # A single line that is too long to be held as one is a document.
    return not notes.skipped


def _objects_in(
    value: object, path: Path, number: int, notes: Notes
) -> Iterator[tuple[int, Record]]:
    if isinstance(value, dict):
        yield number, value
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, dict):
                yield number, each
            else:
                notes.skip("value is no JSON object", str(path), number)
    else:
        notes.skip("value is no JSON object", str(path), number)


def unpacked(value: Any) -> Any:
    """Return a value that may be packed into a string of JSON, once or twice."""
    for _ in range(2):
        if not isinstance(value, str) or value[:1] not in ("{", "[", '"'):
            break
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            break
    return value


def count_of(value: object) -> int | None:
    """Return a count given as a number or as digits, or None."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    found = whole(value)
    return found if found is not None and found <= MAX_TOKENS else None


def first(*values: object) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def usage(prompt: int | None, cached: int | None, output: int | None) -> Record | None:
    """Return a usage object of one form; None where nothing is known."""
    if prompt is None:
        return None
    found: Record = {"prompt_tokens": prompt, "completion_tokens": output}
    if cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": cached}
    return found
