"""What is said beside the figures of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_trace.replay.setting import MEMORY_SHARE, STEP_S
from agentkv_trace.report.units import format_ratio, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.load import Gpu
    from agentkv_trace.replay.timeline import Timeline


def rejections(gpus: Sequence[Gpu], table: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is said of calls that no pool holds, once per GPU."""
    names = {gpu.id: gpu.name for gpu in gpus}
    said = {}
    for row in table:
        if row["rejected"]:
            calls = row["calls"] + row["rejected"]
            said[row["gpu"]] = (
                f"{names[row['gpu']]}: {row['rejected']:,} of {calls:,} calls "
                f"({format_ratio(row['rejected'] / calls)}) are larger than its pool of "
                f"{format_tokens(row['pool_tokens'])} tokens: rejected, and in no other figure"
            )
    return list(said.values())


def assumptions(timeline: Timeline) -> tuple[str, ...]:
    """Return what the replay takes for granted, in sentences."""
    lines = [
        "Prefill runs at the profile's middle share of peak, attention growing with the position; "
        f"decoding reads weights and KV at {MEMORY_SHARE:.0%} of the memory bandwidth, and each "
        f"step costs {1000 * STEP_S:g} ms beside (assumed).",
        "A prompt's chunks can be hit as soon as the engine takes it up; outputs take their room "
        "when their call ends, which is when another may be preempted.",
        "TTFT is from a call's arrival to its first token, latency to its last; hits are shares of "
        "the prompt tokens served.",
    ]
    if timeline.kind == "closed-loop":
        lines.append(
            "Each agent takes up the next session as it ends one; the gap from a call's end to "
            f"the session's next call is kept as tool time, up to {timeline.max_gap_s:g} s."
        )
    elif timeline.kind == "open-loop":
        lines.append(
            f"Sessions begin at random, {timeline.rate:g} a minute (seed {timeline.seed}); inside, "
            "the gap from a call's end to the session's next call is kept as tool time, up to "
            f"{timeline.max_gap_s:g} s."
        )
    else:
        lines.append(
            "Calls arrive as logged, but none before what it waits for has ended in the replay."
        )
    return tuple(lines)
