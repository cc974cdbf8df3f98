"""What stays of Codex's logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.scrub.document import BY_TYPE, NOTHING, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = Kept(
    keys=named(
        """
        type payload timestamp ordinal metadata record_type id instructions session_id cli_version
        source subagent thread_spawn other agent_role parent_thread_id forked_from_id thread_source
        history_base thread_id end_ordinal_exclusive history_mode subagent_history_start_ordinal
        base_instructions text dynamic_tools collaboration_mode settings model multi_agent_version
        approval_policy sandbox_policy thread_settings turn_id num_turns
        info total_token_usage last_token_usage usage response_id input_tokens cached_input_tokens
        cache_write_input_tokens output_tokens reasoning_output_tokens total_tokens
        role content call_id name arguments input output execution encrypted_content result
        image_url summary tools internal_chat_message_metadata_passthrough
        message replacement_history history_sequence sampled_through_sequence compaction_output
        schema_version trace_id raw_event_log wall_time_unix_ms inference_call_id request_payload
        response_payload metadata_payload raw_payload_id output_items token_usage session_source
        client_metadata x-codex-turn-metadata request_kind
        """
    ),
    values=named(
        """
        type record_type role model cli_version agent_role thread_source subagent other
        history_mode execution request_kind
        """
    ),
    blobs=named("encrypted_content result"),
    inside={
        b"arguments": NOTHING,
        b"action": NOTHING,
        b"tools": BY_TYPE,
        b"dynamic_tools": NOTHING,
        b"output": Kept(
            keys=named("output metadata exit_code duration_seconds type text image_url"),
            words=named("input_text input_image output_text"),
        ),
        b"x-codex-turn-metadata": Kept(named("request_kind"), named("request_kind")),
    },
    numbers=True,
)
_MARKERS = (
    b"# AGENTS\\.md instructions",
    b"<(?:environment_context|goal_context|permissions instructions|skill|skills_instructions"
    b"|subagent_notification|turn_aborted|user_instructions|user_shell_command)>",
)
"""How messages begin that the client writes in the user's name."""


def members(path: Path) -> Iterator[Member]:
    """Yield the files of a rollout or of a trace bundle."""
    folder = path.parent
    if path.name != "manifest.json":
        yield Member(path, folder, Form.lines)
        return
    yield Member(path, folder.parent, Form.document)
    yield Member(folder / "trace.jsonl", folder.parent, Form.lines)
    for shard in sorted((folder / "payloads").glob("*.zst")):
        yield Member(shard, folder.parent, Form.payloads)


RULES = Rules(KEPT, re.compile(rb'\{"(?:timestamp|schema_version)":'), members, _MARKERS)
