"""Which part of a prompt a break is about, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.trace.parts import PART_KINDS, ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.breaks import Break
    from agentkv_trace.trace.layout import Layout


def place_words(layout: Layout | None, breaks: Sequence[Break]) -> list[str]:
    """Return the part of the prompt that each break is about, in words."""
    import numpy as np

    if layout is None:
        return ["" for _ in breaks]
    from agentkv_trace.engine.continuations import nth_of_group

    group = layout.kind.astype(np.int32) * len(ROLES) + layout.role
    parts = np.array([one.part for one in breaks], np.int32)
    nth = nth_of_group(layout.parent, group, parts).tolist()
    words = []
    for one, number in zip(breaks, nth, strict=True):
        if one.part < 0:
            words.append("")
            continue
        kind, role = PART_KINDS[layout.kind[one.part]], ROLES[layout.role[one.part]]
        words.append(_in_words(kind, role, number))
    return words


def _in_words(kind: str, role: str, number: int) -> str:
    if kind == "head":
        return "hidden head (tools and system prompt that no log holds)"
    if kind == "tools":
        return f"tools, definition {number}"
    if kind == "system":
        return f"system prompt, message {number} of role {role}"
    if kind == "environment":
        return "place and date in the system prompt"
    if kind == "message":
        return f"message {number} of role {role}" if role else f"message {number}"
    return f"{kind.replace('_', ' ')} {number}"
