"""`agentkv-trace demo`: a run on a trace that is made up on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv_trace.cli.options import ForceOption, QuietOption

COMMANDS = (
    "mrc {trace} --plot",
    "report {trace} --model qwen3-4b --backend lmcache --connector lmcache-0.3 "
    "--gpu rtx3090 --gpu h800 --gpu h20",
)
"""One host tier, three GPUs: it pays on the first, costs on the second, is idle on the third."""


def demo(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Keep the trace in this folder."),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the curve and the advice for 16 made-up agents, and the commands to type.

    The agents share one server: the same host memory pays on one GPU, costs on another and does
    nothing on a third.

    Examples:
      agentkv-trace demo
      agentkv-trace demo -o demo
    """
    from tempfile import TemporaryDirectory

    if output is not None:
        _run(output, output, force=force, quiet=quiet)
    else:
        with TemporaryDirectory() as folder:
            _run(Path(folder), Path("demo"), force=force, quiet=quiet)


def _run(folder: Path, shown: Path, *, force: bool, quiet: bool) -> None:
    """Write the trace into a folder and run the commands on it, as if the folder were `shown`."""
    from shlex import quote

    from agentkv_trace.cli.app import app
    from agentkv_trace.cli.output import refuse_overwrite, replacing, say
    from agentkv_trace.errors import InputError

    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is no folder; name one with -o")
    path = folder / "trace.parquet"
    refuse_overwrite(path if folder.is_dir() else None, force=force)
    from agentkv_trace.trace.demo import AGENTS, demo_trace
    from agentkv_trace.trace.store import write_trace

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror or error})") from None
    with replacing(path) as temporary:
        write_trace(demo_trace(), temporary)
    say(f"{AGENTS} coding agents at work on one server, made up", quiet=quiet)
    if folder == shown:
        say(f"Wrote {path}", quiet=quiet)
    for command in COMMANDS:
        say("\n$ agentkv-trace " + command.format(trace=quote(str(shown / path.name))), quiet=quiet)
        words = [str(path) if word == "{trace}" else word for word in command.split()]
        app(words, prog_name="agentkv-trace", standalone_mode=False)
    if folder != shown:
        say(f"\nTo type these yourself: agentkv-trace demo -o {shown}", quiet=quiet)
    say("Next, the logs on this machine: agentkv-trace", quiet=quiet)
