"""How many tokens an image in a prompt takes, from the size in its file header."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATCH = 32
"""Pixels along one side of the square that becomes one token."""
MAX_TOKENS = 1536
"""Larger images are scaled down by the model to this many patches."""

_HEADER = 1 << 16
"""Bytes of an image searched for its size: a JPEG may have long metadata before it."""


def is_data_url(value: object) -> bool:
    """Tell whether a value is an image held inside the log as a `data:` URL."""
    return isinstance(value, str) and value.startswith("data:")


def tokens_of_url(url: str) -> int:
    """Return the tokens of an image given as a base64 `data:` URL."""
    return tokens_of_base64(url[url.find(",") + 1 :])


def tokens_of_base64(text: str) -> int:
    """Return the tokens of a base64 image; MAX_TOKENS where its size cannot be read."""
    part = text[: _HEADER * 4 // 3 // 4 * 4]
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        return MAX_TOKENS
    size = size_of(data)
    if size is None:
        return MAX_TOKENS
    patches = -(-size[0] // PATCH) * -(-size[1] // PATCH)
    return max(1, min(patches, MAX_TOKENS))


def size_of(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels of the start of a PNG, JPEG, GIF or WebP file, or None."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp(data)
    if data.startswith(b"\xff\xd8"):
        return next(_jpeg(data), None)
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return (
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
        )
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = data[26:28], data[28:30]
        return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(height, "little") & 0x3FFF
    return None


def _jpeg(data: bytes) -> Iterator[tuple[int, int]]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        # Frame headers are C0 to CF, but for the tables C4, C8 and CC.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            yield (
                int.from_bytes(data[at + 7 : at + 9], "big"),
                int.from_bytes(data[at + 5 : at + 7], "big"),
            )
            return
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
