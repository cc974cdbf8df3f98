"""Every chunk reference of every prompt as a row of Parquet, for other tools' queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

    from agentkv_trace.trace.store import Trace


def write(trace: Trace, file: BinaryIO) -> None:
    """Write the columns `call` (int32), `depth` (int32, 0 at the head) and `key` (uint64).

    Rows are in order of calls, heads first. Streams: one row group per block of references.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agentkv_trace.trace.paths import prompt_keys

    schema = pa.schema(
        [
            pa.field("call", pa.int32(), nullable=False),
            pa.field("depth", pa.int32(), nullable=False),
            pa.field("key", pa.uint64(), nullable=False),
        ]
    )
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for block in prompt_keys(trace):
            counts = np.diff(block.offsets)
            calls = np.arange(block.first, block.first + counts.size, dtype=np.int32)
            depth = np.arange(block.chunks.size) - np.repeat(block.offsets[:-1], counts)
            columns = [np.repeat(calls, counts), depth.astype(np.int32), block.chunks]
            writer.write_table(pa.table(columns, schema=schema))
