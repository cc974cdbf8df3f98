"""What stays of OpenHands' logs, of both generations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.openhands import completions, paths
from agentkv_trace.ingest.scrub.document import BY_TYPE, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD = 1 << 16

_INSIDE: dict[bytes, Kept] = {
    b"tools": BY_TYPE,
    b"arguments": Kept(named("prompt subagent_type tasks"), named("subagent_type")),
    b"action": Kept(
        keys=named("kind prompt subagent_type ids agent_types tasks"),
        values=named("kind subagent_type agent_types"),
    ),
    b"args": Kept(
        keys=named(
            """
            content thought text image_urls command agent tools summary summary_offset
            forgotten_event_ids forgotten_events_start_id forgotten_events_end_id
            """
        ),
        values=named("agent"),
        inside={b"tools": BY_TYPE},
        numbers=True,
    ),
}
KEPT = Kept(
    keys=named(
        """
        kind id timestamp source parent_id llm_response_id llm_message role content text type
        image_urls extended_content system_prompt dynamic_context tools thought tool_call
        tool_call_id tool_name name arguments origin action observation is_error task_id subagent
        status full_output_save_dir screenshot_data metadata prefix suffix working_dir
        py_interpreter_path exit_code error rejection_reason reasoning_content thinking_blocks
        thinking signature responses_reasoning_item encrypted_content
        forgotten_event_ids summary summary_offset key value filename log_data
        agent llm model workspace stats usage_to_metrics model_name token_usages response_latencies
        costs response_id latency accumulated_token_usage native_tool_calling
        force_string_serializer
        prompt_tokens completion_tokens cache_read_tokens cache_write_tokens input_tokens
        output_tokens prompt_tokens_details input_tokens_details cached_tokens
        cache_creation_tokens cache_read_input_tokens cache_creation_input_tokens
        prompt_cache_hit_tokens total_tokens
        messages input instructions kwargs extra_body session_id response usage usage_summary
        choices message tool_calls function latency_sec context_window llm_path fncall_messages
        output body body_raw status_code image_url url detail data cache_control created
        args extras cause tool_call_metadata model_response function_name outputs agent_state
        microagent_knowledge trigger recall_type repo_name repo_directory repo_branch
        repo_instructions runtime_hosts additional_agent_instructions date
        custom_secrets_descriptions conversation_instructions
        llm_metrics history instance_id attempt metrics condenser llm_config max_message_chars
        instruction instance test_result
        """
    ),
    values=named("kind source action observation role type recall_type origin model model_name"),
    words=named("task delegate stats full_state __root__"),
    blobs=named("screenshot_data encrypted_content signature data"),
    inside=_INSIDE,
    numbers=True,
)
# A completion that a remote run sent as an event is one inside a string.
_INSIDE[b"log_data"] = KEPT
_MARKERS = (
    rb"(?<![0-9A-Za-z])task:",
    # What a condensation wrote has an id of its own, made from that of its event.
    rb"(?<=[0-9a-f]{12})-summary(?![\w-])",
    b"!\\[image\\]\\(",
    re.escape(completions.CONDENSER.encode()),
)


def members(path: Path) -> Iterator[Member]:
    """Yield the files of a conversation, of a folder of completions, or a single one."""
    if path.is_dir():
        for each in completions.files_in(path):
            yield Member(each, path.parent, Form.document)
        return
    with path.open("rb") as file:
        kind = paths.kind_of(path, file.read(_HEAD))
    folder = path.parent
    if path.name == paths.STATE or paths.EVENT.match(path.name):
        conversation = folder if path.name == paths.STATE else folder.parent
        yield from _conversation(conversation)
    elif folder.name == "events" and paths.OLD_EVENT.match(path.name):
        for each in sorted(folder.iterdir()):
            if paths.OLD_EVENT.match(each.name) and each.is_file():
                yield Member(each, folder.parent.parent, Form.document)
    else:
        yield Member(path, folder, Form.lines if kind == "evaluation" else Form.document)


def _conversation(folder: Path) -> Iterator[Member]:
    top = folder
    while top.parent.name == paths.CHILDREN:
        top = top.parent.parent
    if (folder / paths.STATE).is_file():
        yield Member(folder / paths.STATE, top.parent, Form.document)
    for each in sorted((folder / "events").glob("*.json")):
        if paths.EVENT.match(each.name):
            yield Member(each, top.parent, Form.document)


RULES = Rules(KEPT, re.compile(rb'\{"id":'), members, _MARKERS)
