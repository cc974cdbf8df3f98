"""Make the sample logs: sessions of Codex 0.171 that work on an invented project.

    python sample_traces/make_codex.py [FOLDER]

The records and their order are those of real logs, every word in them is made up here. The same
code gives the same bytes: no clock is read and all chance comes from seeds.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from codex_log import CWD, EFFORT, MODEL, NAMESPACE, NAMESPACE_USE, Json, dumps
from codex_session import Session
from tides_project import COMMANDS, fill, text

START_MS = int(datetime(2026, 10, 5, 8, tzinfo=UTC).timestamp()) * 1000
MINUTE_MS = 60_000
KINDS = ["source"] * 4 + ["grep"] * 3 + ["tests"] * 3 + ["table"] * 2 + ["diff", "log", "list"]
SPAWN_PROPERTIES = {"fork_context": "boolean", "items": "array", "message": "string"}
SPAWN_PROPERTIES |= {"model": "string", "reasoning_effort": "string"}
PART_PROPERTIES = ["audio_url", "image_url", "name", "path", "text", "type"]


Size = tuple[int, int]  # least and most bytes that a command prints


def function(name: str, use: str, properties: Json, required: list[str] | None = None) -> Json:
    """Return the schema of a tool that a tool search finds."""
    head = {"type": "function", "name": name, "description": use, "strict": False}
    parameters: Json = {"type": "object", "properties": properties}
    parameters |= {"required": required} if required else {}
    return head | {
        "defer_loading": True,
        "parameters": parameters | {"additionalProperties": False},
    }


class Agent(Session):
    """A session that runs commands, patches files and starts sub-agents."""

    def __init__(self, name: str, start_ms: int, parent: Agent | None = None):
        super().__init__(name, start_ms, parent)
        self.children: list[Agent] = []
        self.task = ""

    # Commands and patches

    def function_call(self, name: str, arguments: Json, *, namespace: str | None = None) -> Json:
        """Return a call of a function tool."""
        ident = self.hex()
        call = {"type": "function_call", "status": "completed", "id": f"fc_{ident}", "name": name}
        call |= {"namespace": namespace} if namespace else {}
        call |= {"arguments": dumps(arguments), "call_id": f"call_{ident}"}
        return call | self.passed(dated=False)

    def tool_output(self, call: Json, output: str) -> None:
        """Write what a tool returned; it opens the next prompt's new part."""
        custom = call["type"] == "custom_tool_call"
        kind, prefix = (
            ("custom_tool_call_output", "ctco") if custom else ("function_call_output", "fco")
        )
        item = {"type": kind, "id": f"{prefix}_{self.uuid()}", "call_id": call["call_id"]}
        item |= {"output": output, **self.passed()}
        self.item(item, fallback_token_limit_override=12000)

    def run(self, *kinds: str, size: Size) -> None:
        """Call the model, which asks for one command of each kind, and run them."""
        commands = [fill(COMMANDS[kind], self.rng) for kind in kinds]
        calls = [
            self.function_call(
                "exec_command", {"cmd": command, "workdir": CWD, "yield_time_ms": 20000}
            )
            for command in commands
        ]
        self.call(*self.thought(), *calls)
        for kind, command, call in zip(kinds, commands, calls, strict=True):
            self.finish_command(kind, command, call, text(kind, self.rng, self.rng.randint(*size)))
        self.token_count()

    def finish_command(self, kind: str, command: str, call: Json, output: str) -> None:
        """Let a command run for a while and write what it printed, for the user and the model."""
        began = self.clock
        slowest = 25_000 if kind == "tests" else 4000
        self.clock += self.rng.randint(60, slowest)
        seconds = (self.clock - began) / 1000
        code = int("FAILED" in output)
        parsed: Json = {"type": "unknown", "cmd": command}
        if kind in ("source", "table"):
            path = command.split()[-1]
            parsed |= {"type": "read", "name": Path(path).name, "path": path}
        elif kind == "list":
            parsed |= {"type": "list_files", "path": "data"}
        nanos = self.rng.randint(0, 999_999) + int(seconds * 1000) % 1000 * 1_000_000
        self.completed(
            began,
            type="CommandExecution",
            id=call["call_id"],
            process_id=str(self.rng.randint(2000, 99000)),
            command=["/bin/bash", "-lc", command],
            cwd=f"file://{CWD}",
            parsed_cmd=[parsed],
            source="unified_exec_startup",
            status="failed" if code else "completed",
            aggregated_output=output,
            exit_code=code,
            duration={"secs": int(seconds), "nanos": nanos},
        )
        head = f"Chunk ID: {self.hex(6)}\nWall time: {seconds:.4f} seconds\n"
        head += f"Process exited with code {code}\nOriginal token count: {len(output) // 4}\n"
        self.tool_output(call, f"{head}Output:\n{output}")

    def patch(self, *, add: bool) -> None:
        """Call the model, which adds a file or changes one, and apply the patch."""
        path = fill("tests/test_<noun>_<verb>.py" if add else "src/tides/<module>.py", self.rng)
        change: Json
        if add:
            content = text("source", self.rng, 1200)
            change = {"type": "add", "content": content}
            body = f"*** Add File: {path}\n+" + content.rstrip("\n").replace("\n", "\n+")
        else:
            diff = text("diff", self.rng, 600)
            change = {"type": "update", "unified_diff": diff, "move_path": None}
            body = f"*** Update File: {path}\n{diff.rstrip()}"
        ident = self.hex()
        call = {"type": "custom_tool_call", "id": f"ctc_{ident}", "status": "completed"}
        call |= {"call_id": f"call_{ident}", "name": "apply_patch"}
        call |= {"input": f"*** Begin Patch\n{body}\n*** End Patch", **self.passed(dated=False)}
        self.call(*self.thought(), call)
        done = f"Success. Updated the following files:\n{'A' if add else 'M'} {path}\n"
        item = {"type": "FileChange", "id": call["call_id"], "changes": {f"{CWD}/{path}": change}}
        self.completed(self.clock, **item, status="completed", stdout=done, stderr="")
        self.tool_output(call, f"Exit code: 0\nWall time: 0 seconds\nOutput:\n{done}")
        self.token_count()

    def step(self, size: Size) -> None:
        """Make one call and do what it asks for; `size` bounds a command's output in bytes."""
        chance = self.rng.random()
        if chance < 0.15:
            self.patch(add=chance < 0.05)
        else:
            self.run(*self.rng.choices(KINDS, k=2 if chance > 0.92 else 1), size=size)

    # Sub-agents

    def find_agent_tools(self) -> None:
        """Call the model, which looks up the tools that start and await sub-agents."""
        ident = self.hex()
        head = {"call_id": f"call_{ident}", "status": "completed", "execution": "client"}
        call: Json = {"type": "tool_search_call", "id": f"tsc_{ident}", **head}
        call |= {"arguments": {"query": "start helpers", "limit": 4}, **self.passed(dated=False)}
        self.call(call)
        texts: Json = {}
        for name in PART_PROPERTIES:
            texts[name] = {"type": "string", "description": f"Its {name}."}
        spawn: Json = {}
        for name, kind in SPAWN_PROPERTIES.items():
            spawn[name] = {"type": kind, "description": f"The new agent's {name}."}
        part: Json = {"type": "object", "properties": texts, "additionalProperties": False}
        spawn["items"]["items"] = part
        ids: Json = {
            "type": "array",
            "description": "Whom to wait for.",
            "items": {"type": "string"},
        }
        wait: Json = {"targets": ids, "timeout_ms": {"type": "number", "description": "How long."}}
        tools = [function("spawn_agent", "Start a sub-agent on a task of its own.", spawn)]
        tools.append(function("wait_agent", "Wait until a sub-agent ends.", wait, ["targets"]))
        space: Json = {"type": "namespace", "name": NAMESPACE, "description": NAMESPACE_USE}
        item = {"type": "tool_search_output", "id": f"tso_{self.uuid()}", **head}
        self.item(item | {"tools": [space | {"tools": tools}], **self.passed()})
        self.token_count()

    def collab(
        self, began: int, call: Json, tool: str, agents: list[Agent], **more: object
    ) -> None:
        """Write the event of a tool that deals with sub-agents."""
        names = [{"thread_id": agent.id, "agent_nickname": agent.name} for agent in agents]
        item = {"type": "CollabAgentToolCall", "id": call["call_id"], "tool": tool}
        item |= {"status": "completed", "sender_thread_id": self.id}
        item |= {"receiver_thread_ids": [agent.id for agent in agents], "receiver_agents": names}
        self.completed(began, **item, **more)

    def spawn(self, name: str, task: str) -> Agent:
        """Call the model, which starts a sub-agent; return it, about to begin."""
        call = self.function_call("spawn_agent", {"message": task}, namespace=NAMESPACE)
        self.call(*self.thought(), call)
        began = self.clock
        child = Agent(name, self.clock + 20, self)
        child.task = task
        self.clock += 25
        more = {"prompt": task, "model": MODEL, "reasoning_effort": EFFORT}
        self.collab(
            began, call, "spawn_agent", [child], **more, agents_states={child.id: "pending_init"}
        )
        self.tool_output(call, dumps({"agent_id": child.id, "nickname": name}))
        self.token_count()
        self.children.append(child)
        listed = "\n".join(f"- {child.id}: {child.name}" for child in self.children)
        self.write("world_state", {"full": False, "state": {"environments": {"subagents": listed}}})
        return child

    def wait(self, ended: Agent) -> None:
        """Call the model, which waits for its sub-agents; go on when the given one has ended."""
        targets = [child.id for child in self.children]
        arguments = {"targets": targets, "timeout_ms": 600_000}
        call = self.function_call("wait_agent", arguments, namespace=NAMESPACE)
        self.call(*self.thought(), call)
        began = self.clock
        self.clock = max(self.clock, ended.clock) + 3
        done = [child for child in self.children if child.clock <= self.clock]
        states = {child.id: {"completed": child.answer} for child in done}
        self.collab(began, call, "wait", done, agents_states=states)
        self.tool_output(call, dumps({"status": states, "timed_out": False}))
        self.token_count()
        news = dumps({"agent_path": ended.id, "status": states[ended.id]})
        kind = "multi_agent.subagent_notification"
        note = f"<subagent_notification>\n{news}\n</subagent_notification>"
        self.item(self.given("user", {kind: note}))


# The sessions


def work(agent: Agent, task: str, steps: int, size: Size) -> None:
    """Let the agent work on one task of the user."""
    agent.begin(task)
    for _ in range(steps):
        agent.step(size)
    agent.end()


def parallel() -> list[Agent]:
    """Make three sessions at once: they share their head, and little else."""
    agents = [Agent(f"parallel {n}", START_MS + n * 7300) for n in range(3)]
    for agent in agents:
        work(agent, text("ask", agent.rng), 23, (1000, 1900))
    return agents


def long() -> list[Agent]:
    """Make a session of three turns, the last after a break in which the server forgets it."""
    agent = Agent("long", START_MS + 40_000)
    for pause in (0, 1, 12):
        agent.clock += pause * MINUTE_MS
        work(agent, text("ask", agent.rng), 19, (2100, 4500))
    return [agent]


def folding() -> list[Agent]:
    """Make a session that folds twice, at about 55,000 tokens."""
    agent = Agent("folding", START_MS + 60_000)
    agent.begin(text("ask", agent.rng) + "\n\n" + text("table", agent.rng, 9000))
    for _ in range(2):
        while agent.prompt_tokens() < 55_000:
            agent.step((4800, 6000))
        agent.fold()
    for _ in range(3):
        agent.step((1000, 3000))
    agent.end()
    return [agent]


def with_children() -> list[Agent]:
    """Make a session that starts two sub-agents and waits for both."""
    agent = Agent("parent", START_MS + 90_000)
    agent.begin(text("ask", agent.rng))
    for _ in range(3):
        agent.step((1500, 3300))
    agent.find_agent_tools()
    children = [agent.spawn(name, text("ask", agent.rng)) for name in ("Tarnip", "Quillow")]
    for child, steps in zip(children, (8, 13), strict=True):
        work(child, child.task, steps, (1500, 3300))
    for child in sorted(children, key=lambda child: child.clock):
        agent.wait(child)
    agent.step((1500, 3300))
    agent.end()
    return [agent, *children]


def main(folder: Path) -> None:
    """Write all sessions below the folder, each where Codex would put it."""
    for agent in [*parallel(), *long(), *folding(), *with_children()]:
        began = datetime.fromtimestamp(agent.start_ms / 1000, UTC)
        name = f"rollout-{began:%Y-%m-%dT%H-%M-%S}-{agent.id}.jsonl"
        path = folder / f"sessions/{began:%Y/%m/%d}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(line + "\n" for line in agent.lines).encode())
        size = path.stat().st_size / 1000
        print(f"{name}: {agent.name}, {len(agent.prompts)} calls, {size:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "codex")
