"""Codex logs of our own making, in the record shapes of each era."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.codex import calls
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

Json = dict[str, Any]
EPOCH = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EPOCH_US = int(EPOCH.timestamp() * 1e6)
EPOCH_MS = EPOCH_US // 1000


def uuid7(ms: int, tail: int = 0) -> str:
    """Return a UUID of version 7 that carries a time."""
    head = f"{ms:012x}"
    return f"{head[:8]}-{head[8:]}-7000-8000-{tail:012x}"


def thread_id(number: int) -> str:
    return uuid7(EPOCH_MS + number * 60_000, number)


def compact(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def said(role: str, words: str) -> Json:
    """Return a message as it is sent."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def asked(call_id: str, arguments: str = "{}") -> Json:
    return {"type": "function_call", "name": "look", "arguments": arguments, "call_id": call_id}


def told(call_id: str, output: Any = "fine") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def thought(secret: str = "c2VjcmV0" * 200) -> Json:
    return {"type": "reasoning", "summary": [], "content": None, "encrypted_content": secret}


def tokens(prompt: int, output: int = 10, cached: int = 0, reasoning: int = 0) -> Json:
    return {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "reasoning_output_tokens": reasoning,
        "total_tokens": prompt + output,
    }


@dataclass
class Log:
    """One rollout file in the making; `wait` moves its clock (milliseconds)."""

    version: str | None = "0.171.0"
    number: int = 1
    now_ms: int = 0
    lines: list[bytes] = field(default_factory=list)
    total: Json = field(default_factory=lambda: tokens(0, 0))
    last: Json | None = None
    ordinal: int = 0
    responses: int = 0
    paginated: bool | None = None

    @property
    def thread(self) -> str:
        return thread_id(self.number)

    @property
    def at(self) -> str:
        time = EPOCH + timedelta(milliseconds=self.now_ms)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def now_us(self) -> int:
        return EPOCH_US + self.now_ms * 1000

    @property
    def is_paginated(self) -> bool:
        minor = int((self.version or "0.999").split(".")[1])
        return minor >= 153 if self.paginated is None else self.paginated

    def wait(self, ms: int = 1000) -> Log:
        self.now_ms += ms
        return self

    def raw(self, line: bytes) -> Log:
        self.lines.append(line)
        return self

    def put(self, kind: str, payload: Json, **more: Any) -> Log:
        head: Json = {"timestamp": self.at}
        if self.is_paginated:
            head["ordinal"] = self.ordinal
            self.ordinal += 1
        return self.raw(compact({**head, "type": kind, "payload": payload, **more}))

    def meta(self, **more: Any) -> Log:
        payload = {
            "id": self.thread,
            "timestamp": self.at,
            "cwd": "/home/pat/boat",
            "originator": "codex_exec",
            "cli_version": self.version,
            "source": "exec",
            "model_provider": "some-provider",
        }
        if self.is_paginated:
            payload["history_mode"] = "paginated"
        return self.put("session_meta", {**payload, **more})

    def context(self, model: str = "model-a", **more: Any) -> Log:
        return self.put("turn_context", {"cwd": "/home/pat/boat", "model": model, **more})

    def item(self, item: Json, **metadata: Any) -> Log:
        more = {"metadata": metadata} if metadata else {}
        return self.put("response_item", item, **more)

    def user(self, words: str) -> Log:
        return self.item(said("user", words))

    def event(self, kind: str, **payload: Any) -> Log:
        return self.put("event_msg", {"type": kind, **payload})

    def turn(self, at_ms: int | None = None) -> Log:
        """Begin a turn whose id was made now, or at a time after EPOCH."""
        made = EPOCH_MS + (self.now_ms if at_ms is None else at_ms)
        return self.event("task_started", turn_id=uuid7(made, 7), started_at=made // 1000)

    def usage(self, *counts: int) -> Log:
        """Write the usage of a response as a record."""
        self.responses += 1
        payload = {
            "thread_id": self.thread,
            "response_id": f"resp_{self.number}_{self.responses}",
            "usage": tokens(*counts),
        }
        self._add(tokens(*counts))
        return self.put("token_usage_record", payload)

    def count(self, *counts: int) -> Log:
        """Write a token_count: of a new response, or again the last one (without `counts`)."""
        if counts:
            self._add(tokens(*counts))
        if self.last is None:
            return self.event("token_count", info=None, rate_limits={})
        return self.event(
            "token_count",
            info={"total_token_usage": dict(self.total), "last_token_usage": self.last},
            rate_limits={},
        )

    def restart_count(self) -> Log:
        self.total, self.last = tokens(0, 0), None
        return self

    def _add(self, used: Json) -> None:
        self.last = used
        self.total = {key: self.total[key] + value for key, value in used.items()}

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    def save(self, folder: Path, name: str | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (name or f"rollout-2026-03-01T12-00-00-{self.thread}.jsonl")
        path.write_bytes(zstd(self.data) if path.suffix == ".zst" else self.data)
        return path


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.Codec("zstd", 3).compress(data, asbytes=True))


def read(*paths: Path, notes: Notes | None = None) -> list[LoggedCall]:
    """Return the calls of some files; by default no line may be skipped."""
    return list(calls.read(paths, Notes(strict=True) if notes is None else notes))


def nodes(node: Node | None) -> list[Node]:
    """Return the nodes of a prompt, head first."""
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]


def items(node: Node) -> list[Any]:
    """Return what a prompt holds behind its head: items, or the tokens of what is not readable."""
    return [json.loads(n.content) if n.tokens is None else n.tokens for n in nodes(node)[1:]]


def words(node: Node) -> list[Any]:
    """Return each item of a prompt in short: its words, its call id, or its tokens."""
    return [short(item) for item in items(node)]


def short(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    if item["type"] == "message":
        return " ".join(part.get("text", "?") for part in item["content"])
    if "output" in item:
        return f"{item['call_id']}={item['output']}"
    return item.get("call_id") or item["type"]


def head(node: Node) -> bytes:
    return nodes(node)[0].content
