"""What a break is: from the parts of two prompts behind those they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentkv_trace.trace.parts import HEAD_KINDS, PART_KINDS, ROLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.trace.layout import Layout

_HEAD = frozenset(PART_KINDS.index(kind) for kind in HEAD_KINDS)
_HIDDEN, _TOOLS, _SYSTEM, _MESSAGE, _REASONING, _TOOL_CALL, _TOOL_OUTPUT = map(
    PART_KINDS.index,
    ("head", "tools", "system", "message", "reasoning", "tool_call", "tool_output"),
)
_USER = ROLES.index("user")
_SHORT_TAIL = 2
"""Parts that follow a revert: the user's new message, and what the client adds to it."""

_SUMMARY_TOKENS = 200
"""A new message of this size in place of a history is a summary of it, no new request."""


class Verdict(NamedTuple):
    """The class of a break, its cause if known, and the part it is about.

    `in_place` tells that one part was rewritten and those behind it stayed.
    """

    kind: str
    cause: str | None
    part: int
    in_place: bool = False


def _view(values: Any) -> memoryview[int]:
    """Return an array as something whose single values are had fast."""
    return memoryview(values)


class Look:
    """Fast access to single parts of a layout."""

    def __init__(self, layout: Layout) -> None:
        self.parent = _view(layout.parent)
        self.kind = _view(layout.kind)
        self.role = _view(layout.role)
        self.end = _view(layout.end)
        text, keys, *rest = (_view(column) for column in layout.digests.T.copy())
        self.text, self._keys, self._rest = text, keys, rest

    def size(self, part: int) -> int:
        """Return the tokens of a part."""
        above = self.parent[part]
        return self.end[part] - (self.end[above] if above >= 0 else 0)

    def keys(self, part: int) -> int:
        """Return the digest of a part's text with its JSON keys in order."""
        return self._keys[part] or self.text[part]

    def dates(self, part: int) -> int:
        """Return the same, dates masked."""
        return self._rest[0][part] or self.keys(part)

    def ids(self, part: int) -> int:
        """Return the same, dates, ids and numbers masked."""
        return self._rest[1][part] or self.keys(part)

    def trimmed(self, part: int) -> int:
        """Return the digest with white space collapsed."""
        return self._rest[2][part] or self.keys(part)

    def loose(self, part: int) -> int:
        """Return the digest of tools in any order, of messages without reasoning."""
        return self._rest[3][part] or self.keys(part)

    def same(self, old: int, new: int) -> bool:
        """Tell whether two parts are equal."""
        return self.text[old] == self.text[new] and self.kind[old] == self.kind[new]

    def alike(self, old: int, new: int) -> bool:
        """Tell whether two parts have one kind and role."""
        return self.kind[old] == self.kind[new] and self.role[old] == self.role[new]


def classify(
    look: Look,
    old: Sequence[int],
    new: Sequence[int],
    *,
    old_parts: int,
    new_parts: int,
    old_prompt_end: int,
    folded: bool,
) -> Verdict:
    """Return what a break is, from the first parts behind the common ones of both prompts.

    `old_parts` and `new_parts` count all parts behind them, `old_prompt_end` is where the old
    prompt ended and its output began, in tokens; `folded` tells of a compaction in between.
    """
    if not old or not new:
        return Verdict("unknown", None, new[0] if new else old[0] if old else -1)
    if look.kind[old[0]] in _HEAD or look.kind[new[0]] in _HEAD:
        return _head(look, old, new)
    if folded:
        return Verdict("history_folded", None, new[0])
    in_place = _in_place(look, old, new, old_parts)
    if in_place is not None:
        return in_place
    if (gone := _position(look, new[0], old)) > 0:
        return _removed(look, old[:gone])
    if _position(look, old[0], new) > 0:
        return Verdict("message_edited", "inserted", new[0])
    return _replaced(look, old, new, old_parts, new_parts, old_prompt_end)


def _position(look: Look, wanted: int, parts: Sequence[int]) -> int:
    return next((at for at, part in enumerate(parts) if look.same(wanted, part)), -1)


def reading(look: Look, old: int, new: int) -> str | None:
    """Return the cause by which two versions of a part differ, None where the text does."""
    if look.kind[old] != look.kind[new]:
        return None
    for cause, read in _READINGS:
        if read(look, old) == read(look, new):
            return cause
    if look.loose(old) == look.loose(new):
        return "tool_order" if look.kind[old] == _TOOLS else "reasoning"
    return None


_READINGS: tuple[tuple[str, Callable[[Look, int], int]], ...] = (
    ("serialisation", Look.keys),
    ("whitespace", Look.trimmed),
    ("date", Look.dates),
    ("id", Look.ids),
)


# The head


def _head(look: Look, old: Sequence[int], new: Sequence[int]) -> Verdict:
    if _TOOLS in (look.kind[old[0]], look.kind[new[0]]):
        return Verdict("tools_changed", _tools(look, old, new), new[0], in_place=True)
    if look.kind[old[0]] == look.kind[new[0]] == _HIDDEN:
        return Verdict("head_changed", None, new[0])
    if look.alike(old[0], new[0]):
        cause = reading(look, old[0], new[0])
        stays = len(old) == 1 or (len(new) > 1 and look.same(old[1], new[1]))
        if cause is not None or stays:
            return Verdict("head_changed", cause, new[0], in_place=True)
    if _position(look, old[0], new) > 0:
        return Verdict("head_changed", "inserted", new[0])
    if _position(look, new[0], old) > 0:
        return Verdict("head_changed", "removed", old[0])
    return Verdict("head_changed", None, new[0])


def _tools(look: Look, old: Sequence[int], new: Sequence[int]) -> str:
    """Return why the run of tools that both prompts go on with differs."""
    before, after = (_run(look, parts, _TOOLS) for parts in (old, new))
    if len(before) == len(after):
        readings = (("tool_order", look.text.__getitem__), ("serialisation", look.keys))
        for cause, read in (
            *readings,
            ("tool_order", look.loose),
            ("whitespace", look.trimmed),
            ("date", look.dates),
            ("id", look.ids),
        ):
            if sorted(map(read, before)) == sorted(map(read, after)):
                return cause
    return "tools_differ"


def _run(look: Look, parts: Sequence[int], kind: int) -> list[int]:
    found = []
    for part in parts:
        if look.kind[part] != kind:
            break
        found.append(part)
    return found


# The conversation


def _in_place(look: Look, old: Sequence[int], new: Sequence[int], old_parts: int) -> Verdict | None:
    """Return the verdict where parts were rewritten and the others stayed, else None."""
    pairs = list(zip(old, new, strict=False))
    cause = reading(look, *pairs[0])
    # Equal words are one message; others, or other numbers, may be another that took its place.
    if cause in (None, "id") and not all(look.alike(*pair) for pair in pairs):
        return None
    changed = [pair for pair in pairs if not look.same(*pair)]
    if cause is None and len(changed) == len(pairs) and old_parts > 1:
        return None
    part = new[0]
    if cause == "reasoning":
        return Verdict("reasoning_dropped", None, part)
    if cause is not None:
        return Verdict("message_edited", cause, part, in_place=True)
    if all(
        look.kind[before] == _TOOL_OUTPUT and look.size(after) < look.size(before)
        for before, after in changed
    ):
        return Verdict("pruned", None, part)
    return Verdict("message_edited", None, part, in_place=True)


def _removed(look: Look, gone: Sequence[int]) -> Verdict:
    kinds = {look.kind[part] for part in gone}
    if kinds == {_REASONING}:
        return Verdict("reasoning_dropped", None, gone[0])
    if kinds <= {_TOOL_CALL, _TOOL_OUTPUT, _REASONING}:
        return Verdict("pruned", None, gone[0])
    return Verdict("history_folded", "removed", gone[0])


def _replaced(
    look: Look,
    old: Sequence[int],
    new: Sequence[int],
    old_parts: int,
    new_parts: int,
    old_prompt_end: int,
) -> Verdict:
    """Judge a tail of which nothing comes again at once."""
    first = new[0]
    user = look.kind[first] == _MESSAGE and look.role[first] == _USER
    started = look.end[old[0]] - look.size(old[0])
    if user and new_parts <= _SHORT_TAIL and look.size(first) < _SUMMARY_TOKENS:
        return Verdict("reverted", None, first)
    if started >= old_prompt_end:
        return Verdict("message_edited", "resent", first)
    if new_parts < old_parts:
        return Verdict("history_folded", None, first)
    return Verdict("message_edited", None, first)
