"""What was discovered on this machine."""

from __future__ import annotations


def summary() -> bool:
    """Print which agents' logs are here and the next command; False if there are none."""
    from agentkv_trace.ingest.discover import default_logs

    found = default_logs().logs
    for source, paths in found.items():
        size = sum(path.stat().st_size for path in paths) / 2**20
        print(f"{source.title}: {len(paths):,} logs, {size:,.1f} MiB")
    if found:
        print("Next: agentkv-trace ingest -o trace.parquet")
    return bool(found)
