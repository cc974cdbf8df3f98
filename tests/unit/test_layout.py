"""The layout: kinds and digests of parts, and what the trace keeps of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import Node
from agentkv_trace.trace.parts import PART_KINDS, READINGS, ROLES, facts_of
from agentkv_trace.trace.select import Filter, merge, select
from agentkv_trace.trace.store import read_trace, write_trace
from made import call, text

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.layout import Layout
    from agentkv_trace.trace.store import Trace


def kind_of(content: object, *, at_head: bool = False) -> tuple[str, str]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    facts = facts_of(Node.head().text(data), at_head=at_head)
    return PART_KINDS[facts.kind], ROLES[facts.role]


KINDS = [
    ({"role": "system", "content": "x"}, ("system", "system")),
    ({"type": "message", "role": "developer", "content": []}, ("system", "developer")),
    ({"role": "user", "content": "x"}, ("message", "user")),
    ({"role": "assistant", "content": None, "tool_calls": []}, ("message", "assistant")),
    ({"role": "tool", "content": "x"}, ("tool_output", "tool")),
    ({"role": "user", "content": [{"type": "tool_result"}]}, ("tool_output", "user")),
    ({"type": "function_call", "name": "f"}, ("tool_call", "assistant")),
    ({"type": "custom_tool_call_output", "output": "x"}, ("tool_output", "tool")),
    ({"type": "reasoning"}, ("reasoning", "assistant")),
    ({"type": "compaction_summary"}, ("summary", "assistant")),
    ({"type": "additional_tools", "role": None, "tools": []}, ("tools", "")),
    (b"plain text", ("message", "")),
    (b"{broken", ("message", "")),
]


@pytest.mark.parametrize(("content", "expected"), KINDS)
def test_kinds_in_a_conversation(content: object, expected: tuple[str, str]) -> None:
    assert kind_of(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"type": "function", "function": {"name": "f"}}, ("tools", "")),
        ({"name": "f", "input_schema": {}}, ("tools", "")),
        ([{"name": "f", "parameters": {}}], ("tools", "")),
        ("You are ...", ("system", "system")),
        ([{"type": "text", "text": "You are"}], ("system", "system")),
        (b"You are ...", ("system", "system")),
    ],
)
def test_kinds_at_the_head(content: object, expected: tuple[str, str]) -> None:
    assert kind_of(content, at_head=True) == expected


def test_kinds_of_what_is_not_read() -> None:
    head = Node.head("k")
    for node, kind in (
        (head, "head"),
        (head.reasoning(b"r", 5), "reasoning"),
        (head.opaque(b"image\0abc", 5), "image"),
        (head.opaque(b"environment\0abc", 5), "environment"),
        (head.opaque(b"whatever", 5), "unseen"),
    ):
        assert PART_KINDS[facts_of(node, at_head=False).kind] == kind


def digests(content: object) -> dict[str, int]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    found = facts_of(Node.head().text(data), at_head=True).digests
    keys = found[1] or found[0]
    return dict(zip(READINGS, (found[0], keys, *(each or keys for each in found[2:])), strict=True))


def say(words: str, **more: object) -> dict[str, object]:
    return {"role": "user", "content": words, **more}


TOOL = {"name": "f", "parameters": {"a": 1, "b": 2}}
OTHER = {"name": "g", "parameters": {}}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (say("x"), {"content": "x", "role": "user"}, "keys"),
        (say('{"a": 1, "b": 2}'), say('{"b":2,"a":1}'), "keys"),
        (say("it is 2026-10-05T08:00:01Z"), say("it is 2027-01-02T11:22:33+02:00"), "dates"),
        (say("on Mon Nov 30 2026"), say("on Tue Dec 1 2026"), "dates"),
        (say("at 1764500000"), say("at 1764509999"), "dates"),
        (say("run 7f3a90c0b2"), say("run 11aa22bb33"), "ids"),
        (say("step 3 of 9"), say("step 4 of 9"), "ids"),
        (b"run 7f3a90c0b2", b"run 11aa22bb33", "ids"),
        (say("a  b \n"), say("a b"), "trimmed"),
        ([TOOL, OTHER], [OTHER, TOOL], "loose"),
        (say("x", reasoning_content="hm"), say("x"), "loose"),
    ],
)
def test_readings_tell_how_two_parts_differ(one: object, other: object, equal: str) -> None:
    first, second = digests(one), digests(other)
    same = {reading for reading in READINGS if first[reading] == second[reading]}
    assert "text" not in same
    assert equal in same
    if equal in ("dates", "ids", "trimmed", "loose"):
        assert "keys" not in same


def test_words_that_change_are_equal_in_no_reading() -> None:
    first, second = digests(say("the cat")), digests(say("the dog"))
    assert all(first[reading] != second[reading] for reading in READINGS)


# What the trace keeps


def item(role: str, words: str) -> bytes:
    return json.dumps({"role": role, "content": words}).encode()


def built(*sessions: str, salt: bytes | None = None) -> Trace:
    """Return three calls for each session; all begin with the same system message."""
    builder = TraceBuilder(layout=True)
    for at, session in enumerate(sessions):
        prompt = Node.head("h", typical_tokens=32).text(item("system", "rules " * 30))
        for number in range(3):
            prompt = prompt.text(item("user", f"{session} asks {number} " * 9))
            path = prompt.text(item("assistant", "so " * 40))
            node = call(session, prompt, 1000 * number + at)
            node.path = path
            builder.add(node)
            prompt = path
    return builder.finish({}, fixed_bytes_per_token=4.0, salt=salt)


def described(layout: Layout, part: int) -> list[tuple[str, str, int]]:
    return [
        (PART_KINDS[layout.kind[p]], ROLES[layout.role[p]], int(layout.end[p]))
        for p in layout.chain(part)
    ]


def test_a_prompt_is_the_chain_of_its_parts() -> None:
    trace = built("a")
    layout = trace.layout()
    assert layout is not None
    assert layout.end[layout.prompt].tolist() == trace.array("prompt_tokens").tolist()
    kinds = [each[:2] for each in described(layout, int(layout.path[1]))]
    assert kinds == [
        ("head", ""),
        ("system", "system"),
        *[("message", "user"), ("message", "assistant")] * 2,
    ]


def test_parts_are_stored_once_for_all_sessions() -> None:
    one, two = built("a").layout(), built("a", "b").layout()
    assert one is not None
    assert two is not None
    # The head and the system message are shared, six messages are not.
    assert (len(one), len(two)) == (8, 14)
    assert two.offsets.tolist() == [0, 4, 6, 8, 10, 12, 14]


def test_size_follows_new_parts_not_calls_times_parts() -> None:
    builder = TraceBuilder(layout=True)
    prompt = Node.head("h")
    for number in range(300):
        prompt = prompt.text(item("user", f"message {number}"))
        builder.add(call("a", prompt, number))
    layout = builder.finish({}).layout()
    assert layout is not None
    assert len(layout) == 301


def test_the_file_gives_back_the_layout_and_the_same_base_columns(tmp_path: Path) -> None:
    trace = built("a", "b")
    write_trace(trace, tmp_path / "with.parquet")
    again = read_trace(tmp_path / "with.parquet")
    for name in ("prompt", "path", "offsets", "parent", "end", "kind", "role", "digests"):
        assert np.array_equal(getattr(trace.layout(), name), getattr(again.layout(), name))
    assert again.table.equals(trace.table)
    assert again.meta == trace.meta
    frame = pl.read_parquet(tmp_path / "with.parquet")
    assert frame["layout"].struct.field("parts").list.len().to_list() == [4, 2, 2, 2, 2, 2]


def test_a_trace_without_it_has_none(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.add(call("a", Node.head("h").text(text(1))))
    write_trace(builder.finish({}), tmp_path / "plain.parquet")
    trace = read_trace(tmp_path / "plain.parquet")
    assert trace.layout() is None
    assert "layout" not in pl.read_parquet_schema(tmp_path / "plain.parquet")


def test_no_text_and_no_words_are_in_the_file(tmp_path: Path) -> None:
    write_trace(built("a"), tmp_path / "trace.parquet")
    strings = pl.read_parquet(tmp_path / "trace.parquet").to_dicts().__repr__()
    assert "rules" not in strings
    assert "asks" not in strings


def test_filters_and_merging_keep_the_layout() -> None:
    whole = built("a", "b")
    kept = select(whole, Filter(sessions=("b",)).mask(whole))
    alone = built("b")
    for name in ("prompt", "path", "offsets", "parent", "end", "kind", "role", "digests"):
        assert np.array_equal(getattr(kept.layout(), name), getattr(alone.layout(), name)), name
    both = merge([built("a"), built("b")])
    layout, expected = both.layout(), whole.layout()
    assert layout is not None
    assert expected is not None
    assert len(layout) == len(expected)
    sessions = both.frame()["session"].to_list()
    wanted = whole.frame()["session"].to_list()
    for row, session in enumerate(sessions):
        index = int(both.array("index")[row])
        place = next(
            at
            for at, name in enumerate(wanted)
            if name == session and whole.array("index")[at] == index
        )
        mine = described(layout, int(layout.path[row]))
        assert mine == described(expected, int(expected.path[place]))


def test_a_salt_hides_digests_and_keeps_what_is_equal() -> None:
    plain, salted = built("a", "b").layout(), built("a", "b", salt=b"secret").layout()
    assert plain is not None
    assert salted is not None
    assert not set(plain.digests.ravel().tolist()) & set(salted.digests.ravel().tolist()) - {0}
    for one, other in ((0, 1), (2, 4), (3, 5), (2, 3)):
        before = plain.digests[one, 0] == plain.digests[other, 0]
        assert (salted.digests[one, 0] == salted.digests[other, 0]) == before


def test_a_damaged_layout_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_trace(built("a"), path)
    frame = pl.read_parquet(path)
    rows = frame["layout"].to_list()
    rows[1]["parts"][0]["parent"] = 99
    damaged = frame.with_columns(pl.Series("layout", rows, dtype=frame.schema["layout"]))
    table = damaged.to_arrow()
    import pyarrow.parquet as pq

    meta = pq.read_schema(path).metadata
    pq.write_table(table.replace_schema_metadata(meta), path)
    with pytest.raises(InputError, match=r"trace.parquet: damaged layout \(a part is out of order"):
        read_trace(path).layout()
