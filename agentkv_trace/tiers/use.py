"""What calls get from cache tiers: the results that all backends share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HostUse:
    """A host tier at k sizes, in chunks: int32[k, calls] each.

    hits: the leading chunks found. written: stored. evicted: left the tier during the call and
    were hit by no lookup since they were written.
    """

    hits: NDArray[np.int32]
    written: NDArray[np.int32]
    evicted: NDArray[np.int32]

    @classmethod
    def of(cls, out: NDArray[np.int32]) -> HostUse:
        """Return the use from the rows hits, written, evicted: int32[k, 3, calls]."""
        return cls(*(np.ascontiguousarray(out[:, row]) for row in range(3)))


@dataclass(frozen=True, slots=True)
class TierUse:
    """What each call gets from a GPU pool and one host tier, in tokens: int64[calls] each.

    prompt = gpu + restored + computed. `written` counts what goes to the host tier, `evicted`
    what leaves it during the call without a lookup having met it there since it was written,
    whether or not the GPU held it as well. `host_tokens` is the tier's size; 0 is none.
    """

    prompt: NDArray[np.int64]
    gpu: NDArray[np.int64]
    restored: NDArray[np.int64]
    written: NDArray[np.int64]
    evicted: NDArray[np.int64]
    host_tokens: int

    @property
    def computed(self) -> NDArray[np.int64]:
        """Return the prompt tokens that are computed, int64[calls]."""
        return self.prompt - self.gpu - self.restored
