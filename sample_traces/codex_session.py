"""Turns and calls of a Codex session: the prompt that grows, its usage, what streams back."""

from __future__ import annotations

import base64
import math
from typing import Any

from codex_log import COMP_HASH, MODEL, PASSED, RULES, WINDOW_TOKENS, CodexLog, Json, dumps, usage
from tides_project import text

BYTES_PER_TOKEN = 3.1  # what the imagined server counts, over the JSON of a prompt's items
TOOL_TOKENS, CHILD_TOOL_TOKENS = 2300, 1900  # tool schemas: in every prompt, in no log
CACHE_STEP, CACHE_LIFE_MS = 128, 300_000
FIRST_TOKEN_MS, PREFILL_MS, DECODE_MS = 280, 0.12, 18  # per call, per new token, per output token

FOLD_REQUEST = "Write down what was done, found and left, so that the work can go on from it."
FOLD_LEAD = "Notes of the work so far, in place of the conversation they were made from:\n\n"
NO_LIMITS = ["primary", "secondary", "credits", "individual_limit", "spend_control_reached"]

Prompt = list[tuple[str, int]]  # the text and the tokens of each item


def tokens(words: str) -> int:
    """Return how many tokens the imagined server counts in a text."""
    return math.ceil(len(words.encode()) / BYTES_PER_TOKEN)


def sent(item: Json) -> tuple[str, int]:
    """Return an item as prompts hold it, without ids and bookkeeping, and its tokens."""
    words = dumps({key: value for key, value in item.items() if key not in ("id", PASSED)})
    return words, tokens(words)


def unlogged(role: str, words: str) -> tuple[str, int]:
    """Return a message that prompts hold but that is no record of the log."""
    content = [{"type": "input_text", "text": words}]
    return sent({"type": "message", "role": role, "content": content})


def plus(a: Json, b: Json) -> Json:
    """Return the sum of two usage objects."""
    return {key: a[key] + b[key] for key in a}


def shared_tokens(a: Prompt, b: Prompt) -> int:
    """Return the tokens of the items with which both prompts begin."""
    total = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        total += left[1]
    return total


class Session(CodexLog):
    """A session at work: what it asks the model, what the model answers, what tools return."""

    def __init__(self, name: str, start_ms: int, parent: Session | None = None):
        super().__init__(name, start_ms, parent)
        self.history: Prompt = []
        self.prompts: list[Prompt] = []
        self.turn_usage = self.thread_usage = self.last_usage = usage()
        self.record: Json = {}
        self.folds = self.last_call_ms = self.first_token_ms = 0
        self.answer = ""

    def item(self, item: Json, **how: Any) -> Json:
        """Write a response item and add it to the history, unless it is notes of a fold."""
        if "compaction_output" not in how:
            self.history.append(sent(item))
        return super().item(item, **how)

    # Turns and calls

    def begin(self, task: str) -> None:
        """Begin a turn; the first one writes the head of the file too."""
        self.turn_usage, self.first_token_ms = usage(), 0
        first = not self.lines
        self.session_meta() if first else self.settings_applied()
        self.task_started()
        if first:
            self.item(self.developer(), mcp_attribution={"status": "none"})
            self.item(self.environment())
            self.world_state()
        self.turn_context()
        if first:
            self.settings_applied()
        user = self.given("user", {"user.text": task})
        meta = self.item(user, kept=True, ordered=True, mcp_attribution={"status": "none"})
        self.user_items.append((user, meta))
        content = [{"type": "text", "text": task, "text_elements": []}]
        self.completed(self.clock, type="UserMessage", id=self.uuid(), content=content)

    def end(self) -> None:
        """End the turn with a last call that only speaks."""
        self.answer = text("summary", self.rng, 250).strip()
        self.call(self.said(self.answer, "final_answer"))
        self.token_count()
        self.event(
            "task_complete",
            root_turn_id=self.root_turn(),
            turn_id=self.turn_id,
            last_agent_message=self.answer,
            started_at=self.turn_began // 1000,
            completed_at=self.clock // 1000,
            duration_ms=self.clock - self.turn_began,
            time_to_first_token_ms=self.first_token_ms,
        )

    def prompt(self, *, fold: bool = False) -> Prompt:
        """Return the items of the next prompt; a call that folds has no tools, but a request."""
        head = [unlogged("developer", RULES)]
        if fold:
            return [*head, *self.history, unlogged("user", FOLD_REQUEST)]
        size = CHILD_TOOL_TOKENS if self.parent else TOOL_TOKENS
        return [(f"{size} tokens of tools", size), *head, *self.history]

    def prompt_tokens(self) -> int:
        """Return the size of the next prompt in tokens."""
        return sum(size for _, size in self.prompt())

    def call(self, *outputs: Json, fold: bool = False) -> None:
        """Call the model: write its outputs as they stream in, then the usage of the call."""
        prompt = self.prompt(fold=fold)
        prompt_tokens = sum(size for _, size in prompt)
        cached = max((shared_tokens(prompt, old) for old in self.prompts), default=0)
        cached = cached // CACHE_STEP * CACHE_STEP
        if self.clock - self.last_call_ms > CACHE_LIFE_MS:
            cached = 0
        if not fold:
            self.sampled_through = self.sequence
        self.clock += FIRST_TOKEN_MS + int((prompt_tokens - cached) * PREFILL_MS)
        self.first_token_ms = self.first_token_ms or self.clock - self.turn_began
        for output in outputs:
            began = self.clock
            self.clock += sent(output)[1] * DECODE_MS
            self.output(output, began, fold=fold)
        sizes = [(output["type"], sent(output)[1]) for output in outputs]
        reasoning = sum(size for kind, size in sizes if kind == "reasoning")
        self.prompts.append(prompt)
        self.last_usage = usage(prompt_tokens, cached, sum(s for _, s in sizes), reasoning)
        self.turn_usage = plus(self.turn_usage, self.last_usage)
        self.thread_usage = plus(self.thread_usage, self.last_usage)
        self.record = {"thread_id": self.id, "turn_id": self.turn_id}
        self.record |= {"session_id": self.parent.id if self.parent else self.id}
        self.record |= {"root_turn_id": self.root_turn(), "response_id": f"resp_{self.hex()}"}
        self.record |= {"usage": self.last_usage, "turn_token_usage": self.turn_usage}
        self.record |= {"thread_token_usage": self.thread_usage}
        self.write("token_usage_record", self.record)
        self.last_call_ms = self.clock

    def output(self, item: Json, began: int, *, fold: bool) -> None:
        """Write one output of the model."""
        if fold:
            self.item(item, compaction_output=True)
        elif item["type"] == "reasoning":
            summary = [part["text"] for part in item["summary"]]
            self.completed(
                began, type="Reasoning", id=item["id"], summary_text=summary, raw_content=[]
            )
            self.item(item)
        elif item["type"] == "message":
            content = [{"type": "Text", "text": part["text"]} for part in item["content"]]
            shown = {"id": item["id"], "content": content, "phase": item["phase"]}
            self.completed(began, type="AgentMessage", **shown)
            self.item(item, kept=True, ordered=True)
        else:
            self.item(item, ordered=item["type"] == "function_call")

    def token_count(self, estimate: int | None = None) -> None:
        """Write the usage again, as Codex does after the tools ran (and, estimated, a fold)."""
        last = self.last_usage if estimate is None else usage() | {"total_tokens": estimate}
        info = {"total_token_usage": self.thread_usage, "last_token_usage": last}
        info |= {"last_usage_includes_reasoning": estimate is not None}
        limits: Json = {"limit_id": "codex", "limit_name": None, **dict.fromkeys(NO_LIMITS)}
        limits |= {"plan_type": None, "rate_limit_reached_type": None}
        info |= {"model_context_window": WINDOW_TOKENS}
        self.event("token_count", info=info, rate_limits=limits)

    def thought(self) -> list[Json]:
        """Return, now and then, a reasoning item and a message to go before a tool call."""
        items: list[Json] = []
        if self.rng.random() < 0.3:
            summary = [{"type": "summary_text", "text": text("think", self.rng)}]
            secret = base64.b64encode(self.rng.randbytes(3 * self.rng.randint(60, 300))).decode()
            item = {"type": "reasoning", "id": f"rs_{self.hex()}", "summary": summary}
            item |= {"content": None, "encrypted_content": secret}
            items.append(item | self.passed(dated=False))
        if self.rng.random() < 0.3:
            items.append(self.said(text("say", self.rng), "commentary"))
        return items

    # Folds

    def fold(self) -> None:
        """Let the model write notes, and go on from head, user messages and notes alone."""
        self.token_count()
        began, ident = self.clock, self.uuid()
        notes = text("summary", self.rng, 4000)
        self.call(self.said(notes, "final_answer"), fold=True)
        self.token_count()
        summary = self.given("user", {"compaction.summary": FOLD_LEAD + notes}, dated=False)
        fresh = [self.developer(dated=False), self.environment(dated=False)]
        tail: Json = {"client_authored": False, "model_search_state": "unused"}
        metas = [self.place() | tail for _ in fresh]
        items = [*fresh, *(item for item, _ in self.user_items), summary]
        metas += [meta for _, meta in self.user_items]
        harness = {"client_authored": False, "mcp_attribution": {"status": "none"}}
        metas.append(self.place() | harness | {"model_search_state": "unused"})
        self.history = [sent(item) for item in items]
        previous, self.window, self.folds = self.window, self.uuid(), self.folds + 1
        users, replies = self.retained["user"], self.retained["assistant"][-8:]
        retained = {"verified_answers": [], "incomplete": False, "user_messages": users}
        retained |= {"user_messages_incomplete": False, "assistant_messages": replies}
        retained |= {"assistant_messages_incomplete": False, "next_order": self.order}
        resume: Json = {"dynamic_tools": {"thread_id": self.id, "tools": []}}
        resume |= {"multi_agent_version": "v1", "last_started_turn_id": self.turn_id}
        resume |= {"turn_attribution": self.attribution()}
        settings = {"model": MODEL, "comp_hash": COMP_HASH, "realtime_active": False}
        resume |= {"previous_turn_settings": settings}
        self.write(
            "compacted",
            {"message": FOLD_LEAD + notes, "replacement_history": items}
            | {"replacement_history_metadata": metas, "retained_context": retained}
            | {"window_number": self.folds, "first_window_id": self.first_window}
            | {"previous_window_id": previous, "window_id": self.window}
            | {"compaction_response_id": self.record["response_id"]}
            | {"latest_token_usage_record": self.record, "resume_metadata": resume},
        )
        self.world_state()
        self.turn_context()
        self.settings_applied()
        self.token_count(estimate=self.prompt_tokens())
        self.completed(began, type="ContextCompaction", id=ident)
