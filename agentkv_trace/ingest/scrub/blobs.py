"""Base64: images keep format and size, other content its length; what it shows or says is gone."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Protocol

from agentkv_trace.ingest.images import size_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Substitution(Protocol):
    """What replaces texts, and content that is no text."""

    def text(self, data: bytes) -> bytes:
        """Return another text of the same length."""

    def blob(self, data: bytes, size: int) -> bytes:
        """Return digits that tell one content from another."""


_BASE64 = re.compile(rb"[0-9A-Za-z+/_-]*={0,2}")
_HEAD = 1 << 16


def scrub_data_url(url: bytes, words: Substitution) -> bytes:
    """Return a `data:` URL in base64 with its content replaced; `data:` alone stays."""
    head, comma, data = url.partition(b",")
    return head + comma + scrub_base64(data, words)


def scrub_base64(data: bytes, words: Substitution) -> bytes:
    """Return base64 of the same length: an image of the same size, a scrubbed text, or digits."""
    if not _BASE64.fullmatch(data):
        return words.text(data)
    content = data.rstrip(b"=")
    start = base64.b64encode(_image_head(_decoded(content[:_HEAD])))[: len(content)]
    if not start and (words_in := _text_in(data)) is not None:
        return base64.b64encode(words.text(words_in))
    rest = words.blob(data, len(content) - len(start))
    return start + rest + data[len(content) :]


def _decoded(text: bytes) -> bytes:
    text = text[: len(text) // 4 * 4]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text_in(data: bytes) -> bytes | None:
    """Return the text that base64 stands for, None where it is none or would not be as long."""
    found = _decoded(data)
    try:
        found.decode()
    except UnicodeDecodeError:
        return None
    return found if found and b"\0" not in found and len(data) % 4 == 0 else None


def _image_head(data: bytes) -> bytes:
    """Return the first bytes of an image of the same format and size and without metadata.

    A multiple of 3 bytes; none where `data` is no image that we know.
    """
    size = size_of(data)
    if size is None:
        return b""
    make = next((make for start, make in _HEADS.items() if data.startswith(start)), None)
    return make(*size) if make is not None else b""


def _png(width: int, height: int) -> bytes:
    sizes = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + sizes


def _jpeg(width: int, height: int) -> bytes:
    return (
        b"\xff\xd8\xff\xc0\0\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\3"
    )


def _gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\0\0"


def _webp(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + sizes


_HEADS: dict[bytes, Callable[[int, int], bytes]] = {
    b"\x89PNG": _png,
    b"\xff\xd8": _jpeg,
    b"GIF8": _gif,
    b"RIFF": _webp,
}
