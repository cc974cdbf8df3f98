"""An OpenHands agent at work: calls, commands, folds and sub-agents; usage follows the prompt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from openhands_log import (
    HOME,
    MODEL,
    SUMMARISE,
    Json,
    Log,
    Server,
    dumps,
    settings,
    tokens,
    words,
)
from tides_project import COMMANDS, fill, text

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_BYTES = 1300
"""What a tool's schema, which no log holds, adds to its description on the wire."""
KEPT_FIRST = 2
KINDS = ["source"] * 4 + ["grep"] * 3 + ["tests"] * 2 + ["table", "diff", "log"]

Size = tuple[int, int]  # least and most bytes that a command prints


class Agent(Log):
    """A conversation that calls the model, runs commands, folds and starts sub-agents."""

    def __init__(
        self,
        name: str,
        start_ms: int,
        server: Server,
        project: str = "tides",
        *,
        child: bool = False,
    ):
        super().__init__(name, start_ms, server, f"{HOME}/{project}", tasks=not child)
        self.view: list[tuple[list[str], Json]] = []
        self.children: list[Agent] = []
        self.completions: list[Json] = []
        self.max_events = 0
        self.keeps_completions = False

    # The model

    def messages(self) -> list[Json]:
        """Return the messages of the next prompt; neighbouring users' are one."""
        found: list[Json] = []
        for _, message in self.view:
            if found and message["role"] == "user" == found[-1]["role"]:
                found[-1] = found[-1] | {"content": found[-1]["content"] + message["content"]}
            else:
                found.append(message)
        return found

    def sent(self) -> list[str]:
        """Return the parts of a prompt that the server sees, tools first."""
        schemas = [dumps(each) + "x" * SCHEMA_BYTES for each in self.tools]
        return schemas + [dumps(message) for message in self.messages()]

    def respond(self, name: str, items: list[str], output: str, thought: str) -> str:
        """Let the model answer; return the id of its response."""
        response = f"chatcmpl-{self.hex()}"
        usage = self.server.usage(
            items, tokens(output), tokens(thought) if thought else 0, self.clock
        )
        fresh = usage["prompt_tokens"] - usage["cache_read_tokens"]
        latency = 300 + fresh // 9 + usage["completion_tokens"] * 11
        self.clock += latency
        self.note(name, response, usage, latency)
        return response

    def complete(self, response: str, before: list[Json], message: Json) -> None:
        """Keep what was sent and what came back, as `log_completions` does."""
        if not self.keeps_completions:
            return
        usage = self.metrics["agent"]["token_usages"][-1]
        latency = self.metrics["agent"]["response_latencies"][-1]["latency"]
        cost = self.metrics["agent"]["costs"][-1]
        self.completions.append(
            {
                "context_window": 200000,
                "messages": before,
                "tools": self.tools,
                "kwargs": {"max_completion_tokens": 8000, "prompt_cache_key": "<redacted>"},
                "response": {
                    "id": response,
                    "created": int(cost["timestamp"]),
                    "model": MODEL.split("/")[1],
                    "object": "chat.completion",
                    "choices": [{"finish_reason": "tool_calls", "index": 0, "message": message}],
                    "usage": {
                        "completion_tokens": usage["completion_tokens"],
                        "prompt_tokens": usage["prompt_tokens"],
                        "total_tokens": usage["per_turn_token"],
                        "completion_tokens_details": {
                            "reasoning_tokens": usage["reasoning_tokens"]
                        },
                        "prompt_tokens_details": {"cached_tokens": usage["cache_read_tokens"]},
                    },
                },
                "cost": cost["cost"],
                "timestamp": cost["timestamp"],
                "latency_sec": latency,
                "usage_summary": {
                    "prompt_tokens": usage["prompt_tokens"],
                    "completion_tokens": usage["completion_tokens"],
                    "reasoning_tokens": usage["reasoning_tokens"],
                    "cache_read_tokens": usage["cache_read_tokens"],
                },
            }
        )

    def call(self, *asked: tuple[str, Json], lost: bool = False) -> list[Json]:
        """Call the model, which asks for some tools; `lost` where its usage is never saved."""
        if self.max_events and len(self.view) > self.max_events:
            self.fold()
        thought = text("think", self.rng) if self.rng.random() < 0.3 else ""
        said = text("say", self.rng) if self.rng.random() < 0.6 else ""
        before, items = self.messages(), self.sent()
        output = said + "".join(dumps(action) for _, action in asked)
        response = self.respond("agent", items, output, thought)
        actions = []
        for number, (name, action) in enumerate(asked):
            first = number == 0
            actions.append(self.action(response, name, action, said * first, thought * first))
        message: Json = {"content": [{"type": "text", "text": said}], "role": "assistant"}
        message = message if said else {"role": "assistant"}
        message["tool_calls"] = [
            {
                "id": each["tool_call"]["id"],
                "type": "function",
                "function": {key: each["tool_call"][key] for key in ("name", "arguments")},
            }
            for each in actions
        ]
        self.view.append(([each["id"] for each in actions], message))
        self.complete(response, before, message | {"content": said})
        if lost:
            for held in ("costs", "response_latencies", "token_usages"):
                self.metrics["agent"][held].pop()
        return actions

    def fold(self) -> None:
        """Let the model sum up the older half of the events, which are then forgotten."""
        half = KEPT_FIRST + (len(self.view) - KEPT_FIRST) // 2
        # An answer stays with its call.
        while self.view[half][1]["role"] == "tool":
            half += 1
        gone = self.view[KEPT_FIRST:half]
        told = "".join(f"<EVENT>\n{dumps(message)[:400]}\n</EVENT>\n\n" for _, message in gone)
        summary = text("summary", self.rng, 700)
        response = self.respond("condenser", [SUMMARISE, told], summary, "")
        forgotten = [name for names, _ in gone for name in names]
        record = self.event(
            "Condensation",
            "environment",
            forgotten_event_ids=forgotten,
            summary=summary,
            summary_offset=KEPT_FIRST,
            llm_response_id=response,
        )
        message = {"content": [{"type": "text", "text": summary}], "role": "user"}
        self.view[KEPT_FIRST:half] = [([f"{record['id']}-summary"], message)]

    # What the agent does

    def begin(self, task: str, own: str = "") -> None:
        """Open the conversation with a task."""
        self.system(own)
        parts = [words(each) for each in (self.events[0]["system_prompt"]["text"], own) if each]
        self._show(self.events[0]["id"], "system", parts)
        self.ask(task)

    def ask(self, task: str) -> None:
        """Add what the user asks."""
        self._show(self.user(task)["id"], "user", [words(task)])

    def _show(self, ident: str, role: str, parts: list[Json], **more: str) -> None:
        content = [{"type": "text", "text": part["text"]} for part in parts]
        self.view.append(([ident], {"content": content, "role": role, **more}))

    def give(self, action: Json, observation: Json, parts: list[str]) -> None:
        """Write an answer, and add the texts that the model sees of it."""
        record = self.answer(action, observation)
        names = {"tool_call_id": action["tool_call_id"], "name": action["tool_name"]}
        self._show(record["id"], "tool", [words(part) for part in parts], **names)

    def run(self, *kinds: str, size: Size) -> None:
        """Call the model, which asks for one command of each kind, and run them."""
        commands = [fill(COMMANDS[kind], self.rng) for kind in kinds]
        shape = {"is_input": False, "reset": False, "kind": "TerminalAction"}
        asked = [("terminal", {"command": command, **shape}) for command in commands]
        for kind, command, action in zip(kinds, commands, self.call(*asked), strict=True):
            self.clock += self.rng.randint(80, 9000)
            output = text(kind, self.rng, self.rng.randint(*size)).rstrip("\n")
            code = int("FAILED" in output)
            shell: Json = {"exit_code": code, "pid": -1, "username": "dev", "hostname": "quay"}
            shell |= {"working_dir": self.folder, "py_interpreter_path": "/usr/bin/python3"}
            suffix = f"\n[The command completed with exit code {code}.]"
            shell |= {"prefix": "", "suffix": suffix}
            seen: Json = {"content": [words(output)], "is_error": False, "command": command}
            seen |= {"exit_code": code, "timeout": False, "metadata": shell}
            seen |= {"full_output_save_dir": f"{HOME}/.openhands/observations"}
            told = f"{output}{suffix}\n[Current working directory: {self.folder}]"
            told += "\n[Python interpreter: /usr/bin/python3]"
            told += f"\n[Command finished with exit code {code}]"
            self.give(action, seen | {"kind": "TerminalObservation"}, [told])

    def write_file(self) -> None:
        """Call the model, which adds a file."""
        path = f"{self.folder}/" + fill("tests/test_<noun>_<verb>.py", self.rng)
        content = text("source", self.rng, 900)
        asked = {
            "command": "create",
            "path": path,
            "file_text": content,
            "kind": "FileEditorAction",
        }
        action = self.call(("file_editor", asked))[0]
        done = f"File created successfully at: {path}"
        seen: Json = {"content": [words(done)], "is_error": False, "command": "create"}
        seen |= {"path": path, "prev_exist": False, "new_content": content}
        self.give(action, seen | {"kind": "FileEditorObservation"}, [done])

    def step(self, size: Size) -> None:
        """Make one call and do what it asks for; `size` bounds a command's output in bytes."""
        chance = self.rng.random()
        if chance < 0.12:
            self.write_file()
        else:
            self.run(*self.rng.choices(KINDS, k=2 if chance > 0.9 else 1), size=size)

    def end(self) -> str:
        """Let the model say that it is done; return what it said."""
        done = text("summary", self.rng, 300).rstrip("\n")
        action = self.call(("finish", {"message": done, "kind": "FinishAction"}))[0]
        seen = {"content": [words(done)], "is_error": False, "kind": "FinishObservation"}
        self.give(action, seen, [done])
        return done

    def start_children(self, *names: str, steps: int) -> None:
        """Call the model, which starts sub-agents; go on when all have ended."""
        tasks = [text("ask", self.rng) for _ in names]
        asked = [
            (
                "task",
                {
                    "description": f"Part of {name}",
                    "prompt": task,
                    "subagent_type": "general-purpose",
                    "kind": "TaskAction",
                },
            )
            for name, task in zip(names, tasks, strict=True)
        ]
        actions = self.call(*asked)
        answers = []
        for name, task in zip(names, tasks, strict=True):
            child = Agent(f"{self.name} {name}", self.clock + 40, self.server, child=True)
            child.begin(task, "You are a general-purpose agent. Say shortly what you found.")
            for _ in range(steps):
                child.step((900, 2200))
            answers.append(child.end())
            self.children.append(child)
        self.clock = max(child.clock for child in self.children) + 20
        for number, (action, answer) in enumerate(zip(actions, answers, strict=True), start=1):
            ident = f"task_{number:08d}"
            told = f"Task ID: {ident}\nSubagent: general-purpose\nStatus: completed"
            seen: Json = {"content": [words(answer)], "is_error": False, "task_id": ident}
            seen |= {"subagent": "general-purpose", "status": "completed"}
            self.give(action, seen | {"kind": "TaskObservation"}, [told, answer])
            # Its usage stands in both places.
            self.metrics[f"task:{ident}"] = self.children[number - 1].metrics["agent"]

    # Files

    def save(self, folder: Path, logs: Path) -> None:
        """Write the conversation as OpenHands does, each event a file."""
        place = folder / self.id.replace("-", "")
        (place / "events").mkdir(parents=True)
        condenser: Json | None = None
        if self.max_events:
            condenser = {"llm": settings("condenser"), "max_size": self.max_events}
            condenser |= {"keep_first": KEPT_FIRST, "minimum_progress": 0.1}
            condenser |= {"hard_context_reset_max_retries": 5}
            condenser |= {"hard_context_reset_context_scaling": 0.8}
            condenser |= {"kind": "LLMSummarizingCondenser"}
        state = self.state(settings("agent"), condenser)
        (place / "base_state.json").write_bytes(dumps(state).encode())
        for number, event in enumerate(self.events):
            name = f"event-{number:05d}-{event['id']}.json"
            (place / "events" / name).write_bytes(dumps(event).encode())
        for child in self.children:
            child.save(place / "subagents", logs)
        for number, one in enumerate(self.completions):
            logs.mkdir(parents=True, exist_ok=True)
            name = f"{MODEL.replace('/', '__')}-{one['timestamp']:.3f}-{number:04x}.json"
            (logs / name).write_bytes(json.dumps(one, ensure_ascii=False).encode())
