"""From how many agents on the tiers of each GPU thrash, by replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.replay.setting import setting_for
from agentkv_trace.report.model import OnsetFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.load import Model
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.report.case import Case
    from agentkv_trace.report.workload import Workload


def find_onsets(
    workload: Workload, judged: Sequence[tuple[Case, int | None]], model: Model
) -> dict[str, tuple[OnsetFacts, ...]]:
    """Return by GPU the onsets of it alone and with the judged tier, in bytes over all ranks."""
    # Without a host link no tier is judged.
    places = [
        (case, size)
        for case, tier in judged
        for size in dict.fromkeys((0, tier or 0 if case.bands else 0))
    ]
    settings = [_setting(case, size, model) for case, size in places]
    found: dict[str, list[OnsetFacts]] = {}
    for (case, size), onset in zip(places, workload.onsets(settings), strict=True):
        if onset is not None:
            facts = OnsetFacts(
                host_bytes=size,
                agents=onset.agents,
                max_agents=onset.max_agents,
                factor=onset.factor,
                calls=onset.calls,
                rejected_calls=onset.rejected,
                compulsory_tokens=onset.compulsory_tokens,
                points=onset.points,
            )
            found.setdefault(case.gpu.id, []).append(facts)
    return {gpu: tuple(facts) for gpu, facts in found.items()}


def _setting(case: Case, host_bytes: int, model: Model) -> Setting:
    options = case.options
    return setting_for(
        model,
        case.gpu,
        options,
        backend=options.backend,
        connector=options.connector,
        host_bytes=host_bytes,
        chunk_tokens=case.workload.curve.chunk_tokens,
        gpus_per_link=options.gpus_per_link,
        costs=case.bands.mid() if case.bands else None,
    )
