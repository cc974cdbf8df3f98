from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.notes import Notes
from agentkv_trace.trace.interchange import bailian, lmcache, registry

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.store import Trace


def lines(*rows: object) -> list[tuple[int, bytes]]:
    return [
        (n, row if isinstance(row, bytes) else json.dumps(row).encode())
        for n, row in enumerate(rows, 1)
    ]


def chat(chat_id: int, parent: int, at: float, ids: list[int], **fields: object) -> dict:
    return {
        "chat_id": chat_id,
        "parent_chat_id": parent,
        "timestamp": at,
        "input_length": 16 * len(ids),
        "output_length": 5,
        "type": "text",
        "turn": 1,
        "hash_ids": ids,
    } | fields


def lookup(ids: list[str], at: float = 1711929600.5, **fields: object) -> dict:
    return {
        "timestamp": at,
        "request_id": f"req-{at}",
        "model_name": "model",
        "chunk_size": 256,
        "seq_len": 256 * len(ids) + 9,
        "dtypes": ["bfloat16"],
        "shapes": [[2, 256, 8]],
        "chunk_hashes": ids,
    } | fields


def column(trace: Trace, name: str) -> list:
    return trace.frame()[name].to_list()


def test_bailian_chats_become_sessions() -> None:
    rows = [
        chat(5, -1, 0.5, [1, 2]),
        chat(9, 5, 3.25, [1, 2, 3]),
        chat(6, -1, 1.0, [7, 2]),
        chat(11, 9, 4.0, [1, 2, 3, 4]),
        chat(12, 9, 5.0, [1, 2, 3, 5]),
        chat(13, 12, 6.0, [1, 2, 3, 5, 6]),
    ]
    trace = bailian.read([("t", lines(*rows))], Notes())
    assert trace.meta.chunk_tokens == 16
    assert column(trace, "session") == ["5", "6", "5", "5", "12", "12"]
    assert column(trace, "index") == [0, 0, 1, 2, 0, 1]
    assert column(trace, "parent_session") == [None, None, None, None, "5", None]
    assert column(trace, "kind") == ["turn", "turn", "turn", "turn", "fork", "turn"]
    assert column(trace, "base_chunks") == [0, 0, 2, 3, 3, 4]
    assert column(trace, "t_start_us")[:2] == [500_000, 1_000_000]


def test_bailian_chats_of_two_files_have_nothing_in_common() -> None:
    one, other = lines(chat(1, -1, 0, [1])), lines(chat(1, -1, 1, [1]))
    trace = bailian.read([("a", one), ("b", other)], Notes())
    assert column(trace, "session") == ["1", "1/1"]
    assert column(trace, "base_chunks") == [0, 0]


def test_bailian_rows_may_be_out_of_order_and_lack_their_parents() -> None:
    rows = [chat(2, 1, 5, [1, 2]), chat(1, -1, 1, [1]), chat(4, 3, 2, [8])]
    trace = bailian.read([("t", lines(*rows))], Notes())
    assert column(trace, "session") == ["1", "4", "1"]
    assert column(trace, "index") == [0, 0, 1]


def test_lmcache_lookups_become_calls() -> None:
    rows = [
        lookup(["0x" + "ab" * 32, "0x1"], 2.0),
        lookup(["0x" + "ab" * 32], 1.0),
        lookup([hex(-5)], 3.0),
        lookup([hex(-5)], 4.0, model_name="another"),
    ]
    notes = Notes()
    trace = lmcache.read([("t", lines(*rows))], notes)
    assert trace.meta.chunk_tokens == 256
    assert column(trace, "prompt_tokens") == [265, 521, 265, 265]
    assert column(trace, "base_chunks") == [0, 1, 0, 0]
    assert column(trace, "model") == ["model", "model", "model", "another"]
    assert not notes.skipped


def test_lmcache_hashes_that_are_none_are_skipped() -> None:
    notes = Notes()
    rows = [
        lookup(["0xzz"]),
        lookup(["0x1"]),
        lookup(["0x1"], seq_len=5000),
        lookup(["1"], chunk_size=0),
    ]
    assert len(lmcache.read([("t", lines(*rows))], notes)) == 1
    assert notes.skipped == {
        "chunk hash is no hexadecimal number": 1,
        "ids do not fit the prompt's length at 256 tokens per chunk": 1,
        "not a call: Expected `int` >= 1 - at `$.chunk_size`": 1,
    }


HEADS = {
    "mooncake": {"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]},
    "aiperf": {"session_id": "a", "input_length": 1, "output_length": 1, "hash_ids": [1]},
    "bailian": chat(1, -1, 0, [1]),
    "lmcache": lookup(["0x1"]),
    "weka": {"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": []},
}


@pytest.mark.parametrize("name", HEADS)
def test_each_format_is_recognised(name: str) -> None:
    head = json.dumps(HEADS[name]).encode()
    for start in (head, b"\xef\xbb\xbf" + head, head + b"\n" + b"x" * 100):
        found = registry.recognise(start)
        assert found is not None
        assert found.name == name


def test_a_document_over_many_lines_is_recognised() -> None:
    found = registry.recognise(json.dumps(HEADS["weka"], indent=2).encode())
    assert found is not None
    assert found.name == "weka"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6,374,44\n", "Azure"),
        (
            b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
            b"Log Type\n5,,,ChatGPT,472,18,490,Conversation log\n",
            "BurstGPT",
        ),
        (b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", "BurstGPT"),
        (b"LMCT\0\0\0", "lookup-hash-log-dir"),
        (b'{"timestamp": 1, "input": "text", "output": "x", "session_id": "1"}', "tokenizer"),
        (b'{"timestamp": 1, "input_length": 655, "output_length": 52}', "hash_ids"),
    ],
)
def test_a_trace_that_tells_nothing_of_reuse_is_refused(head: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        registry.recognise(head)


@pytest.mark.parametrize(
    "head", [b"", b"{}", b"a,b\n1,2", b'{"type":"session_meta","payload":{}}', b"\0\1", b"PAR1"]
)
def test_other_files_are_none_of_these(head: bytes) -> None:
    assert registry.recognise(head) is None


def test_the_forms_of_the_command_are_those_of_the_table() -> None:
    from agentkv_trace.cli.export import Form

    assert [form.value for form in Form] == [export.name for export in registry.EXPORTS]
    for export in registry.EXPORTS:
        assert callable(export.write)


def test_export_writes_files_and_standard_output(tmp_path: Path, capsysbinary) -> None:
    from agentkv_trace.cli.export import Form, export
    from agentkv_trace.trace.store import write_trace

    trace = bailian.read([("t", lines(chat(1, -1, 0, [1, 2]), chat(2, 1, 7, [1, 2, 3])))], Notes())
    path = tmp_path / "trace.parquet"
    write_trace(trace, path)
    export(path)
    first, second = capsysbinary.readouterr().out.splitlines()
    assert json.loads(first)["hash_ids"] == [0, 1]
    assert json.loads(second)["timestamp"] == 7000
    export(path, to=Form.csv, chunk_tokens=32)
    assert capsysbinary.readouterr().out == b"time,id,size\n0,1,1\n7,1,1\n"
    out = tmp_path / "trace.bin"
    export(path, to=Form.oracle_general, output=out)
    assert out.stat().st_size == 24 * 5
    assert b"2 calls, 5 chunk references" in capsysbinary.readouterr().err
    with pytest.raises(InputError, match="exists already"):
        export(path, to=Form.oracle_general, output=out)
    with pytest.raises(InputError, match="is binary"):
        export(path, to=Form.references)
    with pytest.raises(InputError, match="multiple of the trace's 16"):
        export(path, chunk_tokens=24)
