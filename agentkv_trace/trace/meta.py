"""The metadata of a trace file (key `agentkv_trace`, JSON)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from agentkv_trace.errors import InputError

SCHEMA = "agentkv-trace/trace/1"
MAX_CHUNK_TOKENS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TraceMeta:
    """How the chunks of a trace were made, and what its sources held.

    `tokenizer` has `name` and, for `bytes`, `bytes_per_chunk`; `sources` maps an ingester to
    its counts; `salt_check` tells whether two traces have the same salt. Nothing here is a path
    or text of a prompt.
    """

    chunk_tokens: int
    tokenizer: dict[str, Any]
    salt_check: str | None = None
    sources: dict[str, Any] = field(default_factory=dict)

    @property
    def salted(self) -> bool:
        """Whether keys tell nothing to those who do not have the salt."""
        return self.salt_check is not None

    def to_json(self) -> bytes:
        """Return the JSON that is stored in the file."""
        return json.dumps(
            {
                "schema": SCHEMA,
                "chunk_tokens": self.chunk_tokens,
                "tokenizer": self.tokenizer,
                "salted": self.salted,
                "salt_check": self.salt_check,
                "sources": self.sources,
            },
            sort_keys=True,
        ).encode()

    @staticmethod
    def from_json(data: bytes | None, where: str) -> TraceMeta:
        """Read the stored JSON. Raises InputError if it is not a trace we can read."""
        if data is None:
            raise InputError(
                f"{where}: not a trace of agentkv-trace; make one with "
                "`agentkv-trace ingest LOGS -o trace.parquet`"
            )
        try:
            stored = json.loads(data)
            kind, _, major = stored["schema"].rpartition("/")
            if kind != SCHEMA.rpartition("/")[0]:
                raise ValueError(stored["schema"])
            if int(major) > int(SCHEMA.rpartition("/")[2]):
                raise InputError(
                    f"{where}: written by a newer agentkv-trace (schema {stored['schema']}); "
                    "upgrade agentkv-trace to read it"
                )
            meta = TraceMeta(
                chunk_tokens=int(stored["chunk_tokens"]),
                tokenizer=dict(stored["tokenizer"]),
                salt_check=stored.get("salt_check"),
                sources=dict(stored["sources"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: damaged trace metadata ({error}); ingest again") from None
        if not 1 <= meta.chunk_tokens <= MAX_CHUNK_TOKENS:
            raise InputError(
                f"{where}: chunk_tokens must be 1 to {MAX_CHUNK_TOKENS:,}; ingest again"
            )
        return meta
