from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.notes import Notes
from agentkv_trace.trace.interchange import weka

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace


def call(t: float, ids: list[int], **fields: object) -> dict:
    return {
        "t": t,
        "type": "n",
        "model": "m",
        "in": 4 * len(ids) + 1,
        "out": 7,
        "hash_ids": ids,
        "api_time": 0.5,
    } | fields


def session(name: str, *requests: object, **fields: object) -> dict:
    return {
        "id": name,
        "block_size": 4,
        "hash_id_scope": "local",
        "tool_tokens": 5,
        "system_tokens": 4,
        "requests": list(requests),
    } | fields


def subagent(t: float, *requests: object, **fields: object) -> dict:
    return {
        "t": t,
        "type": "subagent",
        "agent_id": "agent_001",
        "subagent_type": "Explore",
        "requests": list(requests),
        "tool_tokens": 4,
        "system_tokens": 0,
    } | fields


def read(*documents: object, notes: Notes | None = None, **options: object) -> Trace:
    files = [(f"{n}.json", [(1, json.dumps(d).encode())]) for n, d in enumerate(documents)]
    return weka.read(files, notes or Notes(), **options)


def column(trace: Trace, name: str) -> list:
    return trace.frame()[name].to_list()


def test_a_document_becomes_a_session() -> None:
    trace = read(session("s", call(0, [1, 2]), call(2.5, [1, 2, 3], type="s")))
    assert trace.meta.chunk_tokens == 4
    assert column(trace, "session") == ["s", "s"]
    assert column(trace, "t_start_us") == [0, 2_500_000]
    assert column(trace, "t_end_us") == [500_000, 3_000_000]
    assert column(trace, "base_chunks") == [0, 2]
    assert column(trace, "time_source") == ["logged", "logged"]


def test_heads_of_equal_lengths_are_shared_and_nothing_else() -> None:
    trace = read(session("a", call(0, [1, 2, 3])), session("b", call(1, [8, 9, 3])))
    assert column(trace, "base_chunks") == [0, 2]
    assert column(trace, "time_source") == ["estimated", "estimated"]


@pytest.mark.parametrize("other", [{"tool_tokens": 4}, {"system_tokens": None}, {"block_size": 4}])
def test_heads_of_other_lengths_are_not_shared(other: dict) -> None:
    second = session("b", call(1, [1, 2, 3])) | other
    trace = read(session("a", call(0, [1, 2, 3])), second)
    assert column(trace, "base_chunks") == [0, 2 if other == {"block_size": 4} else 0]


def test_heads_of_other_models_are_not_shared() -> None:
    trace = read(session("a", call(0, [1, 2])), session("b", call(1, [1, 2], model="n")))
    assert column(trace, "base_chunks") == [0, 0]


def test_a_call_that_has_not_the_sessions_head_keeps_its_own_chunks() -> None:
    trace = read(
        session("a", call(0, [1, 2]), call(1, [7, 8])),
        session("b", call(2, [1, 2]), call(3, [7, 8]), call(4, [1, 5])),
    )
    assert column(trace, "base_chunks") == [0, 0, 2, 0, 1]
    assert column(trace, "kind") == ["turn", "fold", "turn", "fold", "fold"]


def test_global_ids_are_shared_by_all_documents() -> None:
    trace = read(
        session("a", call(0, [1, 2, 3]), hash_id_scope="global"),
        session("b", call(1, [1, 2, 3]), hash_id_scope="global"),
    )
    assert column(trace, "base_chunks") == [0, 3]


def test_a_subagent_is_a_session_with_a_parent() -> None:
    trace = read(
        session(
            "s",
            call(0, [1]),
            subagent(10, call(0, [7]), call(1, [7, 8]), subagent(2, call(0, [9]))),
            subagent(20, call(20.5, [7])),
            call(30, [1, 2]),
        )
    )
    assert column(trace, "session") == [
        "s",
        "s/agent_001",
        "s/agent_001",
        "s/agent_001/agent_001",
        "s/agent_001#2",
        "s",
    ]
    assert column(trace, "parent_session") == [None, "s", "s", "s/agent_001", "s", None]
    assert column(trace, "kind") == ["turn", "subagent", "turn", "subagent", "subagent", "turn"]
    assert column(trace, "agent") == ["weka", *["Explore"] * 4, "weka"]
    # Times below the sub-agent's start count from it, others from the document's.
    assert [t / 1e6 for t in column(trace, "t_start_us")] == [0, 10, 11, 12, 20.5, 30]
    assert column(trace, "base_chunks") == [0, 0, 1, 0, 1, 1]


def test_subagents_of_different_documents_share_their_heads() -> None:
    def document(name: str, local: int) -> dict:
        return session(name, call(0, [local]), subagent(5, call(0, [local + 1, local + 2])))

    trace = read(document("a", 1), document("b", 50))
    assert column(trace, "base_chunks") == [0, 1, 0, 1]


def test_documents_can_start_apart() -> None:
    trace = read(session("a", call(0, [1])), session("b", call(0, [1])), start_gap_s=20)
    assert column(trace, "t_start_us") == [0, 20_000_000]


def test_documents_one_a_line_or_over_many_lines() -> None:
    one, other = session("a", call(0, [1])), session("b", call(0, [1]))
    notes = Notes()
    by_line = [(n, json.dumps(d).encode()) for n, d in enumerate([one, other], 1)]
    by_line.insert(1, (9, b'{"torn'))
    spread = list(enumerate(json.dumps(one, indent=1).encode().split(b"\n"), 1))
    trace = weka.read([("a", by_line), ("b", spread)], notes)
    assert sorted(column(trace, "session")) == ["a", "a#2", "b"]
    assert notes.skipped == {"damaged session": 1}
    assert notes.examples["damaged session"] == ["a:9"]


def test_a_torn_first_line_does_not_lose_the_others() -> None:
    whole = json.dumps(session("a", call(0, [1]))).encode()
    notes = Notes()
    trace = weka.read([("a", [(1, whole[:30]), (2, whole), (3, whole)])], notes)
    assert len(trace) == 2
    assert notes.skipped == {"damaged session": 1}


def test_bad_entries_and_files_lose_no_other() -> None:
    notes = Notes()
    trace = read(
        session("a", call(0, [1]), call(1, [1], out=-1), call(2, [1], type="x"), {"t": 1}, 5),
        {"block_size": 4},
        session("b", block_size=0),
        session("c", call(0, [1, 2, 3], **{"in": 99}), call(3, [1, 2])),
        notes=notes,
    )
    assert column(trace, "session") == ["a", "c"]
    assert notes.counts["documents"] == 2
    assert sum(notes.skipped.values()) == 7
    assert notes.skipped["entry of unknown type"] == 1
    assert notes.skipped["ids do not fit the prompt's length at 4 tokens per chunk"] == 1


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(InputError, match=r"0.json:1: not a session: .* no call is left"):
        read({"requests": []})
