"""`agentkv-trace scrub`: logs without their words, to share in a bug report."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv_trace.cli.options import QuietOption

if TYPE_CHECKING:
    from collections.abc import Iterator


def scrub(
    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOG...", help="Log, folder, glob, or FORMAT:PATH, as for ingest."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.")
    ],
    seed: Annotated[
        str | None,
        typer.Option(help="Make the same replacements again; without it they are random."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder with files.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write the same logs with every text replaced, to share in a bug report.

    Records, times, counts, lengths and equalities stay, so the result gives the same trace but
    for its keys. Models, versions and names of agents stay as they are. Words are replaced, not
    encrypted: how long each is and how often it occurs can still be seen.

    Examples:
      agentkv-trace scrub ~/.codex/sessions/2026/11/30 -o scrubbed
      agentkv-trace scrub opencode.db -o scrubbed
    """
    from agentkv_trace.cli.output import say
    from agentkv_trace.cli.progress import progress
    from agentkv_trace.errors import InputError
    from agentkv_trace.ingest.discover import named_logs
    from agentkv_trace.ingest.scrub.run import members_of
    from agentkv_trace.ingest.scrub.run import scrub as run

    _refuse(output, force=force)
    members = members_of(named_logs(logs))
    total = sum(each.path.stat().st_size for listed in members.values() for each in listed)
    with _replacing(output) as folder, progress("Scrubbing", total, quiet=quiet) as on_bytes:
        done = run(members, folder, seed, on_bytes)
        if not done.files:
            raise InputError("no file could be read; nothing was written")
    for reason, times in done.notes.skipped.items():
        say(f"skipped: {times:,} x {reason} ({done.notes.examples[reason][0]})", quiet=quiet)
    say(
        f"Wrote {len(done.files):,} files to {output}. Look at them before you share them. "
        f"Next: agentkv-trace ingest {output} -o trace.parquet",
        quiet=quiet,
    )


def _refuse(folder: Path, *, force: bool) -> None:
    """Raise InputError before any work where the folder cannot or must not be written to."""
    from agentkv_trace.errors import InputError

    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder with -o")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise InputError(f"{folder}: is not empty; choose another -o or add --force")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder}: no such folder {folder.parent}; make it first")


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Give a temporary folder whose files take their place in `folder` if all goes well."""
    from tempfile import TemporaryDirectory

    place = folder.absolute()
    with TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as name:
        temporary = Path(name)
        yield temporary
        for path in sorted(temporary.rglob("*")):
            target = place / path.relative_to(temporary)
            if path.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
