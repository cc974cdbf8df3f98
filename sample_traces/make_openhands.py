"""Make the sample logs of OpenHands: conversations that work on an invented project.

    python sample_traces/make_openhands.py [FOLDER]

The records and their order are those of real logs, every word in them is made up here. The same
code gives the same bytes: no clock is read and all chance comes from seeds.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from openhands_agent import Agent, Size
from openhands_log import BYTES_PER_TOKEN, Server
from tides_project import COMMANDS, fill, text

START_MS = int(datetime(2026, 10, 5, 9, tzinfo=UTC).timestamp()) * 1000
MINUTE_MS = 60_000


def work(agent: Agent, steps: int, size: Size) -> None:
    """Let an agent work on one task."""
    agent.begin(text("ask", agent.rng))
    for _ in range(steps):
        agent.step(size)
    agent.end()


def main(folder: Path) -> None:
    """Write all conversations below the folder."""
    server = Server()
    folding = Agent("folding", START_MS, server)
    folding.max_events = 24
    work(folding, 26, (1200, 2600))
    parent = Agent("parent", START_MS + MINUTE_MS, server)
    parent.begin(text("ask", parent.rng))
    parent.step((900, 2200))
    parent.start_children("the tables", "the tests", steps=4)
    parent.step((900, 2200))
    parent.end()
    resumed = Agent("resumed", START_MS + 2 * MINUTE_MS, server)
    resumed.keeps_completions = True
    work(resumed, 3, (900, 2200))
    resumed.clock += 11 * MINUTE_MS
    resumed.ask(text("ask", resumed.rng))
    resumed.step((900, 2200))
    resumed.end()
    killed = Agent("killed", START_MS + 3 * MINUTE_MS, server, "almanac")
    killed.begin(text("ask", killed.rng))
    for _ in range(4):
        killed.step((900, 2200))
    shape = {"is_input": False, "reset": False, "kind": "TerminalAction"}
    killed.call(("terminal", {"command": fill(COMMANDS["tests"], killed.rng), **shape}), lost=True)
    killed.status = "running"
    for agent in (folding, parent, resumed, killed):
        agent.save(folder / "conversations", folder / "completions")
        calls = sum(len(each["token_usages"]) for each in agent.metrics.values())
        print(f"{agent.id}: {agent.name}, {calls} calls with usage")
    size = sum(path.stat().st_size for path in folder.rglob("*.json"))
    print(f"{size / 1000:.0f} kB, one token per {BYTES_PER_TOKEN} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "openhands")
