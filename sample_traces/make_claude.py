"""Make sample transcripts: sessions of Claude Code 2.1 that work on an invented project.

    python sample_traces/make_claude.py [FOLDER]

The lines and their order are those of real transcripts, every word in them is made up here. The
same code gives the same bytes: no clock is read and all chance comes from seeds.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from claude_log import CWD, ClaudeLog, Json, Server, dumps
from tides_project import COMMANDS, fill, text

START_MS = int(datetime(2026, 10, 6, 8, tzinfo=UTC).timestamp()) * 1000
MINUTE_MS = 60_000
KINDS = ["source"] * 4 + ["grep"] * 3 + ["tests"] * 3 + ["table"] * 2 + ["diff", "log", "list"]

Size = tuple[int, int]  # least and most bytes that a command prints


class Agent(ClaudeLog):
    """A session that runs commands and starts sub-agents."""

    def __init__(self, name: str, start_ms: int, server: Server, parent: Agent | None = None):
        super().__init__(name, start_ms, server, parent)
        self.name = name
        self.task_call = ""
        self.summary = ""

    def tool_use(self, name: str, arguments: Json) -> Json:
        """Return a call of a tool."""
        return {"type": "tool_use", "id": f"toolu_{self.hex()}", "name": name, "input": arguments}

    def step(self, size: Size) -> None:
        """Call the model, which asks for a command or two, and run them."""
        kinds = self.rng.choices(KINDS, k=2 if self.rng.random() > 0.85 else 1)
        uses = []
        for kind in kinds:
            command = fill(COMMANDS[kind], self.rng)
            uses.append(self.tool_use("Bash", {"command": command, "description": kind}))
        blocks = [*self.thought(), *uses]
        lines = self.call(*blocks)[-len(uses) :]
        for kind, use, line in zip(kinds, uses, lines, strict=True):
            self.clock += self.rng.randint(40, 9000 if kind == "tests" else 900)
            output = text(kind, self.rng, self.rng.randint(*size))
            self.answer(line, use["id"], output)

    def end(self) -> None:
        """End the turn with a call that only speaks."""
        self.summary = text("summary", self.rng, 250).strip()
        self.call({"type": "text", "text": self.summary})
        if self.parent is None:
            self.books(type="last-prompt", leafUuid=self.leaf)

    def work(self, task: str, steps: int, size: Size) -> None:
        """Work on one task of the user."""
        self.begin(task)
        for _ in range(steps):
            self.step(size)
        self.end()


def parallel(server: Server) -> list[Agent]:
    """Make two sessions at once: they share tools and system prompt, and little else."""
    agents = [Agent(f"parallel {n}", START_MS + n * 9100, server) for n in range(2)]
    for agent in agents:
        agent.work(text("ask", agent.rng), 17, (900, 1700))
    return agents


def paused(server: Server) -> list[Agent]:
    """Make a session of three turns, the last after a break in which the provider forgets it."""
    agent = Agent("paused", START_MS + 30 * MINUTE_MS, server)
    for pause in (0, 1, 12):
        agent.clock += pause * MINUTE_MS
        agent.work(text("ask", agent.rng), 11, (1500, 2900))
    return [agent]


def folding(server: Server) -> list[Agent]:
    """Make a session that is compacted twice, at about 36,000 tokens."""
    agent = Agent("folding", START_MS + 60 * MINUTE_MS, server)
    agent.begin(text("ask", agent.rng) + "\n\n" + text("table", agent.rng, 6000))
    for _ in range(2):
        while agent.prompt_tokens() < 36_000:
            agent.step((3000, 5000))
        agent.compact()
    for _ in range(3):
        agent.step((900, 2500))
    agent.end()
    return [agent]


def with_children(server: Server) -> list[Agent]:
    """Make a session that starts two sub-agents in one response and waits for both."""
    agent = Agent("parent", START_MS + 90 * MINUTE_MS, server)
    agent.begin(text("ask", agent.rng))
    agent.step((1200, 2500))
    tasks = [text("ask", agent.rng) for _ in range(2)]
    uses = []
    for task in tasks:
        arguments = {"description": "one part", "prompt": task, "subagent_type": "helper"}
        uses.append(agent.tool_use("Agent", arguments))
    lines = agent.call(*uses)
    children = []
    for number, (task, use) in enumerate(zip(tasks, uses, strict=True)):
        child = Agent(f"child {number}", agent.clock + 15 + number * 180, server, agent)
        child.task_call = use["id"]
        child.work(task, 6 + 3 * number, (1200, 2500))
        children.append(child)
    for child, use, line in zip(children, uses, lines, strict=True):
        agent.clock = max(agent.clock, child.clock) + 4
        agent.answer(line, use["id"], child.summary)
    agent.step((1200, 2500))
    agent.end()
    return [agent, *children]


def main(folder: Path) -> None:
    """Write all transcripts below the folder, each where Claude Code would put it."""
    project = folder / "projects" / CWD.replace("/", "-")
    server = Server()
    for agent in [*parallel(server), *paused(server), *folding(server), *with_children(server)]:
        path = project / f"{agent.id}.jsonl"
        if agent.parent is not None:
            path = project / agent.id / "subagents" / f"agent-{agent.agent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(line + "\n" for line in agent.lines).encode())
        if agent.parent is not None:
            meta = {"agentType": "helper", "toolUseId": agent.task_call, "spawnDepth": 1}
            path.with_suffix(".meta.json").write_text(dumps(meta))
        size = path.stat().st_size / 1000
        print(f"{path.name}: {agent.name}, {agent.calls} calls, {size:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "claude")
