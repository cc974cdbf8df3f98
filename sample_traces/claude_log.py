"""Records of a Claude Code 2.1 transcript, in the shapes and the order Claude Code gives them."""

from __future__ import annotations

import base64
import json
import math
import random
import zlib
from datetime import UTC, datetime
from typing import Any

from tides_project import text

CWD, VERSION, MODEL = "/home/dev/tides", "2.1.197", "claude-opus-4-8"
BYTES_PER_TOKEN = 3.1  # what the imagined server counts, over the JSON of a prompt's blocks
TOOL_TOKENS, SYSTEM_TOKENS, CONTEXT_TOKENS = 9800, 2400, 120  # in every prompt, in no log
CHILD_TOOL_TOKENS, CHILD_SYSTEM_TOKENS = 6100, 700
CACHE_LIFE_MS = 300_000
FIRST_TOKEN_MS, PREFILL_MS, DECODE_MS = 320, 0.1, 15  # per call, per new token, per output token

FIXED = random.Random("the same listings for every session")
AGENT_LINES = [
    "- helper: Does one part of the work by itself. (Tools: All tools except Agent)",
    "- reader: Reads and reports, changes nothing. (Tools: Read, Grep)",
]
SKILL_LINES = text("skills", FIXED, 2500).strip()

Json = dict[str, Any]
Prompt = list[tuple[str, int]]  # the text and the tokens of each part


def dumps(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def tokens(words: str) -> int:
    """Return how many tokens the imagined server counts in a text."""
    return math.ceil(len(words.encode()) / BYTES_PER_TOKEN)


class Server:
    """What the provider keeps: prefixes of prompts, each for five minutes after its last use."""

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    def read(self, prompt: Prompt, markers: list[int], now: int) -> int:
        """Return the tokens of the longest kept prefix of a prompt, and keep those at markers.

        Markers are counts of parts; nothing behind the last one is looked for.
        """
        best = total = 0
        mark = zlib.crc32(b"")
        for count, (words, size) in enumerate(prompt[: max(markers)], start=1):
            mark = zlib.crc32(words.encode(), mark)
            total += size
            if now - self.kept.get(mark, -CACHE_LIFE_MS - 1) <= CACHE_LIFE_MS:
                best = total
            if count in markers:
                self.kept[mark] = now
        return best


class ClaudeLog:
    """One transcript in the making; `clock` is in milliseconds since 1970."""

    def __init__(self, name: str, start_ms: int, server: Server, parent: ClaudeLog | None = None):
        self.rng = random.Random(f"claude {name}")
        self.server, self.parent, self.clock = server, parent, start_ms
        self.id = parent.id if parent else self.uuid()
        self.agent = f"a{self.hex(16)}" if parent else ""
        self.lines: list[str] = []
        self.leaf: str | None = None
        self.history: Prompt = []
        self.marked = 0
        self.turns: list[tuple[str, str, int]] = []
        self.calls = 0

    # Ids and lines

    def uuid(self) -> str:
        """Return a random UUID."""
        bits = f"{self.rng.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"

    def hex(self, digits: int = 24) -> str:
        """Return random hex digits, such as the server's ids have."""
        return f"{self.rng.getrandbits(4 * digits):0{digits}x}"

    def stamp(self) -> str:
        """Return the clock as Claude Code writes it."""
        moment = datetime.fromtimestamp(self.clock / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def books(self, **fields: Any) -> None:
        """Write a line that stands in no prompt."""
        self.lines.append(dumps({**fields, "sessionId": self.id}))

    def line(self, kind: str, parent: str | None, fields: Json, **more: Any) -> str:
        """Write a line of the tree of messages and return its id."""
        uuid = self.uuid()
        record: Json = {"parentUuid": parent, "isSidechain": self.parent is not None}
        record |= {"agentId": self.agent} if self.agent else {}
        record |= {"type": kind, **fields, "uuid": uuid, "timestamp": self.stamp(), **more}
        record |= {"userType": "external", "entrypoint": "sdk-cli", "cwd": CWD}
        self.lines.append(dumps(record | {"sessionId": self.id, "version": VERSION}))
        self.leaf = uuid
        return uuid

    # What prompts hold

    def head(self) -> list[tuple[str, int]]:
        """Return what stands before the first message: tools, system prompt, context."""
        kind = "helper" if self.parent else "main"
        sizes = (CHILD_TOOL_TOKENS, CHILD_SYSTEM_TOKENS) if self.parent else (TOOL_TOKENS, 0)
        system = sizes[1] or SYSTEM_TOKENS
        return [(f"{kind} tools", sizes[0]), (f"{kind} system", system), ("date", CONTEXT_TOKENS)]

    def add(self, value: Json, *, user: bool) -> None:
        """Add a block or a message to the history; a marker goes to the last of the user's."""
        words = dumps(value)
        self.history.append((words, tokens(words)))
        if user:
            self.marked = len(self.history)

    def user(self, content: Any, **more: Any) -> str:
        """Write a user's line."""
        self.clock += self.rng.randint(2, 9)
        for block in content if isinstance(content, list) else [content]:
            self.add({"user": block}, user=True)
        message = {"role": "user", "content": content}
        return self.line("user", self.leaf, {"message": message}, **more)

    def note(self, attachment: Json, words: str) -> None:
        """Write what the client adds to the prompt."""
        self.clock += 1
        self.add({"role": "system", "content": words}, user=False)
        self.line("attachment", self.leaf, {"attachment": attachment})

    def begin(self, task: str) -> None:
        """Begin a turn; the first one of a session lists agents and skills."""
        first = not self.history
        if self.parent is None:
            self.books(type="queue-operation", operation="enqueue", timestamp=self.stamp())
            self.books(type="queue-operation", operation="dequeue", timestamp=self.stamp())
        self.user(task, promptSource="sdk")
        if not first:
            return
        if self.parent is None:
            listing: Json = {"type": "agent_listing_delta", "addedTypes": ["helper", "reader"]}
            listing |= {"addedLines": AGENT_LINES, "removedTypes": [], "isInitial": True}
            self.note(listing, "\n".join(AGENT_LINES))
        skills = {"type": "skill_listing", "content": SKILL_LINES, "isInitial": True}
        self.note(skills | {"skillCount": SKILL_LINES.count("\n") + 1}, SKILL_LINES)

    # Calls

    def call(self, *blocks: Json) -> list[str]:
        """Call the model: write the blocks of its response as they end; return their lines."""
        head = self.head()
        prompt = [*head, *self.history]
        end = len(head) + self.marked
        read = self.server.read(prompt, [1, 2, end], self.clock)
        written = sum(size for _, size in prompt[:end]) - read
        fresh = sum(size for _, size in prompt[end:])
        self.clock += FIRST_TOKEN_MS + int((written + fresh) * PREFILL_MS)
        usage: Json = {"input_tokens": fresh, "cache_creation_input_tokens": written}
        usage |= {"cache_read_input_tokens": read, "output_tokens": 0}
        usage["cache_creation"] = {
            "ephemeral_1h_input_tokens": 0,
            "ephemeral_5m_input_tokens": written,
        }
        sizes = [tokens(dumps({"assistant": block})) for block in blocks]
        usage["output_tokens"] = sum(sizes)
        asks = any(block["type"] == "tool_use" for block in blocks)
        head_of: Json = {"id": f"msg_{self.hex()}", "type": "message", "role": "assistant"}
        head_of |= {"model": MODEL, "stop_reason": "tool_use" if asks else "end_turn"}
        request, lines = f"req_{self.hex()}", []
        more = {"attributionAgent": "helper"} if self.parent else {}
        for block, size in zip(blocks, sizes, strict=True):
            self.clock += size * DECODE_MS
            self.add({"assistant": block}, user=False)
            message = {**head_of, "content": [block], "usage": usage}
            fields = {"message": message, "requestId": request}
            lines.append(self.line("assistant", self.leaf, fields, **more))
        self.calls += 1
        return lines

    def answer(self, line: str, call: str, output: str) -> None:
        """Write what a tool returned."""
        block = {"tool_use_id": call, "type": "tool_result", "content": output}
        result = {"stdout": output, "stderr": "", "interrupted": False}
        self.user([block], toolUseResult=result, sourceToolAssistantUUID=line)

    def thought(self) -> list[Json]:
        """Return, now and then, thinking and words to go before a tool call."""
        blocks: list[Json] = []
        if self.rng.random() < 0.3:
            secret = base64.b64encode(self.rng.randbytes(3 * self.rng.randint(60, 200))).decode()
            words = text("think", self.rng)
            blocks.append({"type": "thinking", "thinking": words, "signature": secret})
        if self.rng.random() < 0.4:
            blocks.append({"type": "text", "text": text("say", self.rng)})
        return blocks

    def prompt_tokens(self) -> int:
        """Return the size of the next prompt in tokens."""
        return sum(size for _, size in [*self.head(), *self.history])

    def compact(self) -> None:
        """Let the model sum up the work, which no line tells, and go on from the summary."""
        words = f"What was done before, in short:\n\n{text('summary', self.rng, 3500)}"
        began = self.clock
        self.clock += FIRST_TOKEN_MS + tokens(words) * DECODE_MS
        prompt = [*self.head(), *self.history]
        self.server.read(prompt, [1, 2, len(prompt)], self.clock)
        tail = self.leaf
        data = {"trigger": "auto", "preTokens": self.prompt_tokens()}
        data["durationMs"] = self.clock - began
        self.clock += 20
        fields: Json = {"subtype": "compact_boundary", "logicalParentUuid": tail}
        mark = self.line("system", None, fields | {"content": "Compacted"}, compactMetadata=data)
        self.history, self.marked = [], 0
        self.leaf = mark
        self.user(words, isVisibleInTranscriptOnly=True, isCompactSummary=True)
