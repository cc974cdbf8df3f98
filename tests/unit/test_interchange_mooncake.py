from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.notes import Notes
from agentkv_trace.trace.interchange import aiperf, mooncake

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace


def lines(*rows: object) -> list[tuple[int, bytes]]:
    return [
        (n, row if isinstance(row, bytes) else json.dumps(row).encode())
        for n, row in enumerate(rows, 1)
    ]


def row(ids: list[int], length: int | None = None, **fields: object) -> dict[str, object]:
    return {
        "timestamp": 0,
        "input_length": 512 * len(ids) if length is None else length,
        "output_length": 3,
        "hash_ids": ids,
    } | fields


def read(*rows: object, notes: Notes | None = None, **options: object) -> Trace:
    return mooncake.read([("t.jsonl", lines(*rows))], notes or Notes(), **options)


def columns(trace: Trace, *names: str) -> list[list[int]]:
    return [trace.array(name).tolist() for name in names]


def test_rows_become_calls_of_512_token_chunks() -> None:
    trace = read(row([1, 2, 3], 1400, timestamp=1), row([1, 2], 1024, timestamp=2.5))
    assert trace.meta.chunk_tokens == 512
    assert columns(trace, "prompt_chunks", "base_chunks", "t_start_us", "output_tokens") == [
        [2, 2],
        [0, 2],
        [1000, 2500],
        [3, 3],
    ]
    assert trace.meta.sources["mooncake"] == {"calls": 2, "files": 1, "lines": 2, "skipped": {}}


def test_calls_at_one_time_stay_in_their_order() -> None:
    trace = read(*(row([n]) for n in range(30)))
    assert columns(trace, "prompt_chunks")[0] == [1] * 30
    again = read(*(row([1], output_length=n) for n in range(30)))
    assert columns(again, "output_tokens")[0] == list(range(30))


def test_a_block_size_in_the_rows_wins() -> None:
    trace = read(row([1, 2], 32, block_size=16))
    assert (trace.meta.chunk_tokens, columns(trace, "prompt_chunks")) == (16, [[2]])
    assert read(row([1, 2], 64, block_size=16, block_tokens=32)).meta.chunk_tokens == 32


def test_calls_of_another_block_size_than_the_first_are_skipped() -> None:
    notes = Notes()
    trace = read(row([1], 16, block_size=16), row([1], 32, block_size=32), notes=notes)
    assert len(trace) == 1
    assert notes.skipped == {"chunks of another size than 16 tokens": 1}


def test_the_chunk_size_is_the_one_that_fits() -> None:
    trace = read(row([1, 2, 3], 40), row([1, 2], 32), row([1], 512))
    assert trace.meta.chunk_tokens == 16
    assert len(trace) == 2
    assert read(row([1, 2], 40), chunk_tokens=20).array("prompt_chunks").tolist() == [2]


def test_no_chunk_size_fits() -> None:
    with pytest.raises(InputError, match=r"t.jsonl: .* give the chunk size"):
        read(row([1, 2, 3], 90_000), row([1, 2, 3], 9))


def test_files_share_nothing_and_the_same_file_does() -> None:
    one, other = lines(row([1, 2])), lines(row([1, 2, 3]))
    trace = mooncake.read([("a", one), ("b", other)], Notes())
    assert columns(trace, "base_chunks") == [[0, 0]]
    again = mooncake.read([("a", one), ("b", one)], Notes())
    assert columns(again, "base_chunks") == [[0, 2]]


def test_bad_lines_are_counted_and_lose_nothing_else() -> None:
    notes = Notes()
    whole = json.dumps(row([5])).encode()
    trace = read(
        row([1]),
        b"\0\0\0\0",
        b"[1]",
        row([1], -5),
        row([1], 512.5),
        row([1], "512"),
        {"timestamp": 0, "input_length": 512, "output_length": 1},
        row([-1]),
        row([1 << 64]),
        row(["a"]),
        row([1, 2], 512),
        row([1], timestamp=-1),
        b'{"timestamp": 0, "input_len' + whole,
        b"\xff\xfe",
        row([2]),
        notes=notes,
    )
    assert len(trace) == 3
    assert sum(notes.skipped.values()) == 12 + 1
    assert notes.skipped["damaged line"] == 3
    assert notes.skipped["chunk id does not fit 64 bits"] == 2
    assert notes.skipped["ids do not fit the prompt's length at 512 tokens per chunk"] == 1
    assert notes.skipped["not a call: Object missing required field `hash_ids`"] == 1
    assert notes.examples["damaged line"] == ["t.jsonl:2", "t.jsonl:13", "t.jsonl:14"]
    assert trace.meta.sources["mooncake"]["calls"] == 3
    assert trace.meta.sources["mooncake"]["skipped"] == dict(sorted(notes.skipped.items()))


def test_strict_names_the_first_bad_line() -> None:
    with pytest.raises(InputError, match=r"t.jsonl:2: damaged line"):
        read(row([1]), b"{", notes=Notes(strict=True))


def test_a_file_that_breaks_off_loses_only_its_rest() -> None:
    def broken():
        yield from lines(row([1]))
        raise OSError(5, "Input/output error")

    notes = Notes()
    trace = mooncake.read([("bad", broken()), ("good", lines(row([2])))], notes)
    assert len(trace) == 2
    assert notes.skipped == {"file cannot be read (Input/output error)": 1}
    assert notes.examples["file cannot be read (Input/output error)"] == ["bad"]


def test_no_call_is_an_error_with_the_first_reason() -> None:
    with pytest.raises(InputError, match=r"t.jsonl:1: damaged line; no call is left"):
        read(b"{")
    with pytest.raises(InputError, match="no call in these files"):
        read()


def test_sessions_with_whole_prompts() -> None:
    trace = read(
        row([1, 2], session_id="s"),
        row([1, 2, 3], session_id="s", timestamp=None, delay=20),
        row([7], session_id="other", timestamp=10),
    )
    assert trace.frame()["session"].to_list() == ["s", "other", "s"]
    assert trace.frame()["time_source"].to_list() == ["logged", "logged", "estimated"]
    assert columns(trace, "index", "base_chunks", "t_start_us") == [
        [0, 0, 1],
        [0, 0, 2],
        [0, 10_000, 20_000],
    ]


def test_turns_of_new_input_only_are_joined_with_all_before_them() -> None:
    notes = Notes()
    trace = read(
        row([1, 2], 8, output_length=3, block_size=4, session_id="s"),
        row([5, 6], 7, output_length=2, block_size=4, session_id="s", timestamp=1),
        row([8], 2, output_length=9, block_size=4, session_id="s", timestamp=2),
        row([1, 2], 8, block_size=4, timestamp=3),
        notes=notes,
    )
    # 8 + 3 + 7 = 18 and 18 + 2 + 2 = 22 tokens.
    assert columns(trace, "prompt_tokens", "prompt_chunks", "base_chunks") == [
        [8, 18, 22, 8],
        [2, 4, 5, 2],
        [0, 2, 4, 2],
    ]
    assert trace.frame()["kind"].to_list() == ["turn"] * 4
    assert notes.counts["sessions of new input only"] == 1


def test_outputs_of_different_sessions_are_different() -> None:
    def turns(session: str) -> list[dict[str, object]]:
        first = row([1], 4, output_length=4, block_size=4, session_id=session)
        return [first, row([5], 4, output_length=1, block_size=4, session_id=session, timestamp=1)]

    trace = read(*turns("a"), *turns("b"))
    assert columns(trace, "prompt_chunks", "base_chunks") == [[1, 1, 3, 3], [0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("mode", "tokens"),
    [("message_array_with_responses", [512, 512]), ("deltas_without_responses", [512, 1027])],
)
def test_a_context_mode_decides(mode: str, tokens: list[int]) -> None:
    trace = read(
        row([1], session_id="s", context_mode=mode),
        row([2], session_id="s", context_mode=mode, timestamp=1),
    )
    assert columns(trace, "prompt_tokens") == [tokens]


def test_rows_without_any_time_keep_their_order() -> None:
    trace = read(row([1], timestamp=None), row([2], timestamp=None))
    assert trace.frame()["time_source"].unique().to_list() == ["order_only"]
    assert columns(trace, "t_start_us") == [[0, 1]]


def test_what_is_written_can_be_read_by_others() -> None:
    trace = read(
        row([9, 4, 7], 1100, timestamp=5), row([9, 8], 1024, timestamp=7), row([], 10, timestamp=9)
    )
    file = io.BytesIO()
    mooncake.write(trace, file)
    assert [json.loads(line) for line in file.getvalue().splitlines()] == [
        {"timestamp": 0, "input_length": 1100, "output_length": 3, "hash_ids": [0, 1, 2]},
        {"timestamp": 2, "input_length": 1024, "output_length": 3, "hash_ids": [0, 3]},
        {"timestamp": 4, "input_length": 10, "output_length": 3, "hash_ids": [4]},
    ]


def test_another_chunk_size_is_written_down() -> None:
    file = io.BytesIO()
    mooncake.write(read(row([1], 16, block_size=16)), file)
    assert json.loads(file.getvalue())["block_size"] == 16


def test_aiperf_rows_are_told_from_mooncake_rows() -> None:
    plain, session = json.dumps(row([1])).encode(), json.dumps(row([1], session_id="s")).encode()
    assert mooncake.looks_like(plain)
    assert not aiperf.looks_like(plain)
    assert aiperf.looks_like(session + b"\n" + plain)
    trace = aiperf.read([("t", [(1, session)])], Notes())
    assert trace.frame()["source"].to_list() == ["aiperf"]
