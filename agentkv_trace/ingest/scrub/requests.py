"""What stays of raw request logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.scrub.document import BY_TYPE, NOTHING, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADERS = named(
    """
    thread-id x-session-id session-id session_id x-litellm-session-id x-parent-session-id
    x-codex-parent-thread-id
    """
)
_INSIDE: dict[bytes, Kept] = {
    b"tools": BY_TYPE,
    b"arguments": NOTHING,
    b"user_id": Kept(named("session_id")),
}
_STAMPS = named(
    """
    t_start t_recv startTime start_time started_at t_end t_done endTime end_time completed_at
    logged_at timestamp created_at
    """
)
KEPT = Kept(
    keys=named(
        """
        body request response headers kwargs extra_body metadata user_id usage_object usage
        usage_summary model model_parameters messages input instructions system tools
        prompt_cache_key previous_response_id session_id session conversation_id parent_session
        parent_session_id agent agent_id kind status status_code dropped error cache_hit
        latency_sec response_time body_raw id choices message content output role type text
        tool_calls call_id name arguments function tool_call_id source data image_url url thinking
        signature encrypted_content cache_control
        prompt_tokens completion_tokens cache_read_tokens cache_write_tokens input_tokens
        output_tokens total_tokens prompt_tokens_details input_tokens_details cached_tokens
        cache_creation_tokens cache_read_input_tokens cache_creation_input_tokens
        prompt_cache_hit_tokens
        """
    )
    | _STAMPS
    | _HEADERS
    | frozenset(header.title() for header in _HEADERS),
    values=named("model agent agent_id kind status cache_hit role type") | _STAMPS,
    words=frozenset((b"<redacted>", b"**********", b"<secret_hidden>")),
    blobs=named("encrypted_content signature data"),
    inside=_INSIDE,
    numbers=True,
)
# A proxy keeps a stream as text, with JSON behind each `data:`.
_INSIDE[b"body"] = _INSIDE[b"body_raw"] = KEPT


def members(path: Path) -> Iterator[Member]:
    """Yield the one file of a request log."""
    is_one = path.suffix == ".json"
    yield Member(path, path.parent, Form.document if is_one else Form.lines)


RULES = Rules(
    KEPT,
    None,
    members,
    (b"_session_", rb"(?m:^data$)", rb"\(litellm_truncated skipped \d+ chars"),
)
