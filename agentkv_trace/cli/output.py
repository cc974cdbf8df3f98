"""Where a command's results and words go."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(words: str, *, quiet: bool = False) -> None:
    """Print narration to stderr."""
    if not quiet:
        print(words, file=sys.stderr)


def refuse_overwrite(path: Path | None, *, force: bool) -> None:
    """Raise InputError before any work if a result could not be written to `path`."""
    if path is None:
        return
    if str(path) == "-":
        raise InputError("-o -: leave -o out to write to standard output")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file with -o")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file; leave -o out to write to standard output")
    if (path.exists() or path.is_symlink()) and not force:
        raise InputError(f"{path}: exists already; choose another -o or add --force")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InputError(f"{path}: no such folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {folder} cannot be written to; choose another -o")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path` that takes its place if all goes well.

    A symbolic link keeps pointing to its target, and a file that is replaced keeps its mode.
    Raises InputError where the file cannot be written.
    """
    path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def emit(text: str, path: Path | None, *, quiet: bool = False) -> None:
    """Print a result to stdout, or write it to `path` and say so."""
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    say(f"Wrote {path}", quiet=quiet)


def terminal_width(default: int = 80) -> int:
    """Return the columns of the terminal that shows stdout."""
    return shutil.get_terminal_size((default, 24)).columns


def color_wanted() -> bool:
    """Tell whether stdout is a terminal whose user has not turned colour off."""
    if os.environ.get("FORCE_COLOR"):
        return True
    dumb = os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and not dumb


def speaks_utf8() -> bool:
    """Tell whether stdout can carry braille and box characters."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
