"""What part a piece of a prompt plays, and digests that tell how two pieces differ.

All is derived from a piece's JSON, the same for every agent; no text is kept. Digests have 32
bits: enough to compare the pieces of some prompts, little to guess a text by.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from agentkv_trace.trace.call import Node

PART_KINDS = (
    "head",
    "tools",
    "system",
    "environment",
    "message",
    "reasoning",
    "tool_call",
    "tool_output",
    "summary",
    "image",
    "unseen",
)
ROLES = ("", "system", "developer", "user", "assistant", "tool")
HEAD_KINDS = frozenset({"head", "tools", "system", "environment"})
"""What stands before the conversation."""

READINGS = ("text", "keys", "dates", "ids", "trimmed", "loose")
"""Ways to read a piece, each with a digest of its own.

`text` to the byte; `keys` with JSON keys in order (also in strings that hold JSON); `dates` as
`keys`, dates and times masked; `ids` as `dates`, ids and numbers masked; `trimmed` as `keys`,
white space collapsed; `loose` as `keys`, tools in any order and messages without their reasoning.
"""

MAX_READ = 1 << 17
"""Bytes of a piece that are read more than one way; longer ones are compared to the byte only."""

_MASK = (1 << 32) - 1
_LABELS = {
    b"head": "head",
    b"environment": "environment",
    b"image": "image",
    b"file": "image",
    b"reasoning": "reasoning",
    b"thinking": "reasoning",
    b"summary": "summary",
}
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
_REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DATES = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    rb"|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AP]M\b)?"
    rb"|\b(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\b"
    rb"|\b" + _MONTH + rb" \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?\b"
    rb"|\b\d{1,2} " + _MONTH + rb",? \d{4}\b"
    rb"|\b1[5-9]\d{8}(?:\.\d+|\d{3})?\b"
)
_IDS = re.compile(rb"\b(?=[A-Za-z_-]{0,40}\d)[0-9A-Za-z_-]{8,}|\d+")


class Facts(NamedTuple):
    """The kind and role of a piece as places in PART_KINDS and ROLES, and a digest per reading.

    A digest of 0 is that of `keys`, and of `keys` that of `text`.
    """

    kind: int
    role: int
    digests: tuple[int, ...]


def facts_of(node: Node, *, at_head: bool) -> Facts:
    """Return what can be told of a node whose content is there.

    `at_head` holds where all before it stands before the conversation.
    """
    data = node.content
    text = _digest(data)
    if node.parent is None:
        return _facts("head", "", text)
    if node.tokens is not None:
        label = data.split(b"\0", 1)[0]
        return _facts("reasoning" if node.fitted else _LABELS.get(label, "unseen"), "", text)
    value = _decoded(data)
    kind, role = _kind_of(value, at_head=at_head)
    if len(data) > MAX_READ:
        return _facts(kind, role, text)
    if value is None:
        masked = _DATES.sub(b"0", data)
        readings = (data, masked, _IDS.sub(b"0", masked), b" ".join(data.split()), data)
    else:
        plain = _unpacked(value)
        keys = msgspec.json.encode(plain, order="sorted")
        masked = _DATES.sub(b"0", keys)
        readings = (
            keys,
            masked,
            _IDS.sub(b"0", masked),
            msgspec.json.encode(_trimmed(plain), order="sorted"),
            msgspec.json.encode(_loose(plain, kind), order="sorted"),
        )
    return _facts(kind, role, text, *map(_digest, readings))


def _facts(kind: str, role: str, text: int, *others: int) -> Facts:
    keys, *rest = others or [text] * (len(READINGS) - 1)
    found = (text, 0 if keys == text else keys, *(0 if each == keys else each for each in rest))
    return Facts(PART_KINDS.index(kind), ROLES.index(role), found)


def _digest(data: bytes) -> int:
    # 0 stands for another reading's.
    return xxh3_64_intdigest(data) & _MASK or 1


def _decoded(data: bytes) -> Any:
    """Return the JSON value of a piece, or None where it is plain text."""
    if data[:1] not in (b"{", b"[", b'"'):
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# Kinds


def _kind_of(value: Any, *, at_head: bool) -> tuple[str, str]:
    if isinstance(value, dict):
        return _kind_of_object(value, at_head=at_head)
    if isinstance(value, list) and value and all(_is_tool(each) for each in value):
        return "tools", ""
    return ("system", "system") if at_head else ("message", "")


def _kind_of_object(item: dict[str, Any], *, at_head: bool) -> tuple[str, str]:
    kind, role = item.get("type"), item.get("role")
    kind = kind if isinstance(kind, str) else ""
    if isinstance(role, str):
        return _kind_of_message(role, item.get("content"))
    if kind == "additional_tools" or (at_head and _is_tool(item)):
        return "tools", ""
    if kind.endswith("_output"):
        return "tool_output", "tool"
    if kind.endswith("_call"):
        return "tool_call", "assistant"
    if kind in _REASONING_TYPES:
        return "reasoning", "assistant"
    if "compaction" in kind:
        return "summary", "assistant"
    if kind == "text" and at_head:
        return "system", "system"
    return "message", "user" if kind == "agent_message" else ""


def _kind_of_message(role: str, content: Any) -> tuple[str, str]:
    if role in ("tool", "function"):
        return "tool_output", "tool"
    if role in ("system", "developer"):
        return "system", role
    if isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool_result" for part in content
    ):
        return "tool_output", "user"
    return "message", role if role in ROLES else ""


def _is_tool(value: Any) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    described = {"function", "parameters", "input_schema", "inputSchema", "description", "tools"}
    return bool(described & value.keys()) and value.get("type") != "text"


# Readings


def _unpacked(value: Any) -> Any:
    """Return a value in which strings that hold a JSON object are that object."""
    if isinstance(value, dict):
        return {key: _unpacked(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_unpacked(each) for each in value]
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        try:
            return {"json": msgspec.json.decode(value)}
        except (msgspec.DecodeError, RecursionError):
            return value
    return value


def _trimmed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _trimmed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_trimmed(each) for each in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def _loose(value: Any, kind: str) -> Any:
    if kind == "tools":
        return _unordered(value)
    if not isinstance(value, dict):
        return value
    kept = {key: each for key, each in value.items() if key not in _REASONING_KEYS}
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [
            part
            for part in content
            if not (isinstance(part, dict) and part.get("type") in _REASONING_TYPES)
        ]
    return kept


def _unordered(value: Any) -> Any:
    """Return a value with its lists of objects in one order."""
    if isinstance(value, dict):
        return {key: _unordered(each) for key, each in value.items()}
    if isinstance(value, list):
        inner = [_unordered(each) for each in value]
        return sorted(inner, key=lambda each: msgspec.json.encode(each, order="sorted"))
    return value
