"""One OpenCode session: its records, the prompts they come from, and the usage that follows."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from tides_project import text

Json = dict[str, Any]
Prompt = list[tuple[str, int]]  # the text and the tokens of each chat message

VERSION = "1.18.33"
MODEL = {"modelID": "tide-1", "providerID": "pier"}
CWD = "/home/dev/tides"
PROJECT = "5e1f0c7a9b3d2846f0a1c5e7d9b3284610fadc52"
BYTES_PER_TOKEN = 3.1  # what the imagined server counts, over the JSON of a prompt's messages
HEAD_TOKENS = {"build": 6840, "general": 6020}  # system prompt and tools: in no log
SUMMARY_TOKENS = 145  # what a request for a summary begins with
CACHE_STEP, CACHE_LIFE_MS = 128, 300_000
FIRST_TOKEN_MS, PREFILL_MS, DECODE_MS = 280, 0.12, 18  # per call, per new token, per output token
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CLEARED = "[Old tool result content cleared]"
NO_CHANGES = {"additions": 0, "deletions": 0, "files": 0}
DENIED = ["question", "plan_enter", "plan_exit"]


def dumps(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def chat(role: str, content: str, **more: Any) -> tuple[str, int]:
    """Return a chat message as it is sent, and its tokens."""
    words = dumps({"role": role, "content": content, **more})
    return words, math.ceil(len(words.encode()) / BYTES_PER_TOKEN)


class Session:
    """A session at work; its clock is in epoch milliseconds."""

    def __init__(self, name: str, start_ms: int, parent: Session | None = None):
        self.rng = random.Random(name)
        self.clock = start_ms
        self.parent = parent
        self.agent = "build" if parent is None else "general"
        self.id = self.ident("ses", inverted=True)
        self.title = text("ask", self.rng).split(".")[0]
        self.start_ms = start_ms
        self.messages: list[Json] = []
        self.prompt: Prompt = []
        self.results: dict[str, int] = {}  # where in the prompt a tool's result is
        self.cached: Prompt = []
        self.cached_until = 0
        self.asked = ""

    # Names

    def ident(self, kind: str, *, inverted: bool = False) -> str:
        """Return an id that holds the time, as OpenCode's do."""
        bits = (self.clock << 12 | 1) & ((1 << 48) - 1)
        bits = ~bits & ((1 << 48) - 1) if inverted else bits
        return f"{kind}_{bits:012x}" + "".join(self.rng.choices(BASE62, k=14))

    def hex(self, length: int) -> str:
        """Return random hexadecimal digits."""
        return "".join(self.rng.choices("0123456789abcdef", k=length))

    # Records

    def message(self, data: Json) -> Json:
        """Begin a message and return it."""
        info = data | {"id": self.ident("msg"), "sessionID": self.id}
        self.messages.append({"info": info, "parts": []})
        return info

    def part(self, data: Json) -> Json:
        """Add a part to the last message and return it."""
        message = self.messages[-1]
        made = data | {"id": self.ident("prt"), "sessionID": self.id}
        made["messageID"] = message["info"]["id"]
        message["parts"].append(made)
        self.clock += 1
        return made

    def user(self, *parts: Json) -> None:
        """Add a message of the user, or one made in the user's name."""
        data = {"role": "user", "time": {"created": self.clock}, "agent": "build"}
        model = {"providerID": MODEL["providerID"], "modelID": MODEL["modelID"]}
        self.asked = self.message(data | {"model": model, "summary": {"diffs": []}})["id"]
        self.clock += self.rng.randint(2, 9)
        for data in parts:
            self.part(data)
            words = {"text": data.get("text"), "compaction": "What did we do so far?"}[data["type"]]
            self.prompt.append(chat("user", str(words)))

    def say(self, words: str) -> None:
        """Add what the user types."""
        self.user({"type": "text", "text": words})

    def assistant(self, finish: str, **more: Any) -> Json:
        """Begin an answer; `answer` fills it."""
        data = {"parentID": self.asked, "role": "assistant", "mode": self.agent}
        data |= {"agent": self.agent, "path": {"cwd": CWD, "root": CWD}, "cost": 0, "tokens": {}}
        return self.message(
            data | MODEL | {"time": {"created": self.clock}, "finish": finish} | more
        )

    # Calls

    def usage(self, prompt: Prompt, head: int, output: int, reasoning: int) -> Json:
        """Return what the server counted, and let it keep the prompt."""
        total = head + sum(size for _, size in prompt)
        known = 0
        if self.clock < self.cached_until:
            known = head
            for one, other in zip(prompt, self.cached, strict=False):
                if one != other:
                    break
                known += one[1]
        read = known // CACHE_STEP * CACHE_STEP
        fresh = total - read
        self.clock += FIRST_TOKEN_MS + math.ceil(fresh * PREFILL_MS)
        counts = {"input": fresh, "output": output, "reasoning": reasoning}
        counts = {"total": total + output + reasoning} | counts
        return counts | {"cache": {"write": 0, "read": read}}

    def answer(self, words: str, tools: list[tuple[str, Json]], thought: str = "") -> list[Json]:
        """Call the model; return the parts of the tools it asks for, still to be run."""
        info = self.assistant("tool-calls" if tools else "stop")
        self.clock += self.rng.randint(90, 170)
        calls = [(f"call_{self.hex(24)}", name, asked) for name, asked in tools]
        said = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": dumps(asked)}}
            for call, name, asked in calls
        ]
        more: Json = {"reasoning_content": thought} if thought else {}
        more |= {"tool_calls": said} if said else {}
        message = chat("assistant", words, **more)
        reasoning = len(thought) // 4
        output = max(message[1] - reasoning, 1)
        used = self.usage(self.prompt, HEAD_TOKENS[self.agent], output, reasoning)
        snapshot = self.hex(40)
        self.part({"snapshot": snapshot, "type": "step-start"})
        self.streamed("reasoning", thought, reasoning)
        self.streamed("text", words, output - 20 * len(tools))
        parts = []
        for call, name, asked in calls:
            state: Json = {"status": "completed", "input": asked}
            parts.append(self.part({"type": "tool", "tool": name, "callID": call, "state": state}))
            self.clock += 20 * DECODE_MS
            state["began"] = self.clock
        self.prompt.append(message)
        self.cached, self.cached_until = list(self.prompt), self.clock + CACHE_LIFE_MS
        info["tokens"] = used
        info["finish_step"] = {"reason": info["finish"], "snapshot": snapshot}
        return parts

    def streamed(self, kind: str, words: str, count: int) -> None:
        """Add a text that takes the time of its tokens."""
        if not words:
            return
        begin = self.clock
        part = self.part({"type": kind, "text": words, "time": {}})
        self.clock += max(count, 1) * DECODE_MS
        part["time"] = {"start": begin, "end": self.clock}

    def returned(self, part: Json, output: str, title: str, metadata: Json) -> None:
        """End a tool at the clock's time."""
        state = part["state"]
        began = state.pop("began")
        state |= {"output": output, "metadata": metadata, "title": title}
        state["time"] = {"start": began, "end": self.clock}
        self.results[part["callID"]] = len(self.prompt)
        self.prompt.append(self.result(part, output))

    @staticmethod
    def result(part: Json, output: str) -> tuple[str, int]:
        """Return a tool's result as it is sent."""
        record = {"role": "tool", "tool_call_id": part["callID"], "content": output}
        words = dumps(record)
        return words, math.ceil(len(words.encode()) / BYTES_PER_TOKEN)

    def end_step(self) -> None:
        """End the last answer, its tools included."""
        info = self.messages[-1]["info"]
        self.clock += self.rng.randint(60, 140)
        finish = info.pop("finish_step")
        head = {"reason": finish["reason"], "snapshot": finish["snapshot"], "type": "step-finish"}
        self.part(head | {"tokens": info["tokens"], "cost": 0})
        self.clock += self.rng.randint(20, 60)
        info["time"]["completed"] = self.clock
        self.clock += self.rng.randint(5, 15)

    # Rewritten prompts

    def compact(self, keep: int) -> None:
        """Have the work so far summed up, all but the last `keep` answers with their results."""
        answers = [m for m in self.messages if m["info"]["role"] == "assistant"]
        tail = answers[-keep]["info"]["id"]
        begin = self.start_of[tail]
        kept = self.prompt[begin:]
        request = {"type": "compaction", "auto": True, "overflow": False, "tail_start_id": tail}
        history = sum(min(size, 650) for _, size in self.prompt[:begin])
        self.user(request)
        agent, self.agent = self.agent, "compaction"
        info = self.assistant("stop", summary=True)
        words = text("summary", self.rng, 700)
        answer = chat("assistant", words)
        self.clock += 120
        self.cached_until = 0
        used = self.usage([("", history)], SUMMARY_TOKENS, answer[1], 0)
        self.part({"snapshot": self.hex(40), "type": "step-start"})
        self.streamed("text", words, answer[1])
        info["tokens"] = used
        info["finish_step"] = {"reason": "stop", "snapshot": self.hex(40)}
        self.end_step()
        self.agent = agent
        self.prompt = [self.prompt[-1], answer, *kept]
        go_on = {"type": "text", "metadata": {"compaction_continue": True}, "synthetic": True}
        stamp = {"start": self.clock, "end": self.clock}
        self.user(go_on | {"text": "Go on with what is left to do.", "time": stamp})

    def prune(self, protect: int) -> None:
        """Clear the results of tools before the last `protect` bytes of them."""
        total = 0
        for message in reversed(self.messages):
            for part in reversed(message["parts"]):
                if part["type"] != "tool":
                    continue
                total += len(part["state"]["output"])
                if total > protect:
                    part["state"]["time"]["compacted"] = self.clock
                    at = self.results[part["callID"]]
                    self.prompt[at] = self.result(part, CLEARED)

    @property
    def start_of(self) -> dict[str, int]:
        """Where in the prompt each answer begins, by its id."""
        answers = [at for at, (words, _) in enumerate(self.prompt) if '"role":"assistant"' in words]
        ids = [m["info"]["id"] for m in self.messages if m["info"]["role"] == "assistant"]
        return dict(zip(reversed(ids), reversed(answers), strict=False))

    def export(self) -> Json:
        """Return the session as `opencode export` writes it."""
        info: Json = {"id": self.id, "slug": f"{self.hex(4)}-buoy", "projectID": PROJECT}
        info |= {"directory": CWD, "path": ""}
        info |= {"parentID": self.parent.id} if self.parent else {}
        info |= {"title": self.title, "agent": self.agent}
        model = {"id": MODEL["modelID"], "providerID": MODEL["providerID"], "variant": "default"}
        info |= {"model": model, "version": VERSION, "summary": NO_CHANGES, "cost": 0}
        used = [m["info"]["tokens"] for m in self.messages if m["info"]["role"] == "assistant"]
        sums = {key: sum(one[key] for one in used) for key in ("input", "output", "reasoning")}
        sums["cache"] = {"read": sum(one["cache"]["read"] for one in used), "write": 0}
        denied = [*DENIED, "task"] if self.parent else DENIED
        rules = [{"permission": name, "pattern": "*", "action": "deny"} for name in denied]
        time = {"created": self.start_ms, "updated": self.clock}
        info |= {"tokens": sums, "permission": rules, "time": time}
        return {"info": info, "messages": self.messages}
