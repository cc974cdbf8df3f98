"""Public traces, counted again here by plain dictionaries."""

from __future__ import annotations

import gzip
import io
import json
from typing import TYPE_CHECKING

import numpy as np

import naive
from agentkv_trace.notes import Notes
from agentkv_trace.trace.ids import trace_from_ids
from agentkv_trace.trace.interchange import libcachesim, mooncake, weka
from agentkv_trace.trace.interchange.registry import recognise
from agentkv_trace.trace.paths import prompt_keys

if TYPE_CHECKING:
    from pathlib import Path

LISTS = ("agents_kvct", "edge_repeats", "mooncake_conv_1500", "synthetic_agents")
WEKA_IN_GOLDEN = ("0002", "0007", "0012", "0016", "0019", "0021")


def source(path: Path):
    return path.name, list(enumerate(path.read_bytes().splitlines(), 1))


def golden(shared: Path, name: str) -> list[dict]:
    with gzip.open(shared / "golden" / f"{name}.requests.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


def keys_of(trace) -> list[list[int]]:
    return [
        block.chunks[start:end].tolist()
        for block in prompt_keys(trace)
        for start, end in zip(block.offsets[:-1], block.offsets[1:], strict=True)
    ]


def assert_same_chunks(keys: list[list[int]], ids: list[list[int]]) -> None:
    """Keys must equal exactly where ids do."""
    assert [len(path) for path in keys] == [len(path) for path in ids]
    pairs = {
        pair for one, other in zip(keys, ids, strict=True) for pair in zip(one, other, strict=True)
    }
    assert len(pairs) == len({key for key, _ in pairs}) == len({i for _, i in pairs})


def test_the_mooncake_conversation_trace(shared: Path) -> None:
    path = shared / "traces" / "mooncake_conversation.jsonl"
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    ids = [row["hash_ids"][: row["input_length"] // 512] for row in rows]
    seen: set[int] = set()
    longest = []
    for chunks in ids:
        fresh = next((n for n, chunk in enumerate(chunks) if chunk not in seen), len(chunks))
        longest.append(fresh)
        seen.update(chunks)
    notes = Notes(strict=True)
    found = recognise(path.read_bytes()[:4096])
    assert found is not None
    trace = found.reader.read([source(path)], notes)
    assert (found.name, trace.meta.chunk_tokens, len(trace)) == ("mooncake", 512, len(rows))
    assert trace.array("prompt_chunks").tolist() == [len(chunks) for chunks in ids]
    assert trace.array("base_chunks").tolist() == longest
    assert trace.new_chunks()[1].size == len(seen) == 170_899
    assert trace.array("prompt_chunks").sum() == sum(map(len, ids)) == 276_491
    assert trace.array("prompt_tokens").tolist() == [row["input_length"] for row in rows]
    assert_same_chunks(keys_of(trace), ids)

    file = io.BytesIO()
    mooncake.write(trace, file)
    written = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [{**row, "hash_ids": None} for row in written] == [
        {**row, "hash_ids": None} for row in rows
    ]
    assert [len(row["hash_ids"]) for row in written] == [len(row["hash_ids"]) for row in rows]
    records = io.BytesIO()
    libcachesim.write_oracle(trace, records)
    following = np.frombuffer(records.getvalue(), "<u4, <u8, <u4, <i8")["f3"]
    assert (following == -1).sum() == len(seen)


def test_golden_lists_have_the_bases_of_a_comparison_of_all_pairs(shared: Path) -> None:
    for name in LISTS:
        rows = golden(shared, name)
        size = rows[0]["block_tokens"]
        trace = trace_from_ids(
            session=[f"{row['i']:05d}" for row in rows],
            t_start_us=[1000 * row["i"] for row in rows],
            prompt_tokens=[row["prompt_tokens"] for row in rows],
            output_tokens=[row["output_tokens"] for row in rows],
            ids=np.array([i for row in rows for i in row["ids"]], np.uint64),
            offsets=np.cumsum([0, *(len(row["ids"]) for row in rows)]),
            chunk_tokens=size,
        )
        paths = [row["ids"] for row in rows]
        assert_same_chunks(keys_of(trace), paths)
        if len(rows) > 500:
            continue
        base, base_chunks = naive.link(paths)
        assert trace.array("base").tolist() == base
        assert trace.array("base_chunks").tolist() == base_chunks


def test_weka_sessions_equal_the_golden_list_made_of_them(shared: Path) -> None:
    files = [shared / "traces" / "weka" / f"trace_{number}.json" for number in WEKA_IN_GOLDEN]
    trace = weka.read([source(path) for path in files], Notes(strict=True))
    names = {f"trace_{number}" for number in WEKA_IN_GOLDEN}
    rows = [row for row in golden(shared, "agents_kvct") if row["session"] in names]
    frame = trace.frame()
    keys = keys_of(trace)
    nth: dict[str, int] = dict.fromkeys(names, 0)
    place = {
        (s, n): at for at, (s, n) in enumerate(zip(frame["session"], frame["index"], strict=True))
    }
    mine = []
    for row in rows:
        at = place[row["session"], nth[row["session"]]]
        nth[row["session"]] += 1
        mine.append(keys[at])
        assert frame["prompt_tokens"][at] == row["prompt_tokens"]
        assert frame["output_tokens"][at] == row["output_tokens"]
    assert len(mine) == len(trace)
    assert_same_chunks(mine, [row["ids"] for row in rows])


def test_weka_subagents_are_sessions_that_share_what_their_ids_say(shared: Path) -> None:
    path = shared / "traces" / "weka" / "trace_0004.json"
    trace = weka.read([source(path)], Notes(strict=True))
    frame = trace.frame()
    kinds = frame["kind"].to_list()
    assert (len(trace), kinds.count("subagent")) == (182 + 14 + 19, 2)
    assert set(frame["parent_session"]) == {None, "trace_0004"}
    assert set(frame["agent"]) == {"weka", "Explore"}
    entries = [r for r in json.loads(path.read_bytes())["requests"] if r["type"] == "subagent"]
    first, second = (np.array(entry["requests"][0]["hash_ids"]) for entry in entries)
    shared_chunks = int(np.argmax(first[: second.size] != second[: first.size]))
    second_start = max(n for n, kind in enumerate(kinds) if kind == "subagent")
    assert trace.array("base_chunks")[second_start] == shared_chunks == 281
