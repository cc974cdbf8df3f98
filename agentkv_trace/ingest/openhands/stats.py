"""Usage, latency and time of each response, from the metrics that OpenHands keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import Record, table, text, whole
from agentkv_trace.ingest.requests.times import micros
from agentkv_trace.ingest.requests.usage import Usage, usage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_TASKS = "task:"
"""How the names of metrics begin that a sub-agent keeps itself."""


@dataclass(slots=True)
class Stats:
    """What metrics tell, by response id."""

    usage: dict[str, Usage] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    latency_us: dict[str, int] = field(default_factory=dict)
    end_us: dict[str, int] = field(default_factory=dict)
    """When the cost of a response was noted, which is as it ended."""
    costs_us: list[int] = field(default_factory=list)

    def add(self, metrics: Record) -> None:
        """Take one list of metrics. The three lists in it may differ in length."""
        for used in _records(metrics.get("token_usages")):
            name, usage = text(used.get("response_id")), usage_of(used)
            if name is not None and usage is not None:
                self.usage[name] = usage
                if (
                    model := text(used.get("model")) or text(metrics.get("model_name"))
                ) is not None:
                    self.models[name] = model
        names = []
        for waited in _records(metrics.get("response_latencies")):
            name, seconds = text(waited.get("response_id")), waited.get("latency")
            names.append(name)
            if name is not None and isinstance(seconds, int | float) and seconds >= 0:
                self.latency_us[name] = round(seconds * 1e6)
        ends = [micros(cost.get("timestamp")) for cost in _records(metrics.get("costs"))]
        self.costs_us += [end for end in ends if end is not None]
        if len(ends) == len(names):
            # A response without a cost has no stamp; with one for each they are in one order.
            for name, end in zip(names, ends, strict=True):
                if name is not None and end is not None:
                    self.end_us[name] = end


def stats_of(usage_to_metrics: object) -> Stats:
    """Return what a conversation's metrics tell of its own calls, its sub-agents' left out."""
    found = Stats()
    for name, metrics in table(usage_to_metrics).items():
        if not name.startswith(OF_TASKS):
            found.add(table(metrics))
    return found


class Totals:
    """Usage of each call from totals that only grow, as remote runs and old events have them."""

    def __init__(self) -> None:
        self._now = self._before = (0, 0, 0, 0)

    def see(self, *totals: object) -> None:
        """Take a snapshot: totals of each kind of call, to be summed."""
        counts = [
            [whole(table(total).get(name)) or 0 for name in _TOTALS]
            for total in totals
            if table(total)
        ]
        if counts:
            prompt, output, read, written = (sum(column) for column in zip(*counts, strict=True))
            self._now = (prompt, output, read, written)

    def take(self) -> Usage | None:
        """Return what was used since the last time; None where nothing was or totals shrank."""
        steps = [now - before for now, before in zip(self._now, self._before, strict=True)]
        self._before = self._now
        if min(steps) < 0:
            return None
        return usage_of(dict(zip(_TOTALS, steps, strict=True)))


_TOTALS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")


def totals_in(usage_to_metrics: object) -> list[object]:
    """Return the running totals of a conversation's own calls."""
    metrics = table(usage_to_metrics).items()
    return [
        table(each).get("accumulated_token_usage")
        for name, each in metrics
        if not name.startswith(OF_TASKS)
    ]


def _records(value: object) -> Iterator[Record]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
