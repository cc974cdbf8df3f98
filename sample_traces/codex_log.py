"""Records of a Codex 0.171 log, one method each, in the shapes and the order Codex gives them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

from tides_project import text

CWD = "/home/dev/tides"
MODEL, PROVIDER, EFFORT, COMP_HASH = "gpt-5.5", "openai", "medium", "7140"
WINDOW_TOKENS = 258400
FIXED = random.Random("the same head for every session")
RULES = "You work in a terminal, for the people who keep this project.\n\n# Rules\n" + text(
    "rules", FIXED, 7000
)
SKILLS = "\n## Skills\nShort guides, to be read when their name fits the task.\n" + text(
    "skills", FIXED, 1500
)
HASH, COMMIT = f"{FIXED.getrandbits(160):040x}", f"{FIXED.getrandbits(160):040x}"
PERMISSIONS = "<permissions instructions>\nAll commands may run.\n</permissions instructions>"
NAMESPACE, NAMESPACE_USE = "multi_agent_v1", "Start sub-agents, wait for them, stop them."
ENVIRONMENT = f"""<environment_context>
  <cwd>{CWD}</cwd>
  <shell>bash</shell>
  <current_date>2026-10-05</current_date>
  <timezone>Etc/UTC</timezone>
</environment_context>"""

# Where a text of a message comes from, by its kind; anything else comes from the harness.
PROVENANCE = {
    "host_skills.instructions": {"type": "skills"},
    "tools.deferred_namespaces": {"type": "tool", "namespace": "tool_search"},
    "multi_agent.subagent_notification": {"type": "tool", "namespace": NAMESPACE},
    "user.text": {"type": "user"},
}
HARNESS = {"type": "harness", "hook": False}
PASSED = "internal_chat_message_metadata_passthrough"

Json = dict[str, Any]


def dumps(value: object) -> str:
    """Return compact JSON, as Codex writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def usage(prompt: int = 0, cached: int = 0, output: int = 0, reasoning: int = 0) -> Json:
    """Return a usage object; the prompt includes cached, the output includes reasoning."""
    return {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": 0,
        "output_tokens": output,
        "reasoning_output_tokens": reasoning,
        "total_tokens": prompt + output,
    }


class CodexLog:
    """One log file in the making; `clock` is in milliseconds since 1970."""

    def __init__(self, name: str, start_ms: int, parent: CodexLog | None = None):
        self.rng = random.Random(name)
        self.name, self.parent, self.clock, self.start_ms = name, parent, start_ms, start_ms
        self.id, self.turn_id = self.uuid(), ""
        self.window = self.first_window = self.uuid()
        self.lines: list[str] = []
        self.sequence = self.sampled_through = self.order = 0
        self.user_items: list[tuple[Json, Json]] = []
        self.retained: dict[str, list[Json]] = {"user": [], "assistant": []}
        self.turn_began = 0

    # Ids and lines

    def uuid(self) -> str:
        """Return a version 7 UUID: 48 bits of time, the rest random."""
        stamp, tail = f"{self.clock:012x}", f"{self.rng.getrandbits(72):018x}"
        variant = self.rng.choice("89ab")
        return f"{stamp[:8]}-{stamp[8:]}-7{tail[:3]}-{variant}{tail[3:6]}-{tail[6:]}"

    def hex(self, digits: int = 24) -> str:
        """Return random hex digits, such as the server's ids have."""
        return f"{self.rng.getrandbits(4 * digits):0{digits}x}"

    def write(self, kind: str, payload: Json, **beside: Json) -> None:
        """Append one line, a few milliseconds after the one before."""
        self.clock += self.rng.randint(1, 4)
        record = {"timestamp": self.stamp(), "ordinal": len(self.lines), "type": kind}
        self.lines.append(dumps({**record, "payload": payload, **beside}))

    def stamp(self) -> str:
        """Return the clock as Codex writes it."""
        moment = datetime.fromtimestamp(self.clock / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def event(self, kind: str, **fields: Any) -> None:
        """Write an event: something to show to the user, in no prompt."""
        self.write("event_msg", {"type": kind, **fields})

    def completed(self, began: int, **item: Any) -> None:
        """Write the event that shows a message, a command or a fold as finished."""
        ids = {"thread_id": self.id, "turn_id": self.turn_id}
        self.clock += 1
        self.event(
            "item_completed", **ids, item=item, started_at_ms=began, completed_at_ms=self.clock
        )

    # Items of the prompt

    def item(self, item: Json, *, kept: bool = False, ordered: bool = False, **more: Any) -> Json:
        """Write a response item, which all later prompts hold, and return its metadata."""
        meta = self.place()
        if kept:
            ids = {"message_id": item["id"], "turn_id": self.turn_id, "role": item["role"]}
            revision = f"retained_{self.uuid()}"
            meta["retained_source"] = {"id": ids, "revision": revision, "complete": True}
            summary = {"revision": revision, "order": self.order, "turn_id": self.turn_id}
            summary |= {"message_id": item["id"], "text": item["content"][0]["text"]}
            phase = {"phase": item["phase"]} if "phase" in item else {}
            self.retained[item["role"]].append(summary | {"complete": True} | phase)
        meta["client_authored"] = False
        if ordered:
            meta["user_input_order"] = self.order
            self.order += 1
        meta |= more
        meta["model_search_state"] = "unused"
        self.write("response_item", item, metadata=meta)
        return meta

    def place(self) -> Json:
        """Return the place of a new item: its number, and up to where its prompt went."""
        self.sequence += 1
        seen = {"sampled_through_sequence": self.sampled_through}
        return {"history_sequence": self.sequence, **seen}

    def passed(self, *kinds: str, provenance: bool = False, dated: bool = True) -> Json:
        """Return the bookkeeping that Codex keeps inside an item but does not send."""
        inner: Json = {"turn_id": self.turn_id}
        if dated:
            inner["create_time"] = round((self.clock + self.rng.random()) / 1000, 6)
        if kinds:
            inner["content_item_kinds"] = list(kinds)
        if provenance:
            sources = [PROVENANCE.get(kind, HARNESS) for kind in kinds]
            inner["content_item_metadata"] = [{"provenance": source} for source in sources]
        return {PASSED: inner}

    def given(self, role: str, texts: dict[str, str], *, dated: bool = True) -> Json:
        """Return a message that no model wrote; `texts` by kind."""
        content = [{"type": "input_text", "text": value} for value in texts.values()]
        item = {"type": "message", "id": f"msg_{self.uuid()}", "role": role, "content": content}
        return item | self.passed(*texts, provenance=True, dated=dated)

    def developer(self, *, dated: bool = True) -> Json:
        """Return the message with skills, permissions and tools that opens each history."""
        skills = f"<skills_instructions>{SKILLS}</skills_instructions>"
        texts = {"host_skills.instructions": skills, "permissions.instructions": PERMISSIONS}
        if not self.parent:
            tools = f"<tools>\n- {NAMESPACE}: {NAMESPACE_USE}\n</tools>"
            texts["tools.deferred_namespaces"] = tools
        return self.given("developer", texts, dated=dated)

    def environment(self, *, dated: bool = True) -> Json:
        """Return the message that describes the machine."""
        texts = {"environments.environment_context": ENVIRONMENT}
        return self.given("user", texts, dated=dated)

    def said(self, words: str, phase: str) -> Json:
        """Return a message of the model."""
        item = {"type": "message", "status": "completed", "id": f"msg_{self.hex()}"}
        item |= {"role": "assistant"}
        content = [{"type": "output_text", "text": words, "annotations": []}]
        return item | {"content": content, "phase": phase} | self.passed("unknown", dated=False)

    # The head of a file, a turn and a context window

    def session_meta(self) -> None:
        """Write the first line: who, where, which version, and the base instructions."""
        parent = self.parent
        ids: Json = {"session_id": parent.id if parent else self.id, "id": self.id}
        source: Any = "exec"
        of_child: Json = {}
        if parent:
            ids["parent_thread_id"] = parent.id
            spawn = {"parent_thread_id": parent.id, "depth": 1, "agent_path": None}
            spawn |= {"agent_nickname": self.name, "agent_role": None}
            source, of_child = {"subagent": {"thread_spawn": spawn}}, {"agent_nickname": self.name}
        self.write(
            "session_meta",
            {"account_scoped": True, **ids, "timestamp": self.stamp(), "cwd": CWD}
            | {"runtime_workspace_roots": [CWD], "originator": "codex_exec"}
            | {"cli_version": "0.171.0", "source": source}
            | {"thread_source": "subagent" if parent else "user", **of_child}
            | {"model_provider": PROVIDER}
            | {
                "base_instructions": {
                    "text": RULES,
                    "provenance": {"type": "model", "model": MODEL},
                }
            }
            | {"history_mode": "paginated", **({"multi_agent_version": "v1"} if parent else {})}
            | {"context_window": {"window_id": self.window}}
            | {"git": {"commit_hash": COMMIT, "branch": "main"}},
        )

    def root_turn(self) -> str:
        """Return the id of the turn that the user started."""
        return self.parent.root_turn() if self.parent else self.turn_id

    def turn_ids(self) -> Json:
        """Return the ids of the turn and of the turn at the root of it."""
        return {"turn_id": self.turn_id, "root_turn_id": self.root_turn()}

    def attribution(self) -> Json:
        """Return what started the turn."""
        parent_turn = self.parent.turn_id if self.parent else None
        start = {"turn_id": self.turn_id, "turn_trigger": "exec", "parent_turn_id": parent_turn}
        return start | {"initiating_agent_path": None, "root_turn_id": self.root_turn()}

    def task_started(self) -> None:
        """Write the start of a turn."""
        self.turn_began = self.clock
        self.turn_id = self.uuid()
        self.event(
            "task_started",
            turn_attribution=self.attribution(),
            **self.turn_ids(),
            started_at=self.clock // 1000,
            model_context_window=WINDOW_TOKENS,
            collaboration_mode_kind="default",
        )

    def world_state(self) -> None:
        """Write what Codex knows of its surroundings; in no prompt as such."""
        place = {"local": {"cwd": CWD, "status": "available", "shell": "bash"}}
        environments = {"environments": place, "current_date": "2026-10-05"}
        environments |= {"timezone": "Etc/UTC", "filesystem": "<filesystem>all</filesystem>"}
        mode = {"mode": "default", "model": MODEL, "instructions": HASH}
        state: Json = {"agents_md": {}, "apps_instructions": False, "collaboration_mode": mode}
        state |= {"context_window_guidance": "", "environments": environments}
        state |= {"environments_instructions": False, "git_attribution": False}
        state |= {"host_skills": {"body": SKILLS, "includeInstructions": True}}
        state |= {"managed_developer_instructions": {}, "model": MODEL, "model_catalog": HASH}
        permissions = {"instructions": HASH, "approved_command_prefixes": []}
        state |= {"multi_agent_mode": {}, "permissions": permissions, "persistent_mode": {}}
        state |= {"plugins_instructions": False, "realtime": {"active": False}}
        state |= {"skills": {"includeInstructions": True}}
        if not self.parent:
            state["tools"] = {NAMESPACE: NAMESPACE_USE}
        self.write("world_state", {"full": True, "state": state})

    def collaboration(self) -> Json:
        """Return the mode of working, which two records hold."""
        settings = {"model": MODEL, "reasoning_effort": EFFORT, "developer_instructions": None}
        return {"collaboration_mode": {"mode": "default", "settings": settings}}

    def turn_context(self) -> None:
        """Write the settings of the turn; its model is the model of the calls that follow."""
        policy = {"approval_policy": "never", "approvals_reviewer": "user"}
        self.write(
            "turn_context",
            {**self.turn_ids(), "disabled_plugin_ids": [], "cwd": CWD, **policy}
            | {"permission_profile": {"type": "disabled"}, "model": MODEL, "comp_hash": COMP_HASH}
            | self.collaboration()
            | {"multi_agent_version": "v1", "realtime_active": False, "effort": EFFORT}
            | {"summary": "none", "sandbox_policy": {"type": "danger-full-access"}},
        )

    def settings_applied(self) -> None:
        """Write the settings of the session."""
        settings: Json = {"model": MODEL, "model_provider_id": PROVIDER, "approval_policy": "never"}
        settings |= {"approvals_reviewer": "user", "requested_approvals_reviewer": "user"}
        settings |= {"permission_profile": {"type": "disabled"}, "cwd": CWD}
        settings |= {"runtime_workspace_roots": [CWD], "reasoning_effort": EFFORT}
        settings |= {"reasoning_summary": "auto", **self.collaboration(), "disabled_plugin_ids": []}
        self.event("thread_settings_applied", thread_id=self.id, thread_settings=settings)
