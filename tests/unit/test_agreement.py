from __future__ import annotations

from agentkv_trace.trace.agreement import Agreement, agreement
from agentkv_trace.trace.build import TraceBuilder
from made import call, node


def test_residuals_and_reuse_beyond_what_is_shared() -> None:
    builder = TraceBuilder()
    usage = {"usage_source": "none"}
    builder.add(call("a", node(range(100)), 0, logged_prompt_tokens=1600, **usage))
    # Shares 1600 of 1616 tokens: the provider may reuse them, and a partial chunk more.
    builder.add(
        call(
            "a", node(range(101)), 1, logged_prompt_tokens=1630, logged_cached_tokens=1600, **usage
        )
    )
    # Shares nothing, yet the provider reused half of it.
    builder.add(
        call(
            "b", node([999] * 100), 2, logged_prompt_tokens=1590, logged_cached_tokens=800, **usage
        )
    )
    builder.add(call("c", node([5]), 3, source="other"))
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    assert agreement(built) == {"codex": Agreement(3, 0.0, 14, 1)}
