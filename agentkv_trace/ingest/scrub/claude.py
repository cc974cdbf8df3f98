"""What stays of Claude Code's transcripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.claude.records import SYNTHETIC
from agentkv_trace.ingest.scrub.document import NOTHING, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUB_AGENTS = "subagents"

KEPT = Kept(
    keys=named(
        """
        type uuid parentUuid logicalParentUuid sessionId agentId attributionAgent isSidechain
        timestamp version cwd subtype operation entrypoint isMeta isCompactSummary
        isApiErrorMessage sourceToolAssistantUUID forkedFrom compactMetadata message attachment
        toolUseResult data requestId
        id role model usage stop_reason content
        input_tokens cache_creation_input_tokens cache_read_input_tokens output_tokens
        cache_creation ephemeral_5m_input_tokens ephemeral_1h_input_tokens
        text thinking signature name input tool_use_id source media_type cache_control
        durationMs preservedMessages preservedSegment uuids anchorUuid headUuid tailUuid
        addedLines showConcurrencyNote newDate file filePath startLine prompt origin kind
        commandMode agentType toolUseId spawnDepth
        """
    ),
    values=named(
        """
        type role model version subtype operation entrypoint attributionAgent agentType kind
        commandMode media_type stop_reason
        """
    ),
    words=named(SYNTHETIC),
    blobs=named("signature data"),
    inside={b"input": NOTHING, b"toolUseResult": NOTHING},
    numbers=True,
)
_MARKERS = (
    # What a listing says of an agent's tools tells whether it may start others.
    rb'(?<![^"])- [\w-]+(?=: [^\n"]*\(Tools: )',
    rb"\(Tools: (?:All tools)?(?: except )?",
    rb"(?<=[ ,])Agent(?=[,)])",
)


def members(path: Path) -> Iterator[Member]:
    """Yield a transcript, and what stands beside that of a sub-agent."""
    top = path.parent
    if path.name.startswith("agent-") and SUB_AGENTS in path.parts:
        while top.name != SUB_AGENTS:
            top = top.parent
        top = top.parent.parent
    yield Member(path, top, Form.lines)
    beside = path.with_name(f"{path.name.split('.')[0]}.meta.json")
    if beside.is_file():
        yield Member(beside, top, Form.document)


RULES = Rules(KEPT, re.compile(rb'\{"(?:parentUuid|type)":'), members, _MARKERS)
