"""The captures explained as what their scenarios are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.cli.trace_or_logs import load_any
from agentkv_trace.report.breaks.build import build_explanation
from conftest import REPO, SHARED

if TYPE_CHECKING:
    from agentkv_trace.report.breaks.model import Explanation

CAPTURES = SHARED / "captures"
captured = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="needs the captures in ../shared, which are not in this repo"
)

QUIET = ("single", "long-idle", "errors-retry", "killed-in-tool", "resume")
"""Scenarios whose prompts only grow."""


def explained(agent: str, scenario: str) -> Explanation:
    logs = CAPTURES / agent / scenario / "logs"
    if not logs.is_dir():
        pytest.skip(f"no capture of {agent} for {scenario}")
    return build_explanation(load_any([f"{agent}:{logs}"], None, quiet=True))


def counted(found: Explanation) -> dict[tuple[str, str | None], int]:
    return dict(Counter((row.break_class, row.cause) for row in found.breaks))


@captured
@pytest.mark.parametrize("agent", ["codex", "opencode", "openhands"])
@pytest.mark.parametrize("scenario", QUIET)
def test_prompts_that_only_grow_lose_nothing(agent: str, scenario: str) -> None:
    assert counted(explained(agent, scenario)) == {}


@captured
@pytest.mark.parametrize(
    ("agent", "cause", "folds"),
    [("codex", None, 2), ("opencode", None, 2), ("openhands", "frequent_folds", 3)],
)
def test_compaction(agent: str, cause: str | None, folds: int) -> None:
    found = explained(agent, "compaction")
    assert counted(found) == {
        ("history_folded", "fold_request"): folds,
        ("history_folded", cause): folds,
    }


@captured
def test_pruning() -> None:
    found = explained("opencode", "pruning")
    (row,) = found.breaks
    assert (row.break_class, row.place) == ("pruned", "tool output 1")
    # The prompt went from 71.3k to 43.3k tokens, the shared prefix to 7.0k, by another tokenizer.
    assert 33_000 < row.lost_tokens < 39_000
    assert 6_000 < row.reused_tokens < 7_500


@captured
@pytest.mark.parametrize("agent", ["codex", "opencode", "openhands"])
def test_sub_agents_have_another_head_and_share_it_among_each_other(agent: str) -> None:
    found = explained(agent, "subagents")
    assert counted(found) == {("subagent_head", None): 1}


@captured
def test_resume_goes_on_from_where_it_was() -> None:
    found = explained("codex", "resume")
    assert [ref.index for ref in found.intact] == [9]
    assert found.lost_tokens == 0


SAMPLES = {
    "codex": {
        ("history_folded", "fold_request"): 2,
        ("history_folded", None): 2,
        ("resumed_expired", None): 1,
        ("subagent_head", None): 1,
    },
    "opencode": {
        ("pruned", None): 1,
        ("history_folded", "fold_request"): 2,
        ("history_folded", "frequent_folds"): 2,
        ("subagent_head", None): 1,
    },
}


@pytest.mark.parametrize("agent", SAMPLES)
def test_the_samples_are_what_their_readme_says_and_nothing_else(agent: str) -> None:
    logs = REPO / "sample_traces" / agent
    found = build_explanation(load_any([str(logs)], None, quiet=True))
    assert counted(found) == SAMPLES[agent]
