"""The table of verbs, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv_trace import __version__
from agentkv_trace.cli import export, ingest, mrc, report, sources, warmup
from agentkv_trace.cli.output import say
from agentkv_trace.errors import AgentKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERBS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("ingest", ingest.ingest),
    ("mrc", mrc.mrc),
    ("report", report.report),
    ("sources", sources.sources),
    ("export", export.export),
    ("warmup", warmup.warmup),
)

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
    app.command(_name, context_settings={"help_option_names": ["-h", "--help"]})(_verb)


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
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        code = app(given, prog_name="agentkv-trace", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        say("agentkv-trace: interrupted")
        return 130
    except typer.Exit as stop:
        return stop.exit_code
    except Exception as error:
        if debug:
            raise
        say(f"agentkv-trace: {_one_line(error)}")
        return 2


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
