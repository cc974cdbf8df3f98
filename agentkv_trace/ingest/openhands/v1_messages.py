"""Events of the second generation (the agent SDK) as the chat messages they become."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.openhands.text import (
    ERROR,
    TERMINAL_LIMIT,
    TOOL_LIMIT,
    clipped,
    with_prompt,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

ANSWERS = frozenset({"ObservationEvent", "UserRejectObservation", "AgentErrorEvent"})
_BROWSER = "Browser"
_MIMES = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}
_AS_STRING = ("deepseek-v3.2", "glm", "groq/kimi-k2-instruct", "openrouter/minimax")
_RESENDS_REASONING = (
    "kimi-k3",
    "kimi-k2-thinking",
    "kimi-k2.5",
    "kimi-k2.6",
    "openrouter/minimax-m2",
    "deepseek/deepseek-reasoner",
    "deepseek/deepseek-v4",
)


@dataclass(frozen=True, slots=True)
class Style:
    """How messages are written for a model."""

    as_string: bool = False
    resends_reasoning: bool = False
    responses: bool = False
    """By OpenAI's responses API, as items instead of messages."""
    is_native: bool = True
    """Tools are called by the API's own means; else they are written into the text."""


def style_of(llm: Record, events: Iterable[Record]) -> Style:
    """Return how a conversation's messages are written, from its settings and its tool calls."""
    model = (text(llm.get("model")) or "").lower()
    forced = llm.get("force_string_serializer")
    as_string = any(name in model for name in _AS_STRING) if forced is None else forced is True
    return Style(
        as_string=as_string,
        resends_reasoning=any(name in model for name in _RESENDS_REASONING),
        responses=any(
            table(event.get("tool_call")).get("origin") == "responses"
            or event.get("responses_reasoning_item")
            for event in events
        ),
        is_native=llm.get("native_tool_calling") is not False,
    )


@dataclass(slots=True)
class Entry:
    """An event in the view that the next prompt is made of."""

    id: str
    role: str
    parts: list[Record]
    """What its message holds: texts and images."""
    response_id: str | None = None
    call: Record = field(default_factory=dict)
    """The tool call that an action makes."""
    call_id: str | None = None
    name: str | None = None
    event: Record = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether this is an action, which needs an answer."""
        return bool(self.call)


def entry_of(event: Record) -> Entry | None:
    """Return the entry of an event; None where the event is in no prompt."""
    kind, name = event.get("kind"), text(event.get("id")) or ""
    if kind == "SystemPromptEvent":
        blocks = (event.get("system_prompt"), event.get("dynamic_context"))
        return Entry(name, "system", _parts([block for block in blocks if block]))
    if kind == "MessageEvent":
        message = table(event.get("llm_message"))
        parts = _parts(message.get("content")) + _parts(event.get("extended_content"))
        response = text(event.get("llm_response_id"))
        role = text(message.get("role")) or "user"
        return Entry(name, role, parts, response, event=message)
    if kind == "ActionEvent":
        call = table(event.get("tool_call"))
        return Entry(
            name,
            "assistant",
            _parts(event.get("thought")),
            text(event.get("llm_response_id")),
            call or {"id": event.get("tool_call_id"), "name": event.get("tool_name")},
            text(event.get("tool_call_id")),
            event=event,
        )
    if kind in ANSWERS:
        parts = _answer(event) + _parts(event.get("extended_content"))
        call_id, tool = text(event.get("tool_call_id")), text(event.get("tool_name"))
        return Entry(name, "tool", parts, call_id=call_id, name=tool)
    return None


def _parts(content: object) -> list[Record]:
    """Return the texts and images of a content as a chat message has them."""
    if isinstance(content, str):
        return [_text(content)]
    found = []
    for part in content if isinstance(content, list) else []:
        fields = table(part)
        if fields.get("type") == "image":
            urls = fields.get("image_urls")
            found += [_image(url) for url in urls or () if isinstance(url, str)]
        elif isinstance(fields.get("text"), str):
            found.append(_text(fields["text"]))
    return found


def _text(words: str) -> Record:
    return {"type": "text", "text": words}


def _image(url: str) -> Record:
    return {"type": "image_url", "image_url": {"url": url}}


def _answer(event: Record) -> list[Record]:
    if event.get("kind") == "UserRejectObservation":
        reason = text(event.get("rejection_reason")) or "User rejected the action"
        return [_text(f"Action rejected: {reason}")]
    if event.get("kind") == "AgentErrorEvent":
        return [_text(text(event.get("error")) or "")]
    seen = table(event.get("observation"))
    kind = text(seen.get("kind")) or ""
    parts = _parts(seen.get("content"))
    folder = text(seen.get("full_output_save_dir"))
    words = "".join(part["text"] for part in parts if "text" in part)
    if kind == "TerminalObservation":
        shown = with_prompt(words, table(seen.get("metadata")))
        parts = [_text(clipped(shown, TERMINAL_LIMIT, folder, "terminal"))]
    elif kind.startswith(_BROWSER):
        parts = [_text(clipped(words, TOOL_LIMIT, folder, "browser"))] if words else []
        parts += _screenshot(text(seen.get("screenshot_data")), folder)
    if seen.get("is_error") is True:
        parts = [_text(ERROR), *parts]
    if kind == "TaskObservation":
        info = "\n".join(
            f"{label}: {seen.get(key)}"
            for label, key in (("Task ID", "task_id"), ("Subagent", "subagent"))
        )
        parts = [_text(f"{info}\nStatus: {seen.get('status')}"), *parts]
    return parts


def _screenshot(data: str | None, folder: str | None) -> list[Record]:
    if data is None:
        return []
    kind = next((name for start, name in _MIMES.items() if data.startswith(start)), "png")
    parts = []
    if folder:
        name = hashlib.sha256(data.encode()).hexdigest()[:8]
        ending = "jpg" if kind == "jpeg" else kind
        parts = [_text(f"Screenshot saved to: {folder}/browser_screenshot_{name}.{ending}")]
    return [*parts, _image(f"data:image/{kind};base64,{data}")]


def chat(entries: list[Entry], style: Style) -> Record:
    """Return the one message that some entries become: a batch of actions, or users in a row."""
    first = entries[0]
    parts = [part for entry in entries for part in entry.parts]
    if first.asks:
        # The thought of a batch stands in its first action only.
        parts = [part for part in first.parts if part.get("text", "x").strip()]
    if first.role == "tool":
        parts = [_limited(part) for part in parts]
    content: object = parts
    images = any("text" not in part for part in parts)
    if style.as_string and not images:
        content = "\n".join(part["text"] for part in parts)
    message: Record = {"content": content, "role": first.role}
    if first.role == "assistant":
        if blocks := first.event.get("thinking_blocks"):
            message["thinking_blocks"] = blocks
        if first.asks:
            if not parts:
                del message["content"]
            message["tool_calls"] = [_called(entry.call) for entry in entries]
        elif not parts:
            message["content"] = ""
        if style.resends_reasoning and (thought := text(first.event.get("reasoning_content"))):
            message["reasoning_content"] = thought
    elif first.role == "tool" and first.call_id is not None:
        message |= {"tool_call_id": first.call_id, "name": first.name}
    return message


def _limited(part: Record) -> Record:
    return _text(clipped(part["text"], TOOL_LIMIT)) if "text" in part else part


def _called(call: Record) -> Record:
    function = {"name": call.get("name"), "arguments": call.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": function}


def items(entries: list[Entry]) -> list[Record]:
    """Return the items that some entries become in the responses API."""
    first = entries[0]
    if first.role == "system":
        return []
    if first.role == "user":
        content = [_input(part) for entry in entries for part in entry.parts]
        content = content or [{"type": "input_text", "text": ""}]
        return [{"type": "message", "role": "user", "content": content}]
    if first.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": first.call_id,
                "output": _limited(part)["text"] if "text" in part else [_input(part)],
            }
            for part in first.parts
        ]
    found = []
    thought = table(first.event.get("responses_reasoning_item"))
    if thought.get("id"):
        found.append(_reasoning(thought))
    said = [{"type": "output_text", "text": part["text"]} for part in first.parts if part["text"]]
    if said:
        found.append({"type": "message", "role": "assistant", "content": said})
    for entry in entries:
        if entry.asks:
            call = {"type": "function_call", "call_id": entry.call.get("id")}
            names = {key: entry.call.get(key) for key in ("name", "arguments")}
            found.append(call | names)
    return found


def _input(part: Record) -> Record:
    if "text" in part:
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}


def _reasoning(thought: Record) -> Record:
    summary = [{"type": "summary_text", "text": words} for words in thought.get("summary") or ()]
    found: Record = {"type": "reasoning", "summary": summary}
    if thought.get("content"):
        words = thought["content"]
        found["content"] = [{"type": "reasoning_text", "text": each} for each in words]
    for key in ("encrypted_content", "status"):
        if thought.get(key):
            found[key] = thought[key]
    return found
