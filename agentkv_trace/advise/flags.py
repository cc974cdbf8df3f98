"""The exact options to type for a host tier, per rank and in total as each backend counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.tiers.backends import Backend

GIB = 2**30
_GB = 10**9


def flags(backend: Backend, total_bytes: int, ranks: int, dp: int = 1) -> tuple[str, ...]:
    """Return what to type or set for a host tier of `total_bytes` over all ranks.

    ranks: GPUs of all replicas; each of the `dp` replicas is an engine of its own and gets its
    part. Empty for the ideal tiers, which nobody runs.
    """
    per_rank = total_bytes // ranks
    replica = total_bytes // dp
    if backend.replay == "ideal":
        return ()
    if backend.replay == "offload":
        return (f"--kv-offloading-size {_number(replica / GIB)} --kv-offloading-backend native",)
    if backend.replay == "eager":
        size = _number(replica / GIB)
        return (
            "VLLM_USE_SIMPLE_KV_OFFLOAD=1",
            f"--kv-offloading-size {size} --kv-offloading-backend native",
        )
    if backend.replay == "lazy":
        return (
            _kv_transfer(
                "SimpleCPUOffloadConnector", {"cpu_bytes_to_use": replica, "lazy_offload": True}
            ),
        )
    if backend.replay == "in_process":
        return (
            "LMCACHE_LOCAL_CPU=True",
            f"LMCACHE_MAX_LOCAL_CPU_SIZE={_number(per_rank / GIB)}",
            "LMCACHE_CHUNK_SIZE=256",
            _kv_transfer("LMCacheConnectorV1"),
        )
    if backend.replay == "server":
        return (
            f"lmcache server --l1-size-gb {_number(replica / GIB)}",
            # vLLM wants a size to switch the tier on, and then ignores it.
            f"--kv-offloading-size {_number(replica / GIB)} --kv-offloading-backend lmcache",
        )
    return (
        f"--enable-hierarchical-cache --hicache-size {-(-per_rank // _GB)} "
        f"--hicache-write-policy {backend.write_policy}",
    )


def counted(backend: Backend) -> str:
    """Return in which unit the backend's own option counts."""
    return {
        "offload": "GiB over all ranks of an engine",
        "eager": "GiB over all ranks of an engine",
        "lazy": "bytes over all ranks of an engine",
        "in_process": "GiB per rank",
        "server": "GiB of the server",
        "hicache": "GB (10^9 bytes) per rank, rounded up",
    }.get(backend.replay, "")


def _kv_transfer(connector: str, extra: dict[str, object] | None = None) -> str:
    value: dict[str, object] = {"kv_connector": connector, "kv_role": "kv_both"}
    if extra:
        value["kv_connector_extra_config"] = extra
    return f"--kv-transfer-config '{json.dumps(value)}'"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
