from __future__ import annotations

from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import Node
from made import CHUNK, call, node, text, trace


def columns(built, *names: str) -> list[list]:
    return [built.array(name).tolist() for name in names]


def test_bases_within_and_across_sessions() -> None:
    built = trace([1, 2], [1, 2, 3], [1, 9], [1, 2, 3, 4], sessions=["a", "a", "b", "c"])
    base, base_chunks, prompt_chunks = columns(built, "base", "base_chunks", "prompt_chunks")
    assert base == [-1, 0, 1, 1]
    assert base_chunks == [0, 2, 1, 3]
    assert prompt_chunks == [2, 3, 2, 4]
    offsets, keys = built.new_chunks()
    assert offsets.tolist() == [0, 2, 3, 4, 5]
    assert len(set(keys.tolist())) == 5


def test_output_counts_for_the_path_but_not_for_the_prompt() -> None:
    builder = TraceBuilder()
    first = node([1, 2])
    answer = first.text(text(3))
    builder.add(call("a", first, 0, output=text(3)))
    builder.add(call("a", answer.text(text(4)), 1))
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    assert columns(built, "prompt_chunks", "path_chunks", "base_chunks", "output_tokens") == [
        [2, 4],
        [3, 4],
        [0, 3],
        [16, 0],
    ]


def test_rows_are_sorted_by_start_whatever_the_order_of_logs() -> None:
    builder = TraceBuilder()
    builder.add(call("late", node([1, 2]), 500))
    builder.add(call("early", node([1]), 100))
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    assert built.frame()["session"].to_list() == ["early", "late"]
    assert columns(built, "base", "base_chunks") == [[-1, 0], [0, 1]]


def test_a_clock_that_runs_backwards_is_clamped_within_its_session() -> None:
    builder = TraceBuilder()
    builder.add(call("a", node([1]), 500, end_us=400))
    builder.add(call("a", node([1, 2]), 100, end_us=200))
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    assert columns(built, "index", "t_start_us", "t_end_us") == [[0, 1], [500, 500], [500, 500]]


def test_a_head_is_sized_by_usage_and_shared_by_its_key() -> None:
    builder = TraceBuilder()
    for number, (session, key) in enumerate([("a", "x"), ("b", "x"), ("c", "y")]):
        prompt = Node.head(key).text(text(1) + text(2))
        builder.add(
            call(session, prompt, number, logged_prompt_tokens=32 + 160, usage_source="logged")
        )
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    base, base_chunks, prompt_tokens = columns(built, "base", "base_chunks", "prompt_tokens")
    assert prompt_tokens == [192, 192, 192]
    assert (base, base_chunks) == ([-1, 0, -1], [0, 12, 0])
    assert set(built.frame()["fidelity"].cast(str)) == {"head_estimated"}


def test_opaque_pieces_are_shared_by_identity_and_have_the_length_given() -> None:
    builder = TraceBuilder()
    for number, identity in enumerate([b"one", b"one", b"two"]):
        builder.add(call("a", node([1]).opaque(identity, 32), number))
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    assert columns(built, "prompt_tokens", "base_chunks") == [[48, 48, 48], [0, 3, 1]]


def test_the_rate_comes_from_the_growth_of_usage() -> None:
    builder = TraceBuilder()
    at = Node.head("h")
    for number in range(5):
        at = at.text(b"x" * 500)
        builder.add(
            call("a", at, number, logged_prompt_tokens=1000 + 200 * number, usage_source="logged")
        )
    built = builder.finish({})
    assert built.meta.tokenizer == {
        "name": "bytes",
        "bytes_per_chunk": 40,
        "reasoning_scale": 1.0,
    }
    assert built.array("prompt_tokens").tolist() == [1000 + 200 * n for n in range(5)]


def test_cached_tokens_are_clamped_to_the_prompt() -> None:
    builder = TraceBuilder()
    builder.add(call("a", node([1]), logged_prompt_tokens=10, logged_cached_tokens=99))
    assert builder.finish({}).array("logged_cached_tokens").tolist() == [10]


def test_content_is_let_go_once_it_is_stored() -> None:
    prompt = node([1])
    with TraceBuilder() as builder:
        builder.add(call("a", prompt))
    assert prompt.content == b""
    assert prompt.index >= 0


def test_a_salt_hides_the_keys_and_keeps_the_sharing() -> None:
    def build(salt: bytes | None):
        builder = TraceBuilder()
        builder.add(call("a", node([1, 2])))
        builder.add(call("a", node([1, 2, 3]), 1))
        return builder.finish({}, salt=salt)

    plain, salted = build(None), build(b"secret")
    assert salted.meta.salted
    assert columns(plain, "base_chunks") == columns(salted, "base_chunks")
    assert set(plain.new_chunks()[1].tolist()).isdisjoint(salted.new_chunks()[1].tolist())


def test_coarser_chunks_have_the_key_of_their_last_fine_chunk() -> None:
    built = trace([1, 2, 3, 4, 5], [1, 2, 3, 9], [7])
    coarse = built.coarsen(32)
    offsets, keys = coarse.new_chunks()
    fine_offsets, fine = built.new_chunks()
    assert columns(coarse, "base", "base_chunks", "prompt_chunks") == [
        [-1, 0, -1],
        [0, 1, 0],
        [2, 2, 0],
    ]
    assert offsets.tolist() == [0, 2, 3, 3]
    assert keys.tolist() == [fine[1], fine[3], fine[fine_offsets[1]]]


def test_many_calls_with_the_same_prompt_cost_no_new_chunk() -> None:
    prompt = node(range(100))
    builder = TraceBuilder()
    for number in range(50):
        builder.add(call("a", prompt, number))
    built = builder.finish({}, fixed_bytes_per_token=4.0)
    assert built.new_chunks()[1].size == 100
    assert built.array("base").tolist() == list(range(-1, 49))
    assert built.meta.tokenizer["bytes_per_chunk"] == CHUNK


def test_reasoning_takes_the_length_that_growth_shows() -> None:
    builder = TraceBuilder()
    at = Node.head("h")
    logged = 1000
    for number in range(4):
        at = at.text(b"x" * 400)
        builder.add(call("a", at, number, logged_prompt_tokens=logged, usage_source="logged"))
        logged += 100
        if number == 1:
            at, logged = at.reasoning(b"sealed", 20), logged + 60
    built = builder.finish({})
    assert built.meta.tokenizer["reasoning_scale"] == 3.0
    assert built.array("prompt_tokens").tolist() == [1000, 1100, 1260, 1360]


def test_a_head_without_usage_has_its_typical_length() -> None:
    builder = TraceBuilder()
    builder.add(call("a", Node.head("k", typical_tokens=32).text(text(1))))
    builder.add(call("b", Node.head("l").text(text(1)), 1))
    built = builder.finish({})
    assert built.array("prompt_tokens").tolist() == [48, 16]
    assert built.frame()["fidelity"].cast(str).to_list() == ["head_estimated", "exact"]
