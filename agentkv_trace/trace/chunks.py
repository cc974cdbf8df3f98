"""Chunk keys: a chain of seeded xxh3-64 hashes over equal pieces of a prompt's bytes.

Each key is the hash of its chunk seeded with the key before it, so equal keys mean equal
whole prefixes.
"""

from __future__ import annotations

from hashlib import blake2b

from xxhash import xxh3_64_intdigest

CHUNK_TOKENS = 16
"""Tokens per chunk of a trace made from logs."""

SEED = 0
"""Seed of the first chunk of every path."""


def extend(key: int, tail: bytes, data: bytes, chunk_bytes: int) -> tuple[list[int], bytes]:
    """Continue a chain after `key` and `tail` with `data`.

    `key` is the key of the last full chunk (SEED before the first), `tail` the bytes behind
    it (fewer than `chunk_bytes`). Returns the keys of the chunks completed and the new tail;
    the last key returned, if any, is the chain's new key.
    """
    stream = tail + data
    full = len(stream) - len(stream) % chunk_bytes
    keys = []
    for start in range(0, full, chunk_bytes):
        key = xxh3_64_intdigest(stream[start : start + chunk_bytes], seed=key)
        keys.append(key)
    return keys, stream[full:]


def seed_of(identity: bytes) -> int:
    """Return the seed of the first chunk behind a head that takes no room; SEED of none."""
    return xxh3_64_intdigest(identity) if identity else SEED


def filler(identity: bytes, size: int) -> bytes:
    """Return `size` bytes that stand for content known only by its identity and length."""
    digest = blake2b(identity, digest_size=16).digest()
    return (digest * (size // len(digest) + 1))[:size]


def salt_check(salt: bytes) -> str:
    """Return what tells two salts apart and nothing else of them."""
    key = blake2b(salt, digest_size=32).digest()
    return blake2b(b"agentkv-trace salt", key=key, digest_size=8).hexdigest()


def keyed(keys: list[int], salt: bytes) -> list[int]:
    """Return keys that nobody without the salt can compute from guessed text.

    xxh3 alone is not enough: it is not built to hide its input.
    """
    key = blake2b(salt, digest_size=32).digest()
    return [
        int.from_bytes(blake2b(k.to_bytes(8, "little"), key=key, digest_size=8).digest(), "little")
        for k in keys
    ]
