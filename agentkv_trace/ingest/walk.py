"""Files under a folder that are told by their content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator


def walk(
    folder: Path, name: re.Pattern[str], looks_like: Callable[[Path, bytes], bool]
) -> Iterator[Path]:
    """Yield the files under a folder with such a name and content; links out are left alone."""
    from agentkv_trace.ingest.reading import chunks
    from agentkv_trace.notes import Notes

    inside = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for each in names:
            path = Path(place, each)
            if not name.search(each) or not path.is_file():
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                continue
            try:
                head = next(chunks(path, Notes()), b"")
            except OSError:
                continue
            if looks_like(path, head):
                yield path
