"""Floating-point work of prefill: what computing a stretch of a prompt costs.

The output head (one row per prefill) and the recurrence of linear layers are left out: both are
small beside the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv_trace.profiles.load import Model


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """FLOPs of prefill, by where they come from.

    `linear` per token; the others per token and position it attends to: `full` of layers that
    attend to everything before, `window` and `chunk` of those bound to the last (or the aligned)
    `window_tokens`, `selected` of sparse layers that attend to at most `topk` positions. The
    index of sparse layers looks at every position and is part of `full`.
    """

    linear: int
    full: int
    window: int = 0
    chunk: int = 0
    window_tokens: int = 0
    selected: int = 0
    topk: int = 0

    def linear_flops(self, start: Any, end: Any) -> Any:
        """Return FLOPs of the matrices for positions `start` to `end` (numbers or arrays)."""
        return self.linear * (end - start)

    def attention_flops(self, start: Any, end: Any) -> Any:
        """Return FLOPs of attention for positions `start` to `end` (numbers or arrays).

        A token at position p attends to p positions before it, so the sum over a stretch is
        (end^2 - start^2) / 2 where attention is full: later chunks cost more.
        """
        return self._attention_to(end * 1.0) - self._attention_to(start * 1.0)

    def flops(self, start: Any, end: Any) -> Any:
        """Return all FLOPs for positions `start` to `end` (numbers or arrays)."""
        return self.linear_flops(start, end) + self.attention_flops(start, end)

    def _attention_to(self, end: Any) -> Any:
        total = self.full * end * end / 2
        if self.window:
            total = total + self.window * _bound(end, self.window_tokens)
        if self.chunk:
            size = self.window_tokens
            whole, rest = end // size, end % size
            total = total + self.chunk * (whole * size * size + rest * rest) / 2
        if self.selected:
            total = total + self.selected * _bound(end, self.topk)
        return total


def prefill_cost(model: Model) -> PrefillCost:
    """Return the FLOPs of a model's prefill from its shape.

    Linear: 2 per parameter a token uses, embeddings left out. Attention: 2 * heads * (key width
    + value width) per layer and position.
    """
    linear = 2 * model.active_body_params
    if model.mla is None:
        per_layer = 2 * model.q_heads * (model.head_dim + model.v_dim)
        return PrefillCost(
            linear,
            full=per_layer * model.kinds.full,
            window=per_layer * model.kinds.swa,
            chunk=per_layer * model.kinds.chunk,
            window_tokens=model.window or 0,
        )
    mla = model.mla
    if model.index is None:
        per_layer = 2 * model.q_heads * (mla.nope_dim + mla.rope_dim + mla.v_dim)
        return PrefillCost(linear, full=per_layer * model.layers)
    # Sparse layers attend in the latent space, to what the index selects.
    latent = 2 * model.q_heads * (2 * mla.kv_rank + mla.rope_dim)
    index = 2 * model.index.heads * model.index.dim
    return PrefillCost(
        linear,
        full=index * model.layers,
        selected=latent * model.layers,
        topk=model.index.topk,
    )


def _bound(end: Any, most: int) -> Any:
    """Return the sum over positions up to `end` of min(position, most)."""
    inside = (end + most - abs(end - most)) / 2
    return inside * inside / 2 + most * (end - inside)
