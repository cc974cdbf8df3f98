"""Every broken prompt of the catalogue is found, classed right and measured right."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import broken_prompts
from agentkv_trace.cli.trace_or_logs import load_any
from agentkv_trace.report.breaks.build import build_explanation
from broken_prompts import VARIANTS, made, path_bytes, prompt_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.store import Trace

BETWEEN_SESSIONS = ("session_head",)


def loaded(name: str | None, folder: Path) -> Trace:
    log = broken_prompts.write(made(name), folder / "requests.jsonl")
    return load_any([f"requests:{log}"], None, bytes_per_token=4.0, quiet=True)


def common(one: bytes, other: bytes) -> int:
    """Return with how many equal bytes both begin."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def lost_by_comparison(requests: list[broken_prompts.Request], chunk: int) -> dict:
    """Compare whole prompts, byte by byte: tokens lost by session and index of the call."""
    paths: list[tuple[str, bytes]] = []
    last: dict[str, bytes] = {}
    index: Counter[str] = Counter()
    lost = {}
    for request, later in zip(requests, followers(requests), strict=True):
        session, model, prompt = request["session"], request["body"]["model"], prompt_bytes(request)
        reused = max(
            (common(prompt, path) // chunk for name, path in paths if name == model),
            default=0,
        )
        if session in last:
            allowed = min(len(last[session]) // chunk, len(prompt) // chunk)
            if allowed > reused:
                lost[session, index[session]] = (allowed - reused) * 16
        index[session] += 1
        last[session] = resent(request, later)
        paths.append((model, last[session]))
    return lost


def followers(requests: list[broken_prompts.Request]) -> list[broken_prompts.Request | None]:
    """Return the next request of each one's session."""
    coming: dict[str, broken_prompts.Request] = {}
    found = []
    for request in reversed(requests):
        found.append(coming.get(request["session"]))
        coming[request["session"]] = request
    return found[::-1]


def resent(request: broken_prompts.Request, later: broken_prompts.Request | None) -> bytes:
    """Return prompt and output as the next request sends it again, else as it came."""
    prompt = prompt_bytes(request)
    if later is None or not prompt_bytes(later).startswith(prompt):
        return path_bytes(request)
    items = later["body"]["input"][len(request["body"]["input"]) :]
    made = list(itertools.takewhile(broken_prompts.made_by_model, items))
    return prompt + b"".join(map(broken_prompts.encoded, made))


@pytest.mark.parametrize("name", VARIANTS)
def test_found_classed_and_measured(name: str, tmp_path: Path) -> None:
    trace = loaded(name, tmp_path)
    found = build_explanation(trace)
    _, kind, cause = VARIANTS[name]
    assert {(row.break_class, row.cause) for row in found.causes} == {(kind, cause)}
    expected = lost_by_comparison(made(name), trace.meta.tokenizer["bytes_per_chunk"])
    measured = {(row.session, row.index): row.lost_tokens for row in found.breaks}
    if cause in BETWEEN_SESSIONS:
        assert expected == {}
        assert len(measured) == broken_prompts.SESSIONS - 1
    else:
        assert measured == expected
        assert measured


def test_nothing_is_reported_on_unbroken_prompts(tmp_path: Path) -> None:
    found = build_explanation(loaded(None, tmp_path))
    assert (found.causes, found.breaks, found.lost_tokens) == ((), (), 0)


def test_the_place_is_where_the_prompts_part(tmp_path: Path) -> None:
    for name, place in (
        ("date in the system prompt", "system prompt, message 1 of role system"),
        ("shuffled tools", "tools, definition 1"),
        ("pruned tool outputs", "tool output 1"),
        ("whitespace at the end of a message", "message 2 of role user"),
    ):
        trace = loaded(name, tmp_path)
        requests = made(name)
        rows = build_explanation(trace).breaks
        assert place in {row.place for row in rows}
        chunk = trace.meta.tokenizer["bytes_per_chunk"]
        by_call: dict[str, list[broken_prompts.Request]] = {}
        for request in requests:
            by_call.setdefault(request["session"], []).append(request)
        for row in rows:
            before = by_call[row.session][row.index - 1]
            parts_at = common(path_bytes(before), prompt_bytes(by_call[row.session][row.index]))
            assert row.chunk == parts_at // chunk
            assert row.token * chunk <= parts_at * 16 < (row.chunk + 1) * chunk * 16
