"""References for libCacheSim: one object access per chunk reference of a prompt.

A call's chunks are touched tail first, so that an LRU cache keeps heads longest, as servers do.
Ids count chunks from 1, every object has size 1 (a capacity is a number of chunks), and times are
seconds since the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import BinaryIO

    from agentkv_trace.trace.paths import Block
    from agentkv_trace.trace.store import Trace

RECORD_BYTES = 24
NEVER = -1
"""Next access of an object that is not accessed again."""


def write_oracle(trace: Trace, file: BinaryIO, *, block_chunks: int | None = None) -> None:
    """Write oracleGeneral: 24 packed little-endian bytes per reference.

    uint32 time, uint64 id, uint32 size, int64 next access: the number of the reference, counted
    from 1, that touches the object again, or -1. Written from the back, block by block, since the
    next access is only known from there: `file` must be seekable. Memory follows the number of
    distinct chunks and a block's references.
    """
    import numpy as np

    from agentkv_trace.trace.paths import BLOCK_CHUNKS, Paths

    record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    assert record.itemsize == RECORD_BYTES
    whole = Paths(trace)
    ids = _all_ids(whole)
    seconds = _seconds(trace)
    total = int(trace.array("prompt_chunks").sum(dtype=np.int64))
    following = np.full(whole.keys.size, NEVER, np.int64)
    end = total
    for block in whole.blocks(backwards=True, block_chunks=block_chunks or BLOCK_CHUNKS):
        numbers = _tail_first(block)
        start = end - numbers.size
        records = np.empty(numbers.size, record)
        records["time"] = _times(block, seconds)
        records["id"] = ids[numbers]
        records["size"] = 1
        records["next"] = _next_access(numbers, start + 1, following)
        file.seek(start * RECORD_BYTES)
        file.write(records.tobytes())
        end = start
    file.seek(total * RECORD_BYTES)


def write_csv(trace: Trace, file: BinaryIO) -> None:
    """Write csv with the columns time, id and size, one line per reference."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv

    from agentkv_trace.trace.paths import Paths

    whole = Paths(trace)
    ids = _all_ids(whole)
    seconds = _seconds(trace)
    schema = pa.schema([("time", pa.uint32()), ("id", pa.uint64()), ("size", pa.uint32())])
    # The writer would quote the names.
    file.write(b"time,id,size\n")
    options = csv.WriteOptions(include_header=False)
    with csv.CSVWriter(pa.PythonFile(file, "w"), schema, write_options=options) as writer:
        for block in whole.blocks():
            numbers = _tail_first(block)
            columns = [_times(block, seconds), ids[numbers], np.ones(numbers.size, np.uint32)]
            writer.write_table(pa.table(columns, schema=schema))


def _all_ids(whole: Any) -> Any:
    """Return the id of each chunk by its number: uint64[chunks], in order of first appearance."""
    import numpy as np

    # Numbers count chunks by first appearance already.
    return np.arange(1, whole.keys.size + 1, dtype=np.uint64)


def _seconds(trace: Trace) -> Any:
    import numpy as np

    starts = trace.array("t_start_us")
    since = (starts - starts[0]) // 1_000_000 if starts.size else starts
    return np.minimum(since, 2**32 - 1).astype(np.uint32)


def _times(block: Block, seconds: Any) -> Any:
    import numpy as np

    counts = np.diff(block.offsets)
    return np.repeat(seconds[block.first : block.first + counts.size], counts)


def _tail_first(block: Block) -> Any:
    """Return a block's chunks with those of each call reversed."""
    import numpy as np

    counts = np.diff(block.offsets)
    at = np.arange(block.chunks.size)
    return block.chunks[np.repeat(block.offsets[:-1] + block.offsets[1:] - 1, counts) - at]


def _next_access(numbers: Any, first: int, following: Any) -> Any:
    """Return the next access of each reference of a block and note the block's first accesses.

    `first` counts the block's first reference; `following` holds the first access of each chunk
    behind this block.
    """
    import numpy as np

    count = numbers.size
    order = np.argsort(numbers, kind="stable")
    chunk = numbers[order]
    after = np.empty(count, np.int64)
    again = chunk[1:] == chunk[:-1]
    after[:-1] = np.where(again, order[1:] + first, following[chunk[:-1]])
    after[-1:] = following[chunk[-1:]]
    result = np.empty(count, np.int64)
    result[order] = after
    earliest = np.concatenate([[True], ~again]) if count else np.empty(0, np.bool_)
    following[chunk[earliest]] = order[earliest] + first
    return result
