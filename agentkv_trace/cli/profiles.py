"""`agentkv-trace profiles`: what is known of GPUs, models, connectors and backends."""

from __future__ import annotations

from typing import Annotated

import typer

KINDS = ("gpus", "models", "connectors", "backends")


def profiles(
    kind: Annotated[str, typer.Argument(help="gpus, models, connectors or backends.")],
    name: Annotated[
        str | None, typer.Argument(help="Show one with its figures, formula and sources.")
    ] = None,
) -> None:
    """List the profiles, or show one with its figures, formula and sources.

    Profiles of your own go into agentkv-trace.toml in the current folder.

    Examples:
      agentkv-trace profiles gpus
      agentkv-trace profiles gpus h800
      agentkv-trace profiles models qwen3-coder-30b
    """
    from agentkv_trace.cli.output import emit, terminal_width
    from agentkv_trace.errors import InputError
    from agentkv_trace.report.profiles import listing, shown

    if kind not in KINDS:
        raise InputError(f"profiles of {kind!r} are not known; use one of {', '.join(KINDS)}")
    width = terminal_width()
    emit(listing(kind, width) if name is None else shown(kind, name, width), None)
