"""What changed at a break, read again from the logs and shown on the screen only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.breaks import Break
    from agentkv_trace.trace.call import LoggedCall, Node
    from agentkv_trace.trace.layout import Layout
    from agentkv_trace.trace.store import Trace

AROUND = 60
"""Characters before the first difference."""

AFTER = 160
"""Characters from the first difference on."""

Call = tuple[str, int]


def print_texts(names: list[str], trace: Trace, limit: int, width: int) -> None:
    """Print the first different part of both prompts, for the breaks that lost most.

    Raises InputError where a trace was given instead of logs.
    """
    from agentkv_trace.advise.breaks import find_breaks
    from agentkv_trace.cli.trace_or_logs import is_trace
    from agentkv_trace.errors import InputError

    layout = trace.layout()
    if layout is None or is_trace(names[0]):
        raise InputError("--show-text: a trace holds no text; name the logs it was made from")
    changed = [one for one in find_breaks(trace) if one.kind != "resumed_expired"]
    breaks = sorted(changed, key=lambda one: -one.lost_tokens)[:limit]
    sessions, indices = (trace.table[name].to_pylist() for name in ("session", "index"))
    calls = list(zip(sessions, indices, strict=True))
    depths = [_common_depth(layout, one) for one in breaks]
    wanted: dict[Call, set[int]] = {}
    for one, depth in zip(breaks, depths, strict=True):
        for row in (one.before, one.call):
            wanted.setdefault(calls[row], set()).add(depth)
    texts = _texts(names, wanted)
    for one, depth in zip(breaks, depths, strict=True):
        old = texts.get((*calls[one.before], depth, "path"), "")
        new = texts.get((*calls[one.call], depth, "prompt"), "")
        print(f"\n{calls[one.call][0]} call {calls[one.call][1]}:")
        at = max(_common(old, new) - AROUND, 0)
        for sign, text in (("- ", old), ("+ ", new)):
            shown = _printable(text[at : at + AROUND + AFTER])
            cut = ("..." if at else "") + shown
            print(textwrap.fill(cut, width, initial_indent=sign, subsequent_indent="  "))


def _common_depth(layout: Layout, one: Break) -> int:
    old, new = (
        layout.chain(int(layout.path[one.before])),
        layout.chain(int(layout.prompt[one.call])),
    )
    return _common(old, new)


def _common(old: Sequence[object], new: Sequence[object]) -> int:
    """Return with how many equal elements two sequences begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _texts(names: list[str], wanted: dict[Call, set[int]]) -> dict[tuple[str, int, int, str], str]:
    """Read the logs again for some parts of some calls, by session, index, depth and which end."""
    from agentkv_trace.ingest.discover import named_logs
    from agentkv_trace.notes import Notes

    texts = {}
    seen: dict[str, int] = {}
    for source, paths in named_logs(names).logs.items():
        for call in source.calls.read(paths, Notes()):
            index = seen[call.session] = seen.get(call.session, -1) + 1
            for depth in wanted.get((call.session, index), ()):
                for which, end in _ends(call):
                    chain = _chain(end)
                    if depth < len(chain):
                        text = _text(chain[depth])
                        texts[call.session, index, depth, which] = text
    return texts


def _ends(call: LoggedCall) -> tuple[tuple[str, Node], ...]:
    return ("prompt", call.prompt), ("path", call.path)


def _chain(node: Node | None) -> list[Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]


def _text(node: Node) -> str:
    if node.parent is None:
        return "(in no log; sized from usage)"
    if node.tokens is not None:
        return f"(not readable; {node.tokens:,} tokens)"
    return node.content.decode(errors="replace")


def _printable(text: str) -> str:
    """Return text that cannot steer a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
