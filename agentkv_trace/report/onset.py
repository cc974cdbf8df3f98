"""From how many agents on the tiers of each GPU thrash, by replay."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from agentkv_trace.replay.setting import setting_for
from agentkv_trace.report.model import OnsetFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.load import Model
    from agentkv_trace.report.case import Case


def onsets(places: Sequence[tuple[Case, int]], model: Model) -> list[OnsetFacts | None]:
    """Return the onset of each GPU with a size of host tier (bytes over all ranks), in order."""

    def one(place: tuple[Case, int]) -> OnsetFacts | None:
        case, size = place
        options = case.options
        setting = setting_for(
            model,
            case.gpu,
            options,
            backend=options.backend,
            connector=options.connector,
            host_bytes=size,
            chunk_tokens=case.workload.curve.chunk_tokens,
            gpus_per_link=options.gpus_per_link,
            costs=case.bands.mid() if case.bands else None,
        )
        found = case.workload.onset(setting)
        if found is None:
            return None
        return OnsetFacts(
            host_bytes=size,
            agents=found.agents,
            max_agents=found.max_agents,
            factor=found.factor,
            calls=found.calls,
            compulsory_tokens=found.compulsory_tokens,
            points=found.points,
        )

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(one, places))
