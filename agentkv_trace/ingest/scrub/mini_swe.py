"""What stays of mini-swe-agent's trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.scrub.document import NOTHING, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = Kept(
    keys=named(
        """
        info messages trajectory_format config model model_name model_type agent_type agent
        environment mini_version model_stats api_calls exit_status submission
        role content extra response timestamp created created_at object output id choices message
        usage prompt_tokens completion_tokens total_tokens input_tokens output_tokens
        prompt_tokens_details input_tokens_details cached_tokens cache_creation_tokens
        cache_read_input_tokens cache_creation_input_tokens cache_read_tokens cache_write_tokens
        prompt_cache_hit_tokens interrupt_type model_response
        tool_calls function name arguments tool_call_id call_id type text function_call
        provider_specific_fields reasoning_content thinking_blocks thinking signature data
        encrypted_content summary image_url url source cache_control
        """
    ),
    values=named(
        """
        role type object model model_name model_type agent_type mini_version trajectory_format
        interrupt_type exit_status
        """
    ),
    blobs=named("encrypted_content signature data"),
    inside={b"arguments": NOTHING},
    numbers=True,
)
_MARKERS = (rb"(?m:```(?:bash|mswea_bash_command)$)", rb"\(litellm_truncated skipped \d+ chars")


def members(path: Path) -> Iterator[Member]:
    """Yield the one file of a trajectory."""
    yield Member(path, path.parent, Form.document)


RULES = Rules(KEPT, None, members, _MARKERS)
