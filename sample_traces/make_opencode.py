"""Make the sample logs of OpenCode: exports of sessions that work on an invented project.

    python sample_traces/make_opencode.py [FOLDER]

The records and their order are those of OpenCode 1.18, every word in them is made up here. The
same code gives the same bytes: no clock is read and all chance comes from seeds.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from opencode_log import MODEL, Json, Session
from tides_project import COMMANDS, fill, text

START_MS = int(datetime(2026, 10, 5, 10, tzinfo=UTC).timestamp()) * 1000
KINDS = ["source"] * 4 + ["tests"] * 3 + ["table"] * 2 + ["diff", "log", "list"]

Size = tuple[int, int]  # least and most bytes that a tool returns


class Agent(Session):
    """A session that runs commands, searches and starts sub-agents."""

    def run(self, size: Size, count: int = 1) -> None:
        """Call the model, which asks for commands, and run them."""
        kinds = self.rng.choices(KINDS, k=count)
        commands = [fill(COMMANDS[kind], self.rng) for kind in kinds]
        tools = [("bash", {"command": command}) for command in commands]
        parts = self.answer(*self.words(), tools, self.thought())
        for kind, command, part in zip(kinds, commands, parts, strict=True):
            output = text(kind, self.rng, self.rng.randint(*size))
            self.clock += self.rng.randint(60, 12_000 if kind == "tests" else 2000)
            metadata = {"output": output, "exit": int("FAILED" in output), "truncated": False}
            self.returned(part, output, command, metadata)
        self.end_step()

    def search(self, size: Size) -> None:
        """Call the model, which searches the project for a word."""
        word = fill("<noun>", self.rng)
        (part,) = self.answer(*self.words(), [("grep", {"pattern": word, "path": "src"})])
        output = text("grep", self.rng, self.rng.randint(*size))
        self.clock += self.rng.randint(40, 400)
        metadata = {"matches": output.count("\n"), "truncated": False}
        self.returned(part, output, word, metadata)
        self.end_step()

    def stop(self) -> None:
        """Call the model, which sums up what it did."""
        self.answer(text("summary", self.rng, 300), [])
        self.end_step()

    def words(self) -> tuple[str]:
        """Return what the model says before it asks for a tool: often nothing."""
        return (text("say", self.rng) if self.rng.random() < 0.5 else "",)

    def thought(self) -> str:
        """Return what the model thinks before it speaks: often nothing."""
        return text("think", self.rng) if self.rng.random() < 0.3 else ""

    def delegate(self, names: list[str]) -> list[Agent]:
        """Call the model, which starts sub-agents that work at once, and wait for all of them."""
        tasks = [text("ask", self.rng) for _ in names]
        tools = [
            ("task", {"description": name, "prompt": task, "subagent_type": "general"})
            for name, task in zip(names, tasks, strict=True)
        ]
        parts = self.answer(text("say", self.rng), tools)
        children = []
        for name, task, part in zip(names, tasks, parts, strict=True):
            child = Agent(f"{self.id} {name}", part["state"]["began"] + 40, self)
            child.title = f"{name} (@general subagent)"
            child.clock += 60
            child.say(task)
            for _ in range(self.rng.randint(5, 8)):
                child.run((500, 2500))
            child.stop()
            children.append(child)
        self.clock = max(child.clock for child in children) + 90
        for name, child, part in zip(names, children, parts, strict=True):
            answer = child.messages[-1]["parts"][-2]["text"]
            output = f'<task id="{child.id}" state="completed">\n<task_result>\n{answer}\n'
            metadata: Json = {"parentSessionId": self.id, "sessionId": child.id}
            metadata |= {"model": MODEL, "truncated": False}
            self.returned(part, output + "</task_result>\n</task>", name, metadata)
        self.end_step()
        return children


def compacting(name: str, start_ms: int) -> list[Agent]:
    """Return a session whose history is summed up twice."""
    agent = Agent(name, start_ms)
    agent.clock += 400
    agent.say(text("ask", agent.rng))
    for _ in range(2):
        for _ in range(11):
            agent.run((1500, 5000))
        agent.compact(keep=3)
    for _ in range(4):
        agent.run((1500, 5000))
    agent.stop()
    return [agent]


def pruning(name: str, start_ms: int) -> list[Agent]:
    """Return a session of three turns; before the last, old results are cleared."""
    agent = Agent(name, start_ms)
    agent.clock += 400
    for turn, searches in enumerate((11, 6, 5)):
        agent.say(text("ask", agent.rng))
        for _ in range(searches):
            agent.search((12_000, 19_000))
        agent.stop()
        if turn == 1:
            agent.prune(protect=160_000)
        agent.clock += agent.rng.randint(20_000, 90_000)
    return [agent]


def delegating(name: str, start_ms: int) -> list[Agent]:
    """Return a session that starts two sub-agents, and those."""
    agent = Agent(name, start_ms)
    agent.clock += 400
    agent.say(text("ask", agent.rng))
    agent.run((500, 2500), count=2)
    children = agent.delegate(["Check the tables", "Count the stations"])
    agent.run((500, 2500))
    agent.stop()
    return [agent, *children]


def main() -> None:
    """Write all sessions."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    sessions = compacting("north pier", START_MS) + pruning("south pier", START_MS + 20_000)
    for session in sessions + delegating("harbour", START_MS + 45_000):
        path = folder / f"{session.id}.json"
        record = json.dumps(session.export(), ensure_ascii=False, indent=2)
        path.write_text(record + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
