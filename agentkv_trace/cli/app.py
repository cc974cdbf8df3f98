"""The table of verbs, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import gc
import inspect
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv_trace import __version__
from agentkv_trace.cli import (
    check,
    demo,
    explain,
    export,
    ingest,
    mrc,
    profiles,
    replay,
    report,
    scrub,
    sources,
    warmup,
)
from agentkv_trace.cli.output import say
from agentkv_trace.errors import AgentKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERBS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("ingest", ingest.ingest),
    ("mrc", mrc.mrc),
    ("report", report.report),
    ("replay", replay.replay),
    ("check", check.check),
    ("explain", explain.explain),
    ("demo", demo.demo),
    ("profiles", profiles.profiles),
    ("sources", sources.sources),
    ("export", export.export),
    ("scrub", scrub.scrub),
    ("warmup", warmup.warmup),
)

INTERRUPTED = 130


def _unwrapped(verb: Callable[..., Any]) -> str:
    """Return a verb's help, with the mark that keeps its examples on lines of their own."""
    words, example, lines = (inspect.getdoc(verb) or "").partition("Example")
    return words + ("\b\n" + example + lines if example else "")


# typer brings its own click in newer versions; its base error is reached by either way.
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="agentkv-trace",
    no_args_is_help=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How much host memory does the KV cache of your coding agents need, and does it pay?",
)
for _name, _verb in VERBS:
    app.command(
        _name, help=_unwrapped(_verb), context_settings={"help_option_names": ["-h", "--help"]}
    )(_verb)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"agentkv-trace {__version__}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[  # noqa: ARG001
        bool, typer.Option("--debug", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Run without a verb: see which agents' logs are on this machine."""
    if context.invoked_subcommand is None and not sources.summary():
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 fine, 1 a check failed, 2 usage, input or internal error, 130 interrupted.
    """
    # Imports make a hundred thousand objects that stay: looking for garbage among them is a tenth
    # of a short command's time.
    gc.set_threshold(100_000, 20, 20)
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    _open_streams()
    try:
        code = app(given, prog_name="agentkv-trace", standalone_mode=False)
        sys.stdout.flush()
        return _interrupted() if code == INTERRUPTED else code if isinstance(code, int) else 0
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except typer.Exit as stop:
        return _interrupted() if stop.exit_code == INTERRUPTED else stop.exit_code
    except Exception as error:
        if debug:
            raise
        say(f"agentkv-trace: {_one_line(error)}")
        return 2


def _open_streams() -> None:
    """Make standard output and error usable where they are closed, or cannot show a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _interrupted() -> int:
    say("agentkv-trace: interrupted")
    return INTERRUPTED


def _one_line(error: Exception) -> str:
    if isinstance(error, AgentKVError):
        return str(error)
    if isinstance(error, _CLICK_ERROR):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "agentkv-trace"
        return f"{' '.join(error.format_message().split())} See `{command} --help`."
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "out of memory; see the options that bound it in `--help`"
    return (
        f"internal error ({type(error).__name__}: {error}); "
        "run it again with --debug and report what it shows"
    )
