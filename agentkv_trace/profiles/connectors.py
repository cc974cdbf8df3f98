"""What moving KV costs beside the link: connectors, and copy rates by block size."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import log2
from typing import Literal

import msgspec

from agentkv_trace.profiles.names import resolve

Three = tuple[float, float, float]


class Connector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One generation of a connector; the fields are explained in `connectors.toml`."""

    name: str
    copy: Literal["dma", "kernel", "single"]
    block: Literal["chunk", "layer"]
    store_sync_ms: Three
    restore_ms: Three
    overlap: float
    write_exposed: Three
    confidence: Literal["measured", "assumed"]
    note: str
    sources: tuple[str, ...]
    id: str = ""


class CopyRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured rates of copies by block size, at the worst and at the best of the measurements."""

    name: str
    link_gbps: float
    knee_bytes: int
    block_bytes: tuple[int, ...]
    slow_gbps: tuple[float, ...]
    fast_gbps: tuple[float, ...]
    sources: tuple[str, ...]

    def gbps(self, block_bytes: float, link_gbps: float) -> Three:
        """Return GB/s for blocks of a size over a link of `link_gbps`: low, mid, high.

        Below the knee a copy takes its time whatever the link, so the rate is the table's, at
        most the link's; from the knee on it is the table's share of the link it was measured on.
        Between measured sizes rates are interpolated over the logarithm of the size, below the
        smallest they are proportional to it.
        """
        slow = self._at(block_bytes, self.slow_gbps)
        fast = self._at(block_bytes, self.fast_gbps)
        if block_bytes >= self.knee_bytes:
            # A slower link must not make larger blocks slower than those below the knee.
            slow, fast = (
                max(link_gbps * min(1.0, rate / self.link_gbps), self._below_knee(rates))
                for rate, rates in ((slow, self.slow_gbps), (fast, self.fast_gbps))
            )
        slow, fast = min(slow, link_gbps), min(fast, link_gbps)
        return slow, (slow + fast) / 2, fast

    def _below_knee(self, rates: tuple[float, ...]) -> float:
        below = [r for b, r in zip(self.block_bytes, rates, strict=True) if b < self.knee_bytes]
        return max(below, default=0.0)

    def _at(self, size: float, rates: tuple[float, ...]) -> float:
        sizes = self.block_bytes
        if self.knee_bytes and size < sizes[0]:
            return rates[0] * size / sizes[0]
        for (left, low), (right, high) in zip(
            zip(sizes, rates, strict=True),
            list(zip(sizes, rates, strict=True))[1:],
            strict=False,
        ):
            if left <= size < right:
                # The jump at the knee is a jump: sizes below it copy as the one before.
                if right == self.knee_bytes:
                    return low
                return low + (high - low) * log2(size / left) / log2(right / left)
        return rates[-1]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    connectors: dict[str, Connector]
    copies: dict[str, CopyRates]


def connectors() -> dict[str, Connector]:
    """Return the connectors by id."""
    return {
        key: msgspec.structs.replace(value, id=key) for key, value in _file().connectors.items()
    }


def find_connector(name: str) -> Connector:
    """Return the connector that `name` means. Raises InputError where it means none or several."""
    table = connectors()
    return table[resolve(name, {key: (value.name,) for key, value in table.items()}, "connector")]


def copy_rates(name: str) -> CopyRates:
    """Return the table of copy rates of that name, as a GPU's link names it."""
    return _file().copies[name]


@cache
def _file() -> _File:
    raw = files("agentkv_trace.profiles").joinpath("connectors.toml").read_bytes()
    return msgspec.toml.decode(raw, type=_File)
