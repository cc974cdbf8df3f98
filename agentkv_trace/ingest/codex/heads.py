"""What stands before the first item of a prompt: tools that no log holds, base instructions."""

from __future__ import annotations

import msgspec

from agentkv_trace.ingest.codex.items import Entry, digest, message
from agentkv_trace.ingest.codex.records import Meta, Record, table, text
from agentkv_trace.trace.call import Node

COMPACTION_PROMPT = (b"codex compaction prompt", 110)
"""Stands for the last item of a compaction prompt, which no log holds; about 110 tokens."""

BARE_HEAD_TOKENS = 6000
"""Head of the versions that log bare items, and no usage to size it: 0.20 sends 24 kB."""

_BASE_AS_ITEM = (0, 162)
"""From this version on the base instructions are the first item, before it a field of their own."""
_PERMISSIONS_AS_ITEM = (0, 98)
"""Before this version permissions alter the tools; from then on they are an item in the log."""


class Heads:
    """The heads of one thread's prompts, as its model and tools change."""

    def __init__(self, meta: Meta) -> None:
        self.model: str | None = None
        self.missing_history = ""
        self.base_text = meta.base_text
        self._meta = meta
        self.tools_logged = False
        self._signals = ""
        self._roots: dict[tuple[str, ...], Node] = {}

    @property
    def fidelity(self) -> str:
        """The fidelity that a prompt has by its head alone."""
        return "exact" if self.tools_logged and not self.missing_history else "head_estimated"

    def see_turn_context(self, payload: Record) -> None:
        """Take model and whatever decides the tools from a turn_context."""
        settings = table(table(payload.get("collaboration_mode")).get("settings"))
        self.model = text(payload.get("model")) or text(settings.get("model")) or self.model
        signals = [text(payload.get("multi_agent_version")) or ""]
        version = self._meta.version
        if version is not None and version < _PERMISSIONS_AS_ITEM:
            signals.append(text(payload.get("approval_policy")) or "")
            signals.append(msgspec.json.encode(payload.get("sandbox_policy")).decode())
        self._signals = "|".join(signals)

    def see_settings(self, settings: Record) -> None:
        """Take the model from applied settings where no turn_context has named one."""
        self.model = self.model or text(settings.get("model"))

    def see_item(self, entry: Entry) -> None:
        """Notice tools that are logged as an item; the base instructions then are one as well."""
        self.tools_logged |= entry.type == "additional_tools"

    def copy_from(self, other: Heads) -> None:
        """Start with what another thread's prompts had."""
        self.model = other.model
        self.tools_logged = other.tools_logged
        self._signals = other._signals

    def root(self, model: str | None, kind: str) -> Node:
        """Return the node behind which the items of a prompt stand."""
        special = kind if kind == "compaction" else ""
        meta = self._meta
        key = (
            "codex",
            meta.cli_version or "",
            meta.agent,
            model or "",
            self._signals + "|items" * self.tools_logged,
            digest(meta.dynamic_tools).hex() if meta.dynamic_tools else "",
            special,
            self.missing_history,
        )
        if key not in self._roots:
            typical = None if meta.cli_version else BARE_HEAD_TOKENS
            node = Node.head(*key, typical_tokens=typical)
            if self.base_text is not None and not self.tools_logged:
                node = node.text(base_of(meta, self.base_text))
            self._roots[key] = node
        return self._roots[key]


def base_of(meta: Meta, words: str) -> bytes:
    """Return the base instructions as the thread's version sends them."""
    if meta.version is None or meta.version >= _BASE_AS_ITEM:
        return msgspec.json.encode(message("developer", words))
    return words.encode()


def base_key(meta: Meta) -> tuple[str, ...]:
    """Return what decides which sections of the logged base instructions are sent."""
    return meta.cli_version or "", meta.agent, meta.base_text or ""
