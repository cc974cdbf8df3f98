"""What the client adds to a prompt around the user's words, from `attachment` lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.codex.items import Opaque, digest
from agentkv_trace.ingest.codex.records import Record, table, text

if TYPE_CHECKING:
    from collections.abc import Sequence

AGENTS = "Available agent types for the Agent tool:\n"
SKILLS = "The following skills are available for use with the Skill tool:\n\n"
READ = "Called the Read tool with the following input: "
RESULT = "Result of calling the Read tool:\n"
BACKGROUND = "A background agent completed a task:\n"
QUEUED = "The user sent a new message while you were working:\n"
DATE = "The date has changed. Today's date is now "

PROSE_BYTES_PER_TOKEN = 4.3
# Longer sentences of the client are sized, not repeated.
CONCURRENCY = Opaque(b"claude concurrency note", 26)
TASKS = Opaque(b"claude task reminder", 84)
QUEUED_TAIL = Opaque(b"claude queued note", 26)
DATE_TAIL = Opaque(b"claude date note", 15)

_OPUS = re.compile(r"opus-(\d+)-(\d{1,2})(?!\d)")
_WITH_NOTES = (4, 8)
"""From this Opus on, what the client adds is a message of its own behind the user's."""


@dataclass(slots=True)
class Reminder:
    """What one attachment adds: its texts, and sentences that are sized."""

    texts: tuple[str, ...]
    sized: tuple[Opaque, ...] = ()
    known: bool = True
    """Whether its form is known; else its fields stand for it."""
    is_listing: bool = False
    """Whether this lists agents or skills: prose that is much the same in every session."""


def has_notes(model: str | None) -> bool:
    """Tell whether a model takes system messages in the midst of a conversation."""
    found = _OPUS.search(model or "")
    return found is not None and (int(found[1]), int(found[2])) >= _WITH_NOTES


def reminder_of(attachment: Record) -> Reminder:
    """Return what an attachment adds to the prompt."""
    kind = text(attachment.get("type"))
    if kind == "agent_listing_delta":
        return listing_of(attachment)
    if kind == "skill_listing":
        return Reminder((SKILLS + (text(attachment.get("content")) or ""),), is_listing=True)
    if kind == "task_reminder" and not attachment.get("content"):
        return Reminder((), (TASKS,))
    if kind == "date_change":
        return Reminder((f"{DATE}{attachment.get('newDate')}.",), (DATE_TAIL,))
    if kind == "file" and (found := _file(attachment)) is not None:
        return found
    if kind == "queued_command" and (prompt := _prompt(attachment.get("prompt"))) is not None:
        origin = table(attachment.get("origin")).get("kind") or attachment.get("commandMode")
        if origin == "task-notification":
            return Reminder((f"{BACKGROUND}{prompt}",), known=False)
        return Reminder((f"{QUEUED}{prompt}",), (QUEUED_TAIL,), known=False)
    return Reminder((msgspec.json.encode(attachment).decode(),), known=False)


def listing_of(attachment: Record) -> Reminder:
    """Return what a listing of agent types adds."""
    sized = (CONCURRENCY,) if attachment.get("showConcurrencyNote") is True else ()
    lines = "\n".join(_strings(attachment.get("addedLines")))
    return Reminder((AGENTS + lines,), sized, is_listing=True)


def environment_of(listings: Sequence[Reminder]) -> Opaque:
    """Return listings at the beginning of a conversation as one sized piece.

    Prose takes more bytes for a token than code and output do; by the trace's one rate a long
    listing would move all that stands behind the head.
    """
    words = "\n\n".join(text for listing in listings for text in listing.texts).encode()
    tokens = round(len(words) / PROSE_BYTES_PER_TOKEN)
    tokens += sum(piece.tokens for listing in listings for piece in listing.sized)
    return Opaque(b"environment\0" + digest(words), tokens)


def may_delegate(attachment: Record, agent_type: str) -> bool:
    """Tell from a listing of agent types whether one has the tool that starts sub-agents."""
    start = f"- {agent_type}: "
    for line in _strings(attachment.get("addedLines")):
        if line.startswith(start):
            tools = line.rpartition("(Tools: ")[2].removesuffix(")")
            named, _, but = tools.partition(" except ")
            if "All tools" in named:
                return "Agent" not in but.split(", ")
            return named == "*" or "Agent" in named.split(", ")
    return False


def _file(attachment: Record) -> Reminder | None:
    content = table(attachment.get("content"))
    file = table(content.get("file"))
    name, words = text(file.get("filePath")), file.get("content")
    if content.get("type") != "text" or name is None or not isinstance(words, str):
        return None
    first = file.get("startLine")
    first = first if isinstance(first, int) else 1
    numbered = "\n".join(f"{at}\t{line}" for at, line in enumerate(words.split("\n"), first))
    asked = msgspec.json.encode({"file_path": name}).decode()
    return Reminder((READ + asked, RESULT + numbered))


def _prompt(prompt: object) -> str | None:
    if isinstance(prompt, list):
        return "\n".join(filter(None, (text(table(part).get("text")) for part in prompt)))
    return text(prompt)


def _strings(value: object) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
