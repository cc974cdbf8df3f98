"""vLLM's log: prompts and token ids, and which requests are told without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.discover import named_logs
from agentkv_trace.ingest.gateways import calls, paths
from agentkv_trace.ingest.gateways.vllm import NO_PROMPTS
from agentkv_trace.ingest.run import Options, ingest
from gateway_logs import lines, payload, read, said, user

if TYPE_CHECKING:
    from pathlib import Path


def logged(second: int, words: str) -> str:
    return f"INFO 03-01 12:00:{second:02d} [logger.py:43] {words}"


def ids(*numbers: int) -> str:
    return "[" + ", ".join(map(str, numbers)) + "]"


def test_token_ids_of_a_servers_log(tmp_path: Path) -> None:
    first, second = ids(*range(100)), ids(*range(100), 7, 8, 9)
    asked = "Received request a: prompt: 'hi', params: SamplingParams(n=1), "
    told = f"Generated response a: output: 'yo', output_token_ids: {ids(7, 8)}, finish_reason: x"
    listed = [
        logged(1, f"{asked}prompt_token_ids: {first}, lora_request: None."),
        logged(3, told),
        logged(4, f"Request b details: prompt: None, prompt_token_ids: {second}, prompt_embeds."),
        logged(4, "Received request b: params: SamplingParams(n=1), lora_request: None."),
    ]
    path = tmp_path / "server.log"
    path.write_text("\n".join(["INFO starting", *listed]))
    assert paths.find(tmp_path) == [path]
    found, notes = read(path)
    assert notes.counts["requests without a prompt"] == 0
    assert [(call.logged_prompt_tokens, call.output_tokens) for call in found] == [
        (100, 2),
        (103, None),
    ]
    one, two = (call.prompt.content for call in found)
    assert len(one) == 400
    assert two.startswith(one + found[0].path.content)
    assert found[0].session == found[1].session
    assert found[0].end_us - found[0].start_us == 2_000_000


def test_text_of_a_servers_log_is_as_python_writes_it(tmp_path: Path) -> None:
    prompt = 'it\'s "so"\nhe said\té, prompt_token_ids: [1]'
    line = f"Received request a: prompt: {prompt!r}, params: S, prompt_token_ids: None."
    path = tmp_path / "server.log"
    path.write_text(logged(1, line) + "\n")
    (call,), _ = read(path)
    assert call.usage_source == "none"
    assert call.prompt.content == prompt.encode()


def test_requests_without_prompts_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        logged(1, "Received request a: params: SamplingParams(n=1), lora_request: None.\n")
    )
    found, notes = read(path, strict=False)
    assert found == []
    assert notes.counts["requests without a prompt"] == 1
    assert notes.skipped == {NO_PROMPTS: 1}


def test_prompts_that_the_log_cut_are_told(tmp_path: Path) -> None:
    listed = [
        logged(
            n, f"Received request {n}: prompt: {chr(97 + n) * 50!r}, params: SamplingParams(n=1)"
        )
        for n in range(3)
    ]
    path = tmp_path / "server.log"
    path.write_text(
        "\n".join([*listed, logged(9, "Received request z: prompt: 'short', params: S")])
    )
    found, notes = read(path)
    assert [call.fidelity for call in found] == ["output_reformatted"] * 3 + ["exact"]
    assert notes.counts["prompts that the log cut"] == 3


def test_a_new_year_in_a_log_without_years(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    line = "Received request {}: prompt: 'x{}', params: SamplingParams(n=1)"
    path.write_text(
        "INFO 12-31 23:59:59 [a] "
        + line.format(1, 1)
        + "\nINFO 01-01 00:00:01 [a] "
        + line.format(2, 22)
    )
    found, _ = read(path)
    assert found[1].start_us - found[0].start_us == 2_000_000


def test_text_with_escapes_is_as_long_as_its_characters(tmp_path: Path) -> None:
    long, short = "é\n'" * 20, "x" * 10
    listed = [
        logged(n, f"Received request {n}: prompt: {words!r}, params: SamplingParams(n=1)")
        for n, words in enumerate([long, "y" * 60, short])
    ]
    path = tmp_path / "server.log"
    path.write_text("\n".join(listed))
    found, _ = read(path)
    # Two of the greatest length, 60 characters, however they are written.
    assert [call.fidelity for call in found] == ["output_reformatted"] * 2 + ["exact"]
    assert found[0].prompt.content == long.encode()


def test_logs_of_one_name_are_servers_of_their_own(tmp_path: Path) -> None:
    line = "Received request a: prompt: {!r}, params: SamplingParams(n=1)\n"
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "server.log").write_text(logged(1, line.format(place * 9)))
    found, _ = read(*paths.find(tmp_path))
    assert len({call.session for call in found}) == 2


def test_the_trace_is_the_same_however_many_processes_read(tmp_path: Path) -> None:
    lines(tmp_path, "a.jsonl", payload(1, [user("a")]))
    lines(tmp_path, "b.jsonl", payload(2, [user("a"), said("answer 1"), user("b")]))
    line = "Received request a: prompt: {!r}, params: SamplingParams(n=1)\n"
    for number in range(2):
        (tmp_path / f"{number}.log").write_text(logged(number, line.format(f"boat {number}")))
    files = paths.find(tmp_path)
    assert sorted(map(len, calls.parts([*files, tmp_path / "missing"]))) == [1, 1, 3]
    found = named_logs([str(tmp_path)])
    one, two = (ingest(found, Options(jobs=jobs)).trace for jobs in (1, 2))
    assert one.frame().to_dicts() == two.frame().to_dicts()
