"""What lost tokens cost on a GPU: the prefill that a kept prefix would have spared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv_trace.advise.economics import prefill_s
from agentkv_trace.advise.machine import machine
from agentkv_trace.profiles.connectors import find_connector
from agentkv_trace.profiles.flops import prefill_cost
from agentkv_trace.tiers.backends import find_backend

if TYPE_CHECKING:
    from agentkv_trace.profiles.load import Gpu, Model
    from agentkv_trace.tiers.capacity import Deployment


@dataclass(frozen=True, slots=True)
class Cost:
    """A model on a GPU, as far as prefill time goes."""

    gpu: Gpu
    model: Model
    deployment: Deployment

    def seconds(self, start: int, end: int) -> float:
        """Return seconds to compute tokens `start` to `end` of a prompt, at the mid efficiency."""
        # Copies play no part in it, so any connector and KV size will do.
        connector = find_connector(find_backend("ideal").connector)
        where = machine(self.gpu, self.deployment, 0, connector)
        efficiency = self.gpu.prefill_mfu[1]
        return float(prefill_s(prefill_cost(self.model), start, end, where, efficiency))
