"""Sizes of images from their headers."""

from __future__ import annotations

import base64

import pytest

from agentkv_trace.ingest import images

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (100).to_bytes(4, "big") + (50).to_bytes(4, "big")
GIF = b"GIF89a" + (100).to_bytes(2, "little") + (50).to_bytes(2, "little")
FRAME = b"\xff\xc2\x00\x11\x08" + (50).to_bytes(2, "big") + (100).to_bytes(2, "big")
TABLES = b"\xff\xc4\x00\x04ab"
JPEG = b"\xff\xd8\xff\xe1\x00\x0c" + b"\xff\xc0" * 5 + TABLES + FRAME
WEBP = b"RIFF\0\0\0\0WEBP"
VP8X = WEBP + b"VP8X" + bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")
VP8L = WEBP + b"VP8L" + bytes(4) + b"/" + (99 | 49 << 14).to_bytes(4, "little") + bytes(9)
VP8 = WEBP + b"VP8 " + bytes(10) + (100).to_bytes(2, "little") + (50).to_bytes(2, "little")


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, VP8X, VP8L, VP8])
def test_width_and_height(data: bytes) -> None:
    assert images.size_of(data) == (100, 50)


@pytest.mark.parametrize(
    "data", [b"", b"BM", PNG[:20], GIF[:8], JPEG[:20], VP8X[:20], WEBP + b"????"]
)
def test_other_content_has_no_size(data: bytes) -> None:
    assert images.size_of(data + bytes(0)) is None


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_tokens_are_patches() -> None:
    assert images.tokens_of_base64(encoded(PNG)) == 4 * 2
    assert images.tokens_of_url("data:image/png;base64," + encoded(PNG)) == 4 * 2


def test_large_and_unreadable_images_take_the_most() -> None:
    wide = PNG[:16] + (90_000).to_bytes(4, "big") + (90_000).to_bytes(4, "big")
    assert images.tokens_of_base64(encoded(wide)) == images.MAX_TOKENS
    assert images.tokens_of_base64("not base64!") == images.MAX_TOKENS
    assert images.tokens_of_base64("\u00e9") == images.MAX_TOKENS
    assert images.tokens_of_base64("") == images.MAX_TOKENS


def test_only_the_start_of_an_image_is_decoded() -> None:
    assert images.tokens_of_base64(encoded(PNG + bytes(200_000)) + "\u00e9") == 4 * 2
