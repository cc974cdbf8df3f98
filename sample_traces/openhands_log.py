"""Records of an OpenHands 1.58 conversation, one method each, in the shapes of real ones."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime
from typing import Any

from tides_project import text

MODEL = "openai/tide-model"
HOME = "/home/dev"
BYTES_PER_TOKEN = 3.4
FORGETS_AFTER_MS = 300_000
CACHED_BY = 128
FIXED = random.Random("the same head for every conversation")
RULES = "You are an agent for the people who keep this project.\n\n" + text("rules", FIXED, 7000)
SUMMARISE = "You sum up what an agent did, for its next steps.\n\n" + text("rules", FIXED, 1100)

Json = dict[str, Any]


def dumps(value: object) -> str:
    """Return compact JSON, as events are written."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def words(value: str) -> Json:
    """Return a text as events hold it."""
    return {"cache_prompt": False, "type": "text", "text": value}


def tool(name: str, kind: str, *, hints: tuple[bool, bool, bool, bool], folder: str) -> Json:
    """Return the dump of a tool: its schema is not in it, the folder may be."""
    rng = random.Random(f"tool {name}")
    told = text("rules", rng, 1900) + (
        f"\nYou work in {folder}.\n" if name == "file_editor" else ""
    )
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    title = {} if name in ("task_tracker", "think") else {"title": name}
    return {
        "description": told,
        "action_type": f"{kind}Action",
        "observation_type": f"{kind}Observation",
        "annotations": title | dict(zip(names, hints, strict=True)),
        "kind": f"{kind}Tool",
        "title": name,
    }


def tools_of(folder: str, *, tasks: bool) -> list[Json]:
    """Return the tools of an agent in a folder, with or without the one that starts sub-agents."""
    writes, reads = (False, True, False, True), (True, False, True, False)
    found = [
        tool("terminal", "Terminal", hints=writes, folder=folder),
        tool("file_editor", "FileEditor", hints=writes, folder=folder),
        tool("task_tracker", "TaskTracker", hints=reads, folder=folder),
    ]
    if tasks:
        found.append(tool("task", "Task", hints=writes, folder=folder))
    found.append(tool("finish", "Finish", hints=reads, folder=folder))
    return [*found, tool("think", "Think", hints=reads, folder=folder)]


class Server:
    """The server of all conversations: counts tokens, and knows what it has cached."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, list[str]]] = []

    def usage(self, items: list[str], output: int, thought: int, now: int) -> Json:
        """Return the usage of a prompt given as the JSON of its parts, and note it as cached."""
        shared = 0
        for at, other in self._seen:
            if now - at <= FORGETS_AFTER_MS:
                same = 0
                for mine, theirs in zip(items, other, strict=False):
                    if mine != theirs:
                        break
                    same += tokens(mine)
                shared = max(shared, same)
        self._seen.append((now, items))
        prompt = sum(map(tokens, items))
        return {
            "model": MODEL,
            "prompt_tokens": prompt,
            "completion_tokens": output + thought,
            "cache_read_tokens": min(shared, prompt - 1) // CACHED_BY * CACHED_BY,
            "cache_write_tokens": 0,
            "reasoning_tokens": thought,
            "context_window": 200000,
            "per_turn_token": prompt + output + thought,
        }


def tokens(data: str) -> int:
    """Return the tokens of some text, by the server's count."""
    return math.ceil(len(data.encode()) / BYTES_PER_TOKEN)


class Log:
    """The events and the state of one conversation in the making; `clock` is in milliseconds."""

    def __init__(self, name: str, start_ms: int, server: Server, folder: str, *, tasks: bool):
        self.rng = random.Random(name)
        self.name, self.clock, self.server, self.folder = name, start_ms, server, folder
        self.id = self.uuid()
        self.events: list[Json] = []
        self.metrics: Json = {}
        self.head = ""
        self.tools = tools_of(folder, tasks=tasks)
        self.status = "finished"
        self.last_user = ""

    # Ids and events

    def uuid(self) -> str:
        """Return a version 4 UUID."""
        digits = f"{self.rng.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def hex(self) -> str:
        """Return random hex digits, such as the server's ids have."""
        return f"{self.rng.getrandbits(96):024x}"

    def stamp(self) -> str:
        """Return the clock as events have it: to the microsecond, without a zone."""
        moment = datetime.fromtimestamp(self.clock / 1000, UTC).replace(tzinfo=None)
        return moment.replace(microsecond=moment.microsecond + self.rng.randint(1, 999)).isoformat()

    def event(self, kind: str, source: str, **fields: Any) -> Json:
        """Append an event, a few milliseconds after the one before."""
        self.clock += self.rng.randint(1, 5)
        record: Json = {"id": self.uuid(), "timestamp": self.stamp(), "source": source}
        if self.head:
            record["parent_id"] = self.head
        record |= fields | {"kind": kind}
        self.events.append(record)
        self.head = record["id"]
        return record

    def system(self, own: str = "") -> None:
        """Write the system prompt, with what is the conversation's own in a part of its own."""
        extra = {"dynamic_context": words(own)} if own else {}
        self.event(
            "SystemPromptEvent", "agent", system_prompt=words(RULES), tools=self.tools, **extra
        )

    def user(self, value: str) -> Json:
        """Write what the user asks."""
        message = {"role": "user", "content": [words(value)], "thinking_blocks": []}
        more: Json = {"activated_skills": [], "extended_content": []}
        record = self.event("MessageEvent", "user", llm_message=message, **more)
        self.last_user = record["id"]
        return record

    def action(
        self, response: str, tool_name: str, action: Json, said: str = "", thought: str = ""
    ) -> Json:
        """Write one tool call of a response."""
        asked = {
            key: value for key, value in action.items() if key not in ("kind", "is_input", "reset")
        }
        asked |= {} if tool_name == "finish" else {"security_risk": "LOW"}
        asked |= {"summary": f"use {tool_name}"}
        call = f"call_{self.hex()}"
        reasoning = {"reasoning_content": thought} if thought else {}
        return self.event(
            "ActionEvent",
            "agent",
            thought=[words(said)] if said else [],
            **reasoning,
            thinking_blocks=[],
            action=action,
            tool_name=tool_name,
            tool_call_id=call,
            tool_call={
                "id": call,
                "name": tool_name,
                "arguments": json.dumps(asked),
                "origin": "completion",
            },
            llm_response_id=response,
            security_risk="UNKNOWN",
            summary=f"use {tool_name}",
        )

    def answer(self, action: Json, observation: Json) -> Json:
        """Write what a tool gave."""
        return self.event(
            "ObservationEvent",
            "environment",
            tool_name=action["tool_name"],
            tool_call_id=action["tool_call_id"],
            observation=observation,
            action_id=action["id"],
            extended_content=[],
        )

    # Metrics and state

    def note(self, name: str, response: str, usage: Json, latency_ms: int) -> None:
        """Note what a response used, and when it came."""
        held = self.metrics.setdefault(
            name,
            {
                "model_name": MODEL,
                "accumulated_cost": 0.0,
                "accumulated_token_usage": {},
                "costs": [],
                "response_latencies": [],
                "token_usages": [],
            },
        )
        fresh = usage["prompt_tokens"] - usage["cache_read_tokens"]
        cost = round(fresh * 1e-6 + usage["completion_tokens"] * 4e-6, 9)
        held["accumulated_cost"] = round(held["accumulated_cost"] + cost, 9)
        at = self.clock / 1000 - 0.001
        held["costs"].append({"model": MODEL, "cost": cost, "timestamp": at})
        latency = {"model": MODEL, "latency": latency_ms / 1000, "response_id": response}
        held["response_latencies"].append(latency)
        held["token_usages"].append(usage | {"response_id": response})
        total = held["accumulated_token_usage"] or {key: 0 for key in usage if key != "model"}
        kept = ("context_window", "per_turn_token")
        summed = {
            key: usage[key] + (0 if key in kept else total[key])
            for key in total
            if key != "model" and key != "response_id"
        }
        held["accumulated_token_usage"] = {"model": MODEL, **summed, "response_id": ""}

    def state(self, llm: Json, condenser: Json | None) -> Json:
        """Return the state that lies beside the events."""
        agent: Json = {
            "llm": llm,
            "tools": [{"name": each["title"], "params": {}} for each in self.tools[:-2]],
            "mcp_config": {},
            "include_default_tools": ["FinishTool", "ThinkTool"],
            "system_prompt_filename": "system_prompt.j2",
            "security_policy_filename": "security_policy.j2",
            "system_prompt_kwargs": {"cli_mode": True, "llm_security_analyzer": True},
        }
        if condenser is not None:
            agent["condenser"] = condenser
        agent |= {"tool_concurrency_limit": 1, "kind": "Agent"}
        return {
            "id": self.id,
            "agent": agent,
            "workspace": {"working_dir": self.folder, "kind": "LocalWorkspace"},
            "persistence_dir": f"{HOME}/.openhands/conversations/{self.id.replace('-', '')}",
            "max_iterations": 200,
            "stuck_detection": True,
            "execution_status": self.status,
            "confirmation_policy": {"kind": "NeverConfirm"},
            "activated_knowledge_skills": [],
            "activated_path_rules": [],
            "invoked_skills": [],
            "blocked_actions": {},
            "blocked_messages": {},
            "last_user_message_id": self.last_user,
            "leaf_event_id": self.head,
            "head_is_empty": False,
            "stats": {"usage_to_metrics": self.metrics},
            "secret_registry": {"secret_sources": {}},
            "tags": {},
            "agent_state": {},
        }


def settings(usage_id: str) -> Json:
    """Return the settings of a model."""
    return {
        "model": MODEL,
        "api_key": "**********",
        "auth_type": "api_key",
        "base_url": "http://127.0.0.1:8000/v1",
        "openrouter_site_url": "https://example.org/",
        "openrouter_app_name": "OpenHands",
        "num_retries": 4,
        "retry_multiplier": 8.0,
        "retry_min_wait": 1,
        "retry_max_wait": 3,
        "timeout": 300,
        "stream_idle_timeout": 300.0,
        "max_message_chars": 30000,
        "max_input_tokens": 200000,
        "max_output_tokens": 8000,
        "api_mode": "auto",
        "capability_overrides": {},
        "input_cost_per_token": 1e-06,
        "output_cost_per_token": 4e-06,
        "stream": False,
        "drop_params": True,
        "disable_stop_word": False,
        "caching_prompt": True,
        "log_completions": True,
        "log_completions_folder": f"{HOME}/logs/completions",
        "native_tool_calling": True,
        "reasoning_effort": "high",
        "enable_encrypted_reasoning": True,
        "prompt_cache_retention": "24h",
        "extended_thinking_budget": 200000,
        "usage_id": usage_id,
        "litellm_extra_body": {},
        "is_subscription": False,
    }
