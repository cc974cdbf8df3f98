"""Tokenizers that give exact ids: o200k, and any Hugging Face `tokenizer.json`.

A prompt's text becomes its token ids, four bytes each, so that chunks are cut the same way as
from bytes. Without a tokenizer, text is cut by bytes at a fitted rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BYTES = "bytes"
O200K = "o200k"
ID_BYTES = 4

_PIECE = 1 << 16
"""Text is encoded in pieces of about so many characters: encoders bound their input."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """`encode` gives the token ids of a text; `meta` is what the trace says of the vocabulary."""

    encode: Callable[[str], Sequence[int]]
    meta: dict[str, Any]

    def ids(self, data: bytes) -> bytes:
        """Return the token ids of some UTF-8 text, ID_BYTES little-endian bytes each."""
        ids = [self.encode(piece) for piece in _pieces(data.decode(errors="replace"))]
        return np.concatenate([np.asarray(each, "<u4") for each in ids]).tobytes() if ids else b""


def load(name: str) -> Tokenizer | None:
    """Return a tokenizer: None for `bytes`, `o200k`, or the path of a `tokenizer.json`.

    Raises InputError where its package is not installed or the file cannot be used.
    """
    if name == BYTES:
        return None
    if name == O200K:
        return Tokenizer(_o200k(), {"name": O200K})
    path = Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"--tokenizer {name}: {error.strerror}; use bytes, o200k or a tokenizer.json"
        ) from None
    meta = {"name": "tokenizer.json", "sha256": sha256(data).hexdigest()}
    return Tokenizer(_hugging_face(name, data), meta)


def _o200k() -> Callable[[str], Sequence[int]]:
    try:
        import bpe_openai
    except ImportError:
        raise InputError(
            "--tokenizer o200k: needs an extra: pip install 'agentkv-trace[o200k]'"
        ) from None
    encode: Callable[[str], Sequence[int]] = bpe_openai.get_encoding("o200k_base").encode_ordinary
    return encode


def _hugging_face(name: str, data: bytes) -> Callable[[str], Sequence[int]]:
    try:
        import tokenizers
    except ImportError:
        raise InputError(
            f"--tokenizer {name}: needs an extra: pip install 'agentkv-trace[hf]'"
        ) from None
    try:
        model = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the package raises nothing more precise
        reason = str(error).splitlines()[0]
        raise InputError(f"--tokenizer {name}: not a tokenizer.json ({reason})") from None

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = model.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def _pieces(text: str) -> Iterator[str]:
    """Cut a long text behind a line feed or space, where tokens rarely reach across."""
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        cut = max(text.rfind("\n", start, end), text.rfind(" ", start, end))
        end = cut if cut > start else end
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]
