"""SWE-agent: calls from queries, from what they were called first, and from histories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.mini_swe import paths as mini_paths
from agentkv_trace.ingest.swe_agent import calls, paths
from agentkv_trace.notes import Notes
from mini_logs import mini, system, user, words, write

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall

Json = dict[str, Any]


def read(*files: Path, strict: bool = True) -> tuple[list[LoggedCall], Notes]:
    notes = Notes(strict=strict)
    return list(calls.read(files, notes)), notes


def item(role: str, content: str, **fields: Any) -> Json:
    return {"role": role, "content": content, "agent": "main", "message_type": "x", **fields}


def asked(call: str) -> list[Json]:
    return [{"id": call, "type": "function", "function": {"name": "bash", "arguments": "{}"}}]


def step(query: list[Json], response: str, key: str = "query") -> Json:
    about = {"action": "ls", "observation": "a hole", "response": response, "thought": ""}
    return about | {"execution_time": 0.2, "state": {}, key: query, "extra_info": {}}


def run(steps: list[Json], **fields: Any) -> Json:
    stats = {"instance_cost": 0.1, "tokens_sent": 900, "tokens_received": 20, "api_calls": 2}
    info = {"model_stats": stats, "exit_status": "submitted", "swe_agent_version": "1.1.0"}
    config = json.dumps({"agent": {"model": {"name": "sail-1"}}})
    found = {"trajectory": steps, "history": [], "info": info, "replay_config": config}
    return found | {"environment": "main"} | fields


def two_steps(key: str = "query") -> list[Json]:
    first = [item("system", "You mend sails."), item("user", "mend it")]
    said = item("assistant", "looking", action="ls", tool_calls=asked("c1"), thought="looking")
    told = item("tool", "a hole", tool_call_ids=["c1"], cache_control={"type": "ephemeral"})
    return [step(first, "looking", key), step([*first, said, told], "mended", key)]


@pytest.mark.parametrize("key", ["query", "messages"])
def test_each_steps_query_is_a_prompt(tmp_path: Path, key: str) -> None:
    path = write(tmp_path, "sail-7.traj", run(two_steps(key)))
    found, notes = read(path)
    assert [words(call.prompt) for call in found] == [
        ["system: You mend sails.", "user: mend it"],
        ["system: You mend sails.", "user: mend it", "assistant: looking", "tool: a hole"],
    ]
    assert {(call.session, call.model, call.kind, call.fidelity) for call in found} == {
        ("sail-7", "sail-1", "turn", "exact")
    }
    assert words(found[1].path)[-1] == "assistant: mended"
    assert found[0].path is found[1].prompt.parent
    assert (notes.counts["calls"], notes.counts["sessions"]) == (2, 1)


def test_only_what_is_sent_is_in_a_prompt(tmp_path: Path) -> None:
    found, _ = read(write(tmp_path, "a.traj", run(two_steps())))
    node = found[1].prompt
    told = {"role": "tool", "content": "a hole", "tool_call_id": "c1"}
    assert json.loads(node.content) == told
    assert node.parent is not None
    assert set(json.loads(node.parent.content)) == {"role", "content", "tool_calls"}


def test_totals_are_the_clients_estimate_and_no_usage(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path, "a.traj", run(two_steps())))
    assert {(call.usage_source, call.logged_prompt_tokens) for call in found} == {("none", None)}
    assert notes.counts["totals that the client estimated, not used"] == 1


def test_steps_have_an_order_and_no_times(tmp_path: Path) -> None:
    found, _ = read(write(tmp_path, "a.traj", run(two_steps())))
    assert [(call.start_us, call.time_source) for call in found] == [
        (0, "order_only"),
        (1, "order_only"),
    ]


def test_a_query_again_after_a_wrong_form_is_a_call(tmp_path: Path) -> None:
    steps = two_steps()
    wrong = item("assistant", "no command")
    error = item("user", "use a command")
    again = step([*steps[0]["query"], wrong, error], "looking")
    found, _ = read(write(tmp_path, "a.traj", run([steps[0], again, steps[1]])))
    # What was asked again is in no later query.
    assert [call.kind for call in found] == ["turn", "turn", "fold"]


def test_attempts_are_sessions_and_the_best_ones_copy_does_not_count(tmp_path: Path) -> None:
    attempts = [run(two_steps()), run(two_steps()[:1])]
    value = run(two_steps(), attempts=attempts)
    found, _ = read(write(tmp_path, "sail-7.traj", value))
    assert [call.session for call in found] == ["sail-7-0", "sail-7-0", "sail-7-1"]


# The first generation


def history(steps: int) -> list[Json]:
    items = [
        item("system", "You mend sails."),
        item("user", "a demonstration\nof mending", is_demo=True),
        item("user", "mend it"),
    ]
    for number in range(steps):
        items.append(item("assistant", f"step {number}", thought="", action="ls"))
        items.append(item("user", f"seen {number}\nand more"))
    return items


def old_run(items: list[Json]) -> Json:
    steps = [{"action": "ls", "observation": "", "response": "", "state": "{}", "thought": ""}]
    info = {"model_stats": {"tokens_sent": 1}}
    return {"environment": "swe_main", "trajectory": steps, "history": items, "info": info}


def test_old_observations_are_one_line_each(tmp_path: Path) -> None:
    path = write(tmp_path, "old.traj", old_run(history(8)))
    assert paths.looks_like(path, path.read_bytes())
    found, _ = read(path)
    assert len(found) == 8
    last = words(found[7].prompt)
    assert last[:3] == [
        "system: You mend sails.",
        "user: a demonstration\nof mending",
        "user: mend it",
    ]
    told = last[4::2]
    assert told[:2] == ["user: Old output omitted (2 lines)"] * 2
    assert told[2:] == [f"user: seen {number}\nand more" for number in range(2, 7)]
    # The first, and the last five, are whole: from the seventh message on each prompt is rewritten.
    assert [call.kind for call in found] == ["turn"] * 6 + ["fold"] * 2
    assert {call.fidelity for call in found} == {"output_reformatted"}


def test_agents_of_one_history_are_sessions(tmp_path: Path) -> None:
    other = [item("system", "You sew."), item("user", "sew"), item("assistant", "sewn")]
    items = history(1) + [{**each, "agent": "sewer"} for each in other]
    found, _ = read(write(tmp_path, "old.traj", old_run(items)))
    assert [call.session for call in found] == ["old", "old-sewer"]
    assert words(found[1].prompt) == ["system: You sew.", "user: sew"]


def test_demonstrations_are_no_calls(tmp_path: Path) -> None:
    items = history(1)
    items.insert(2, item("assistant", "as shown", is_demo=True))
    found, _ = read(write(tmp_path, "old.traj", old_run(items)))
    assert len(found) == 1
    assert "assistant: as shown" in words(found[0].prompt)


# Bad input


def test_a_document_that_is_cut_off_gives_its_whole_steps(tmp_path: Path) -> None:
    path = write(tmp_path, "a.traj", run(two_steps()))
    data = path.read_bytes()
    counts = []
    for end in range(1, len(data) - 1, 61):
        path.write_bytes(data[:end])
        found, notes = read(path, strict=False)
        counts.append(len(found))
        assert notes.skipped.total() == 1
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"\0",
        b'{"trajectory": 3}',
        b'{"trajectory": [1]}',
        b'{"history": [[]]}',
    ],
)
def test_other_content_loses_no_other_file(tmp_path: Path, data: bytes) -> None:
    bad = tmp_path / "bad.traj"
    bad.write_bytes(data)
    good = write(tmp_path, "good.traj", run(two_steps()))
    found, _ = read(bad, tmp_path / "missing.traj", good, strict=False)
    assert len(found) == 2


def test_odd_fields_are_taken_as_missing(tmp_path: Path) -> None:
    steps = [*two_steps(), step([{"role": 3, "content": None}, {}], 7)]  # type: ignore[arg-type]
    value = run(steps, info=[1], replay_config="no json")
    found, _ = read(write(tmp_path, "a.traj", value))
    assert len(found) == 3


# Where they are


def test_trajectories_are_told_by_their_content_and_from_minis(tmp_path: Path) -> None:
    own = write(tmp_path / "x", "any.json", run(two_steps()))
    old = write(tmp_path / "x", "old.traj", old_run(history(1)))
    tried = write(tmp_path / "x", "tried.traj", {"attempts": [run(two_steps())]})
    other = write(tmp_path / "x", "mini.traj.json", mini([system(), user("hi")]))
    write(tmp_path, "chat.json", {"messages": []})
    assert paths.find(tmp_path) == sorted([own, old, tried])
    assert mini_paths.find(tmp_path) == [other]
    assert paths.roots({}) == []
