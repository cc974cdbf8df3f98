"""Parts of a model's shape, as `models.toml` states them."""

from __future__ import annotations

import msgspec


class LayerKinds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many layers attend to everything, to a window, to an aligned chunk, recur, or neither."""

    full: int = 0
    swa: int = 0
    chunk: int = 0
    linear: int = 0
    none: int = 0


class Moe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Experts of a mixture-of-experts layer; widths in elements."""

    experts: int
    active: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0


class Mla(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Multi-head latent attention: one compressed row per token and layer, for all heads."""

    q_rank: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    v_dim: int


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The indexer of sparse attention (DSA)."""

    heads: int
    dim: int
    topk: int

    @property
    def key_bytes(self) -> int:
        """Return bytes of the index key per token and layer: FP8 elements and one FP32 scale."""
        return self.dim + 4


class Linear(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Linear-attention (recurrent) layers."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def key_width(self) -> int:
        """Return the elements of all keys."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """Return the elements of all values."""
        return self.value_heads * self.value_dim
