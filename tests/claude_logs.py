"""Claude Code's transcripts of our own making, in the record shapes of 2.1."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.claude import calls
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

Json = dict[str, Any]
EPOCH = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EPOCH_US = int(EPOCH.timestamp() * 1e6)
MODEL = "claude-opus-4-8"
SMALL = "claude-haiku-4-5"


def said(words: str) -> Json:
    return {"type": "text", "text": words}


def asked(call: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call, "name": "Look", "input": arguments}


def told(call: str, content: Any = "fine") -> Json:
    return {"tool_use_id": call, "type": "tool_result", "content": content}


def thought(words: str = "hm", secret: str = "c2VjcmV0" * 40) -> Json:
    return {"type": "thinking", "thinking": words, "signature": secret}


def used(fresh: int = 10, written: int = 0, read: int = 0, output: int = 50, **more: Any) -> Json:
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": output,
        **more,
    }


class Transcript:
    """A session's lines; each follows the line before it unless told otherwise."""

    def __init__(self, session: str = "s1", *, model: str = MODEL, agent: str | None = None):
        self.session, self.model, self.agent = session, model, agent
        self.lines: list[bytes] = []
        self.leaf: str | None = None
        self.clock = EPOCH
        self.version = "2.1.197"
        self.folder = "/home/me/boats"
        self._count = 0

    def wait(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)

    def raw(self, data: bytes) -> None:
        self.lines.append(data)

    def books(self, **fields: Any) -> None:
        """Write a line that is no part of the tree."""
        self.raw(compact({**fields, "sessionId": self.session}))

    def line(self, kind: str, *, uuid: str | None = None, **fields: Any) -> str:
        """Write a line of the tree and return its id; `parentUuid` may be given."""
        self._count += 1
        uuid = uuid or f"{self.agent or self.session}-{self._count:04d}"
        record: Json = {"parentUuid": fields.pop("parentUuid", self.leaf)}
        record |= {"isSidechain": self.agent is not None}
        record |= {"agentId": self.agent} if self.agent else {}
        record |= {"type": kind, **fields, "uuid": uuid}
        record.setdefault("timestamp", stamp(self.clock))
        record |= {"cwd": self.folder, "sessionId": fields.get("sessionId", self.session)}
        record |= {"version": fields.get("version", self.version), "userType": "external"}
        self.raw(compact(record))
        self.leaf = uuid
        self.clock += timedelta(milliseconds=100)
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def tool(self, call: str, content: Any = "fine", **fields: Any) -> str:
        """Answer the tool call on the line before (or on `sourceToolAssistantUUID`)."""
        fields.setdefault("sourceToolAssistantUUID", self.leaf)
        fields.setdefault("toolUseResult", {"stdout": "raw"})
        return self.user([told(call, content)], **fields)

    def model_line(self, response: str, block: Json, usage: Json | None, **fields: Any) -> str:
        """Write one block of a response."""
        message: Json = {"id": response, "type": "message", "role": "assistant"}
        message |= {"model": fields.pop("model", self.model), "content": [block]}
        message |= {"stop_reason": None, "usage": usage}
        fields = {"requestId": f"req_{response}", **fields}
        return self.line("assistant", message=message, **fields)

    def response(self, response: str, *blocks: Json, usage: Json | None = None, **more: Any) -> str:
        """Write a response, one line a block, with the same usage on each."""
        usage = used() if usage is None else usage
        for block in blocks or (said("all done"),):
            leaf = self.model_line(response, block, usage, **more)
        return leaf

    def note(self, kind: str, **fields: Any) -> str:
        return self.line("attachment", attachment={"type": kind, **fields})

    def listing(self) -> None:
        lines = ["- scout: Looks around. (Tools: All tools except Agent)", "- deckhand: (Tools: *)"]
        self.note("agent_listing_delta", addedLines=lines, isInitial=True)
        self.note("skill_listing", content="- knots: ties them", skillCount=1)

    def compact(self, kept: list[str], summary: str = "so far", **data: Any) -> str:
        """Write a compaction: its mark and the summary; return the summary's id."""
        tail, self.leaf = self.leaf, None
        anchor = f"{self.session}-{self._count + 2:04d}"
        metadata: Json = {"trigger": "auto", "preTokens": 100, "durationMs": 500, **data}
        if kept:
            metadata["preservedMessages"] = {"anchorUuid": anchor, "uuids": kept}
        fields = {"subtype": "compact_boundary", "logicalParentUuid": tail}
        self.line("system", compactMetadata=metadata, **fields)
        return self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def write(self, folder: Path, name: str | None = None) -> Path:
        path = folder / (name or f"{self.session}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in self.lines))
        return path


def compact(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def stamp(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read(*paths: Path, strict: bool = True) -> tuple[list[LoggedCall], Notes]:
    notes = Notes(strict=strict)
    return list(calls.read(paths, notes)), notes


def nodes(node: Node | None) -> list[Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]


def messages(node: Node) -> list[Any]:
    """Return the messages of a prompt, those that are sized as `label:tokens`."""
    found: list[Any] = []
    for each in nodes(node)[1:]:
        if each.tokens is None:
            found.append(json.loads(each.content))
        elif not each.content.startswith(b"head"):
            label = each.content.split(b"\0")[0].decode()
            found.append(f"{label}:{each.tokens}")
    return found


def words(node: Node) -> list[str]:
    """Return each message of a prompt in short: role and its blocks."""
    short = []
    for message in messages(node):
        if isinstance(message, str):
            short.append(message)
            continue
        content = message["content"]
        parts = [content] if isinstance(content, str) else [_short(part) for part in content]
        short.append(f"{message['role']}: {' | '.join(parts)}")
    return short


def _short(block: Json) -> str:
    for key in ("text", "thinking", "id", "content"):
        if isinstance(block.get(key), str):
            return str(block[key])
    return str(block.get("type"))


def head(node: Node) -> bytes:
    """Return what tells one head from another."""
    return nodes(node)[0].content
