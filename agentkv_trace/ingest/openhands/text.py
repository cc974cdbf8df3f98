"""The words that OpenHands puts around tool outputs, and how it shortens long ones."""

from __future__ import annotations

import hashlib

TOOL_LIMIT = 50_000
"""Characters of one text of a tool's answer."""
TERMINAL_LIMIT = 30_000
ERROR = "[An error occurred during execution.]\n"

_CLIPPED = (
    "<response clipped><NOTE>Due to the max output limit, only part of the full "
    "response has been shown to you."
)
_NOTICE = _CLIPPED + "</NOTE>"
_SAVED = (
    _CLIPPED + " The complete output has been saved to {path} - you can use other tools to view "
    "the full content (truncated part starts around line {line}).</NOTE>"
)


def clipped(words: str, limit: int, folder: str | None = None, prefix: str = "output") -> str:
    """Return a text shortened in its middle to `limit` characters, as the second generation does.

    With a `folder` the whole text was saved there, and the notice says where.
    """
    if len(words) <= limit:
        return words
    room = limit - len(_NOTICE)
    first = room - room // 2
    notice = _NOTICE
    if folder:
        line = len(words[:first].splitlines()) + 1
        name = hashlib.sha256(words.encode()).hexdigest()[:8]
        notice = _SAVED.format(path=f"{folder}/{prefix}_output_{name}.txt", line=line)
    room = limit - len(notice)
    first = min(first, room)
    last = room - first
    return words[:first] + notice + (words[-last:] if last else "")


def halved(words: str, limit: int) -> str:
    """Return a text shortened in its middle, as the first generation does."""
    if len(words) <= limit:
        return words
    half = limit // 2
    notice = "\n[... Observation truncated due to length ...]\n"
    return words[:half] + notice + words[-half:]


def with_prompt(words: str, fields: dict[str, object]) -> str:
    """Return a command's output with what the shell's prompt told, as both generations do."""
    found = f"{fields.get('prefix') or ''}{words}{fields.get('suffix') or ''}"
    if fields.get("working_dir"):
        found += f"\n[Current working directory: {fields['working_dir']}]"
    if fields.get("py_interpreter_path"):
        found += f"\n[Python interpreter: {fields['py_interpreter_path']}]"
    if fields.get("exit_code", -1) != -1:
        found += f"\n[Command finished with exit code {fields['exit_code']}]"
    return found
