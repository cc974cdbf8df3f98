from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

import naive
from agentkv_trace.notes import Notes
from agentkv_trace.trace.ids import trace_from_ids
from agentkv_trace.trace.interchange import libcachesim, mooncake, references
from agentkv_trace.trace.paths import Paths, paths, prompt_keys
from agentkv_trace.trace.store import Trace, read_trace, write_trace
from made import call as made_call
from made import node
from made import text as made_text

CHUNK = 4
IDS = st.lists(st.sampled_from([0, 1, 2, 2**64 - 1]), max_size=6)
# (session, start, scope, ids, tokens in a partial last chunk)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "b2"]),
        st.integers(0, 5),
        st.sampled_from([0, 0, 0, 7]),
        IDS,
        st.integers(0, CHUNK - 1),
    ),
    max_size=12,
)


def build(calls, chunk_tokens: int = CHUNK) -> Trace:
    return trace_from_ids(
        session=[call[0] for call in calls],
        t_start_us=np.array([call[1] for call in calls], np.int64),
        scope=np.array([call[2] for call in calls], np.uint64),
        ids=np.array([i for call in calls for i in call[3]], np.uint64),
        offsets=np.cumsum([0, *(len(call[3]) for call in calls)]),
        prompt_tokens=np.array([chunk_tokens * len(c[3]) + c[4] for c in calls], np.int64),
        output_tokens=np.arange(len(calls)),
        chunk_tokens=chunk_tokens,
    )


def in_order(calls):
    """The calls as the rows of their trace: by start, session, and order in the session."""
    return sorted(calls, key=lambda call: (call[1], call[0]))


def prefixes(calls):
    """Each call's chunks as whole prefixes, which is what a key stands for."""
    return [
        [(scope, tuple(ids[: depth + 1])) for depth in range(len(ids))]
        for _, _, scope, ids, _ in calls
    ]


def flat(blocks) -> list[list[int]]:
    return [
        block.chunks[start:end].tolist()
        for block in blocks
        for start, end in zip(block.offsets[:-1], block.offsets[1:], strict=True)
    ]


@given(CALLS)
def test_bases_equal_those_found_by_comparing_all_pairs(calls) -> None:
    trace = build(calls)
    base, base_chunks = naive.link(prefixes(in_order(calls)))
    assert trace.array("base").tolist() == base
    assert trace.array("base_chunks").tolist() == base_chunks


@given(CALLS)
def test_every_trace_made_of_ids_is_a_valid_file(calls) -> None:
    trace = build(calls)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        write_trace(trace, path)
        stored = read_trace(path)
        assert stored.table.equals(trace.table)
        assert stored.new_chunks()[1].tolist() == trace.new_chunks()[1].tolist()


@given(CALLS)
def test_folds_are_calls_that_do_not_resend_their_sessions_last_prompt(calls) -> None:
    last: dict[str, list] = {}
    kinds = []
    rows = in_order(calls)
    for (session, *_), path in zip(rows, prefixes(rows), strict=True):
        before = last.get(session, [])
        kinds.append("turn" if path[: len(before)] == before else "fold")
        last[session] = path
    assert build(calls).frame()["kind"].to_list() == kinds


@given(CALLS, st.integers(1, 9), st.booleans())
def test_rebuilt_prompts_have_equal_keys_exactly_for_equal_prefixes(
    calls, block_chunks: int, backwards: bool
) -> None:
    trace = build(calls)
    expected = prefixes(in_order(calls))
    keys = flat(prompt_keys(trace, block_chunks=block_chunks))
    assert [len(path) for path in keys] == [len(path) for path in expected]
    pairs = {
        (key, prefix)
        for path, row in zip(keys, expected, strict=True)
        for key, prefix in zip(path, row, strict=True)
    }
    assert len(pairs) == len({k for k, _ in pairs}) == len({p for _, p in pairs})
    whole = Paths(trace)
    blocks = list(whole.blocks(block_chunks=block_chunks, backwards=backwards))
    numbers = flat(reversed(blocks) if backwards else blocks)
    appearance = list(dict.fromkeys(prefix for row in expected for prefix in row))
    assert numbers == [[appearance.index(prefix) for prefix in row] for row in expected]
    assert [[int(whole.keys[n]) for n in path] for path in numbers] == keys


@given(CALLS, st.integers(1, 9))
def test_a_mooncake_trace_comes_back_with_the_same_tree(calls, block_chunks: int) -> None:
    trace = build(calls)
    file = io.BytesIO()
    mooncake.write(trace, file, block_chunks=block_chunks)
    lines = list(enumerate(file.getvalue().splitlines(), 1))
    if not calls:
        assert lines == []
        return
    notes = Notes(strict=True)
    again = mooncake.read([("trace.jsonl", lines)], notes)
    for column in ("base", "base_chunks", "prompt_chunks", "prompt_tokens", "output_tokens"):
        assert again.array(column).tolist() == trace.array(column).tolist()
    ids = [i for _, line in lines for i in json.loads(line)["hash_ids"]]
    assert list(dict.fromkeys(ids)) == list(range(len(set(ids))))


@given(CALLS, st.integers(1, 9))
def test_oracle_records_tell_the_next_access(calls, block_chunks: int) -> None:
    trace = build(calls)
    touched = [prefix for row in prefixes(in_order(calls)) for prefix in reversed(row)]
    expected = []
    for at, prefix in enumerate(touched):
        later = [n for n in range(at + 1, len(touched)) if touched[n] == prefix]
        expected.append(later[0] + 1 if later else -1)
    file = io.BytesIO()
    libcachesim.write_oracle(trace, file, block_chunks=block_chunks)
    records = np.frombuffer(file.getvalue(), "<u4, <u8, <u4, <i8")
    assert records["f3"].tolist() == expected
    ids = records["f1"].tolist()
    assert len({*zip(ids, touched, strict=True)}) == len({*ids}) == len({*touched})
    assert set(records["f2"].tolist()) <= {1}


@given(CALLS)
def test_csv_and_parquet_hold_the_same_references(calls) -> None:
    trace = build(calls)
    binary, csv, parquet = io.BytesIO(), io.BytesIO(), io.BytesIO()
    libcachesim.write_oracle(trace, binary)
    libcachesim.write_csv(trace, csv)
    references.write(trace, parquet)
    records = np.frombuffer(binary.getvalue(), "<u4, <u8, <u4, <i8")
    head, *lines = csv.getvalue().decode().splitlines()
    assert head == "time,id,size"
    assert lines == [f"{r[0]},{r[1]},{r[2]}" for r in records.tolist()]
    table = pq.read_table(io.BytesIO(parquet.getvalue()))
    expected = flat(prompt_keys(trace))
    assert table["key"].to_pylist() == [key for path in expected for key in path]
    assert table["call"].to_pylist() == [c for c, path in enumerate(expected) for _ in path]
    assert table["depth"].to_pylist() == [d for path in expected for d in range(len(path))]


@given(st.lists(st.tuples(IDS, IDS), max_size=8))
def test_outputs_are_in_paths_but_not_in_prompts(calls) -> None:
    from agentkv_trace.trace.build import TraceBuilder

    builder = TraceBuilder()
    for number, (prompt, output) in enumerate(calls):
        words = [i % 2**32 for i in prompt]
        data = b"".join(made_text(i % 2**32) for i in output)
        builder.add(made_call("a", node(words), number, output=data))
    trace = builder.finish({}, fixed_bytes_per_token=4.0)
    expected = prefixes([("", 0, 0, prompt + output, 0) for prompt, output in calls])
    keys = [path.tolist() for path in paths(trace)]
    assert [len(path) for path in keys] == [len(path) for path in expected]
    pairs = {
        (key, prefix)
        for path, row in zip(keys, expected, strict=True)
        for key, prefix in zip(path, row, strict=True)
    }
    assert len(pairs) == len({k for k, _ in pairs}) == len({p for _, p in pairs})
    prompts = [path[: len(prompt)] for path, (prompt, _) in zip(keys, calls, strict=True)]
    assert flat(prompt_keys(trace)) == prompts
