"""From logged messages to the chat messages that were sent for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.opencode.answers import answers, files_message
from agentkv_trace.ingest.opencode.chat import (
    MEDIA,
    Block,
    Moment,
    Opaque,
    Sent,
    encoded,
    file_record,
)
from agentkv_trace.ingest.opencode.records import Message, Part, Record, digest, table, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable

COMPACTED = "What did we do so far?"
SUBTASK = "The following tool was executed by the user"
ABORTED = "MessageAbortedError"

_AS_TEXT = ("text/plain", "application/x-directory")
"""Files whose content stands beside them as a text part."""


def blocks(message: Message) -> list[Block]:
    """Return the steps of an assistant message, in order."""
    found: list[Block] = []
    for part in message.parts:
        kind = part.type
        if kind == "step-start":
            found.append(Block(start=part))
        elif kind in ("text", "reasoning", "tool", "step-finish"):
            if not found:
                found.append(Block())
            if kind == "step-finish":
                found[-1].finish = part
            else:
                found[-1].parts.append(part)
    return found


def sent(message: Message, moment: Moment, reminded: bool = False) -> list[Sent]:
    """Return the chat messages of one logged message, as a prompt of that moment holds them.

    `reminded` user messages came while the model worked and are framed by a reminder.
    """
    if message.role == "assistant":
        return _of_assistant(message, moment)
    if message.role == "system":
        return _once(message, "system", lambda: _plain("system", message))
    reminded = reminded and any(map(_is_typed, message.parts))
    key = ("user", reminded, moment.without_media)
    return _once(message, key, lambda: _of_user(message, reminded, moment.without_media))


def spoken(message: Message, block: Block, moment: Moment) -> list[Sent]:
    """Return what the model wrote in one step: an assistant message, or nothing."""
    if not block.parts:
        return []
    same_model = message.model == moment.model
    key = ("assistant", id(block.parts[0]), same_model)
    return _once(message, key, lambda: _said(message, block, same_model))


def is_skipped(message: Message) -> bool:
    """Tell whether later prompts leave a message out because it failed."""
    if message.error is None:
        return False
    aborted = message.error == ABORTED
    return not (
        aborted and any(part.type not in ("step-start", "reasoning") for part in message.parts)
    )


def _once(message: Message, key: object, make: Callable[[], Sent | None]) -> list[Sent]:
    found = message.memo.get(key)
    if found is None:
        made = make()
        if made is None:
            return []
        found = message.memo[key] = made
    return [found]


def _plain(role: str, message: Message) -> Sent:
    words = "".join(text(part.data.get("text")) or "" for part in message.parts)
    return Sent(role, [encoded({"role": role, "content": words})])


# Users


def _of_user(message: Message, reminded: bool, without_media: bool) -> Sent | None:
    content: list[Record] = []
    opaque: list[Opaque] = []
    for part in message.parts:
        data = part.data
        if part.type == "text":
            words = text(data.get("text")) or ""
            if words == "" or data.get("ignored"):
                continue
            if reminded and _is_typed(part):
                words = _reminder(words)
            content.append({"type": "text", "text": words})
        elif part.type == "file":
            if (mime := text(data.get("mime")) or "") in _AS_TEXT:
                continue
            if without_media and mime.startswith(MEDIA):
                name = text(data.get("filename")) or "file"
                content.append({"type": "text", "text": f"[Attached {mime}: {name}]"})
            else:
                content.append(file_record(data, opaque))
        elif part.type == "compaction":
            content.append({"type": "text", "text": COMPACTED})
        elif part.type == "subtask":
            content.append({"type": "text", "text": SUBTASK})
    if not content:
        return None
    only = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content
    return Sent("user", [encoded({"role": "user", "content": only}), *opaque])


def _is_typed(part: Part) -> bool:
    """Tell whether a part is text that the user typed, not what the client adds."""
    data = part.data
    if part.type != "text" or data.get("synthetic") or data.get("ignored"):
        return False
    return bool((text(data.get("text")) or "").strip())


def _reminder(words: str) -> str:
    return (
        f"<system-reminder>\nThe user sent the following message:\n{words}\n\n"
        "Please address this message and continue with your tasks.\n</system-reminder>"
    )


# The model and its tools


def _of_assistant(message: Message, moment: Moment) -> list[Sent]:
    if is_skipped(message):
        return []
    found: list[Sent] = []
    files: list[Record] = []
    for block in blocks(message):
        results, apart = answers(message, block.parts, moment)
        found += [*spoken(message, block, moment), *results]
        files += apart
    if files:
        key = ("files", tuple(map(id, files)))
        found += _once(message, key, lambda: files_message(files, moment.version))
    return found


def _said(message: Message, block: Block, same_model: bool) -> Sent:
    words: list[str] = []
    thoughts: list[str] = []
    calls: list[Record] = []
    opaque: list[bytes | Opaque] = []
    signed = any(_is_signed(part) for part in message.parts)
    for part in block.parts:
        said = text(part.data.get("text")) or ""
        if part.type == "text":
            words.append(" " if signed and said == "" else said)
        elif part.type == "tool":
            calls.append(_call(part))
        elif not same_model:
            words += [said] if said.strip() else []
        elif (hidden := _encrypted(part)) is not None:
            tokens = (
                whole(table(block.finish.data.get("tokens")).get("reasoning"))
                if block.finish
                else None
            )
            opaque.append(
                Opaque(b"reasoning\0" + digest(hidden.encode()), 0 if opaque else tokens or 0)
            )
        else:
            thoughts.append(said)
    record: Record = {"role": "assistant", "content": "".join(words)}
    if thinking := "".join(thoughts):
        record["reasoning_content"] = thinking
    if calls:
        record["tool_calls"] = calls
    fidelity = "reasoning_opaque" if opaque else "exact"
    return Sent("assistant", [*opaque, encoded(record)], fidelity)


def _call(part: Part) -> Record:
    asked = part.state.get("input")
    return {
        "id": text(part.data.get("callID")) or "",
        "type": "function",
        "function": {
            "name": text(part.data.get("tool")) or "",
            "arguments": msgspec.json.encode({} if asked is None else asked).decode(),
        },
    }


def _is_signed(part: Part) -> bool:
    return (
        part.type == "reasoning"
        and table(table(part.data.get("metadata")).get("anthropic")).get("signature") is not None
    )


def _encrypted(part: Part) -> str | None:
    for provider in table(part.data.get("metadata")).values():
        if hidden := text(table(provider).get("reasoningEncryptedContent")):
            return hidden
    return None
