"""What stays of SWE-agent's trajectories."""

from __future__ import annotations

from agentkv_trace.ingest.scrub.document import NOTHING, Kept, named
from agentkv_trace.ingest.scrub.mini_swe import members
from agentkv_trace.ingest.scrub.rules import Rules

_MODEL = Kept(keys=named("name model_name"), values=named("name model_name"))
_CONFIG = Kept(
    keys=named("agent model"),
    inside={b"agent": Kept(keys=named("model"), inside={b"model": _MODEL})},
)
KEPT = Kept(
    keys=named(
        """
        trajectory history attempts info replay_config environment query messages response action
        observation thought execution_time state extra_info role content tool_calls tool_call_ids
        tool_call_id thinking_blocks thinking signature data type text id function name arguments
        image_url url source agent is_demo message_type cache_control model_stats tokens_sent
        tokens_received api_calls instance_cost swe_agent_version exit_status
        """
    ),
    values=named("role type agent message_type swe_agent_version exit_status"),
    blobs=named("signature data"),
    inside={b"arguments": NOTHING, b"replay_config": _CONFIG},
    numbers=True,
)
RULES = Rules(KEPT, None, members, (rb"\(litellm_truncated skipped \d+ chars",))
