"""Small logs in the shapes of OpenHands, both generations, for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

BEGAN = datetime(2026, 3, 1, 9, 0, 0)
"""On the clock of the machine, which has no zone."""
MODEL = "made/model-1"
TOOLS = [
    {
        "description": "Run a command in /repo/one.",
        "action_type": "TerminalAction",
        "kind": "TerminalTool",
        "title": "terminal",
    }
]

Json = dict[str, Any]


def epoch(stamp: datetime, zone_hours: float = 0.0) -> float:
    """Return what a local stamp is in seconds since 1970."""
    return (stamp.replace(tzinfo=UTC) - timedelta(hours=zone_hours)).timestamp()


def usage(prompt: int, output: int = 20, cached: int = 0, written: int = 0) -> Json:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "cache_read_tokens": cached,
        "cache_write_tokens": written,
    }


@dataclass
class Conversation:
    """A conversation of the second generation in the making; each event is a second later."""

    zone_hours: float = 0.0
    events: list[Json] = field(default_factory=list)
    metrics: dict[str, Json] = field(default_factory=dict)
    clock: datetime = BEGAN
    tree: bool = True
    state: Json = field(default_factory=dict)
    llm: Json = field(default_factory=lambda: {"model": MODEL})
    head: str | None = None

    def add(self, kind: str, **fields: Any) -> str:
        name = fields.pop("id", f"00000000-0000-4000-8000-{len(self.events):012d}")
        self.clock += timedelta(seconds=1)
        event: Json = {"id": name, "timestamp": self.clock.isoformat(), "source": "agent"}
        if self.tree and self.head is not None:
            event["parent_id"] = self.head
        self.events.append(event | fields | {"kind": kind})
        self.head = name
        return name

    def system(self, words: str = "You keep the tide tables.", tools: Any = TOOLS) -> str:
        return self.add("SystemPromptEvent", system_prompt=text(words), tools=tools)

    def user(self, words: str, **fields: Any) -> str:
        message = {"role": "user", "content": [text(words)], "thinking_blocks": []}
        return self.add("MessageEvent", source="user", llm_message=message, **fields)

    def said(self, words: str, response: str) -> str:
        message = {"role": "assistant", "content": [text(words)] if words else []}
        return self.add("MessageEvent", llm_message=message, llm_response_id=response)

    def act(self, response: str, call: str, thought: str = "", **fields: Any) -> str:
        arguments = json.dumps({"command": f"run {call}"})
        tool = {"id": call, "name": "terminal", "arguments": arguments, "origin": "completion"}
        values: Json = {
            "thought": [text(thought)] if thought else [],
            "action": {"command": f"run {call}", "kind": "TerminalAction"},
            "tool_name": "terminal",
            "tool_call_id": call,
            "tool_call": tool,
            "llm_response_id": response,
        }
        return self.add("ActionEvent", **values | fields)

    def answer(self, call: str, words: str, **seen: Any) -> str:
        observation = {"content": [text(words)], "is_error": False, "kind": "FileEditorObservation"}
        return self.add(
            "ObservationEvent",
            source="environment",
            tool_name="terminal",
            tool_call_id=call,
            observation=observation | seen,
        )

    def used(self, response: str, tokens: Json, *, name: str = "agent", cost: bool = True) -> None:
        """Note the usage of the response of the last event, which ended as that was written."""
        lists = self.metrics.setdefault(
            name,
            {"model_name": MODEL, "costs": [], "response_latencies": [], "token_usages": []},
        )
        lists["token_usages"].append({"model": MODEL, **tokens, "response_id": response})
        lists["response_latencies"].append(
            {"model": MODEL, "latency": 0.5, "response_id": response}
        )
        if cost:
            at = epoch(self.clock, self.zone_hours) - 0.01
            lists["costs"].append({"model": MODEL, "cost": 0.001, "timestamp": at})

    def turn(self, response: str, call: str, tokens: Json | None = None, answer: str = "") -> None:
        """Add a call with one action and its answer."""
        self.act(response, call, thought=f"Now {call}.")
        if tokens is not None:
            self.used(response, tokens)
        self.answer(call, answer or f"result of {call}")

    def write(self, folder: Path, *, with_state: bool = True) -> Path:
        """Write the conversation; return what stands for it."""
        (folder / "events").mkdir(parents=True)
        for number, event in enumerate(self.events):
            name = f"event-{number:05d}-{number:08x}.json"
            (folder / "events" / name).write_text(json.dumps(event))
        if not with_state:
            return folder / "events" / "event-00000-00000000.json"
        state: Json = {
            "id": "00000000-0000-4000-8000-000000000000",
            "agent": {"llm": self.llm},
            "workspace": {"working_dir": "/repo/one"},
            "execution_status": "finished",
            "stats": {"usage_to_metrics": self.metrics},
        }
        (folder / "base_state.json").write_text(json.dumps(state | self.state))
        return folder / "base_state.json"


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def completion(
    messages: list[Json],
    response: str,
    *,
    at: float,
    tokens: Json | None = None,
    reply: Json | None = None,
    tools: Any = TOOLS,
    **fields: Any,
) -> Json:
    """Return a completion of the second generation."""
    message = {"role": "assistant", "content": "done"} if reply is None else reply
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {
        "context_window": 200000,
        "messages": messages,
        "tools": tools,
        "kwargs": {"prompt_cache_key": "<redacted>"},
        "response": {"id": response, "model": "model-1", "choices": choices, "usage": tokens},
        "cost": 0.001,
        "timestamp": at,
        "latency_sec": 0.5,
        **fields,
    }


def write_completions(folder: Path, found: list[Json]) -> Path:
    folder.mkdir(parents=True)
    for number, each in enumerate(found):
        name = f"{MODEL.replace('/', '__')}-{each['timestamp']:.3f}-{number:04x}.json"
        (folder / name).write_text(json.dumps(each))
    return folder


def asks(call: str, words: str = "") -> Json:
    """Return a model's message with a tool call, as it comes from the server."""
    function = {"name": "terminal", "arguments": json.dumps({"command": f"run {call}"})}
    tool = {"id": call, "type": "function", "function": function}
    return {"role": "assistant", "content": words, "tool_calls": [tool]}


def tool(call: str, words: str) -> Json:
    """Return an answer as it is sent."""
    return {"content": [text(words)], "role": "tool", "tool_call_id": call, "name": "terminal"}


def role(name: str, words: str) -> Json:
    return {"content": [text(words)], "role": name}


@dataclass
class Old:
    """A conversation of the first generation in the making; each event is a second later."""

    zone_hours: float = 0.0
    events: list[Json] = field(default_factory=list)
    clock: datetime = BEGAN

    def add(self, source: str, **fields: Any) -> int:
        self.clock += timedelta(seconds=1)
        number = len(self.events)
        stamp = self.clock.isoformat()
        self.events.append({"id": number, "timestamp": stamp, "source": source, **fields})
        return number

    def system(self, words: str = "You keep the tide tables.", tools: Any = None) -> int:
        return self.add("agent", action="system", args={"content": words, "tools": tools})

    def message(self, words: str, source: str = "user", **fields: Any) -> int:
        args = {"content": words, "image_urls": None}
        return self.add(source, action="message", args=args, **fields)

    def response(self, name: str, calls: list[str], words: str, tokens: Json) -> Json:
        """Return a model's response with tool calls."""
        tools = [
            {"id": call, "type": "function", "function": {"name": "run", "arguments": "{}"}}
            for call in calls
        ]
        message = {"role": "assistant", "content": words, "tool_calls": tools}
        return {
            "id": name,
            "created": int(epoch(self.clock, self.zone_hours)),
            "model": "model-1",
            "choices": [{"message": message, "finish_reason": "tool_calls"}],
            "usage": tokens,
        }

    def act(self, response: Json, call: str, action: str = "run", **args: Any) -> int:
        meta = self._meta(response, call)
        return self.add("agent", action=action, args=args, tool_call_metadata=meta)

    def answer(self, response: Json, call: str, words: str, kind: str = "run", **more: Any) -> int:
        meta = self._meta(response, call)
        extras = more.pop("extras", {})
        return self.add(
            "agent", observation=kind, content=words, extras=extras, tool_call_metadata=meta, **more
        )

    def _meta(self, response: Json, call: str) -> Json:
        total = len(response["choices"][0]["message"]["tool_calls"])
        names = {"function_name": "run", "tool_call_id": call}
        return names | {"total_calls_in_response": total, "model_response": response}

    def turn(self, name: str, call: str, tokens: Json, answer: str = "") -> None:
        response = self.response(name, [call], f"Now {call}.", tokens)
        self.act(response, call, command=call)
        self.answer(response, call, answer or f"result of {call}")

    def write(self, folder: Path) -> Path:
        (folder / "events").mkdir(parents=True)
        for event in self.events:
            (folder / "events" / f"{event['id']}.json").write_text(json.dumps(event))
        return folder / "events" / "0.json"


def messages(call: LoggedCall) -> list[Any]:
    """Return the messages of a call's prompt; what is only sized is its tokens."""
    return pieces(call.prompt)[1:]


def roles(call: LoggedCall) -> str:
    """Return the first letters of the roles in a call's prompt."""
    return "".join(each["role"][0] if isinstance(each, dict) else "#" for each in messages(call))


def words(message: Json) -> list[str]:
    """Return the texts of a message."""
    return [part["text"] for part in message["content"] if "text" in part]


def pieces(node: Node | None) -> list[Any]:
    found: list[Any] = []
    while node is not None:
        if node.parent is None:
            found.append(node.content)
        else:
            found.append(json.loads(node.content) if node.tokens is None else node.tokens)
        node = node.parent
    return found[::-1]
