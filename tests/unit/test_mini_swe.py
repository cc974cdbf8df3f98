"""mini-swe-agent: which responses are calls, and what their prompts hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.discover import default_logs
from agentkv_trace.ingest.mini_swe import calls, paths
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.tokenizers import load
from mini_logs import AT, answer, completion, mini, observed, system, user, words, write

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall


def read(*files: Path, strict: bool = True) -> tuple[list[LoggedCall], Notes]:
    notes = Notes(strict=strict)
    return list(calls.read(files, notes)), notes


def two_steps() -> list[dict[str, Any]]:
    return [
        system(),
        user("mend it"),
        answer(1, "looking", 100),
        observed(1, "a hole"),
        answer(2, "mended", 140),
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]


def test_a_call_has_the_messages_before_its_response(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path, "sail-7.traj.json", mini(two_steps())))
    assert [words(call.prompt) for call in found] == [
        ["system: You mend sails.", "user: mend it"],
        ["system: You mend sails.", "user: mend it", "assistant: looking", "tool: a hole"],
    ]
    assert words(found[1].path)[-1] == "assistant: mended"
    assert {(call.session, call.model, call.agent) for call in found} == {
        ("sail-7", "openai/sail-1", "mini-swe")
    }
    assert [call.logged_prompt_tokens for call in found] == [100, 140]
    assert (notes.counts["calls"], notes.counts["sessions"]) == (2, 1)


def test_what_is_the_agents_own_is_not_sent(tmp_path: Path) -> None:
    messages = two_steps()
    messages[2]["reasoning_content"] = "a hole, perhaps"
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages)))
    node = found[1].prompt.parent
    assert node is not None
    assert json.loads(node.content) == {
        "content": "looking",
        "role": "assistant",
        "reasoning_content": "a hole, perhaps",
    }


def test_a_reply_in_a_wrong_form_is_a_call_that_no_later_prompt_holds(tmp_path: Path) -> None:
    messages = two_steps()
    wrong = completion(5, "no command", 120, cached=64)
    messages.insert(4, user("use a command", interrupt_type="FormatError", response=wrong))
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages)))
    assert [call.logged_prompt_tokens for call in found] == [100, 120, 140]
    assert found[1].logged_cached_tokens == 64
    assert words(found[1].path)[-1] == "assistant: no command"
    assert words(found[2].prompt)[-2:] == ["tool: a hole", "user: use a command"]
    # It carries only a whole second.
    assert found[1].end_us >= found[1].start_us
    assert found[1].time_source == "estimated"


def test_interruptions_without_a_response_are_no_calls(tmp_path: Path) -> None:
    messages = two_steps()
    messages.insert(4, user("wait", interrupt_type="UserInterruption"))
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages)))
    assert len(found) == 2
    assert words(found[1].prompt)[-1] == "user: wait"


def test_times_are_those_of_response_and_tool(tmp_path: Path) -> None:
    found, _ = read(write(tmp_path, "a.traj.json", mini(two_steps())))
    assert found[1].start_us == round((AT + 15) * 1e6) + 10_000
    assert found[1].end_us == round((AT + 22) * 1e6) - 15_000
    # The second in which the response was made, its middle where the call took longer.
    assert found[0].start_us == round((AT + 1.5) * 1e6)


@pytest.mark.parametrize("form", ["mini-swe-agent-1", None])
def test_older_forms(tmp_path: Path, form: str | None) -> None:
    said = [{"role": "assistant", "content": text} for text in ("looking", "mended")]
    messages = [system(), user("mend it"), said[0], user("a hole"), said[1]]
    value: Any = messages
    if form is not None:
        value = mini(messages) | {"trajectory_format": form}
    path = write(tmp_path, "a.traj.json", value)
    assert paths.looks_like(path, path.read_bytes())
    found, _ = read(path)
    assert [len(words(call.prompt)) for call in found] == [2, 4]
    assert [(call.usage_source, call.time_source) for call in found] == [("none", "order_only")] * 2
    assert found[0].start_us < found[1].start_us


def test_responses_are_flattened_when_they_are_sent_again(tmp_path: Path) -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
    usage = {"input_tokens": 90, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 8}}
    response = {"object": "response", "id": "resp_1", "output": [item], "usage": usage}
    response |= {"model": "sail-2", "extra": {"actions": [], "timestamp": AT}}
    told = {"type": "function_call_output", "call_id": "c1", "output": "a hole"}
    messages = [system(), user("mend it"), response, told, answer(2, "mended")]
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages)))
    assert (found[0].logged_prompt_tokens, found[0].logged_cached_tokens) == (90, 8)
    assert words(found[1].prompt)[2:] == ["None: function_call", "None: function_call_output"]


def test_versions_models_and_their_classes_have_heads_of_their_own(tmp_path: Path) -> None:
    values = [mini(two_steps()), mini(two_steps(), mini_version="2.5.0")]
    values.append(mini(two_steps()))
    values[2]["info"]["config"]["model_type"] = "TextbasedModel"
    files = [write(tmp_path, f"{n}.traj.json", value) for n, value in enumerate(values)]
    found, _ = read(*files)
    heads = set()
    for call in found:
        node = call.prompt
        while node.parent is not None:
            node = node.parent
        heads.add(node.content)
    assert len(heads) == 3


def test_runs_of_one_task_are_sessions_of_their_own(tmp_path: Path) -> None:
    one = write(tmp_path / "run1", "sail-7.traj.json", mini(two_steps()))
    two = write(tmp_path / "run2", "sail-7.traj.json", mini(two_steps()[:4]))
    other = write(tmp_path / "run2", "sail-8.traj.json", mini(two_steps()))
    found, _ = read(one, two, other)
    sessions = list(dict.fromkeys(call.session for call in found))
    assert len(sessions) == 3
    assert sessions[2] == "sail-8"
    assert all(name.startswith("sail-7-") for name in sessions[:2])
    assert calls.parts([one, two, other]) == [[one, two], [other]]


# Bad input


def test_a_document_that_is_cut_off_gives_its_whole_messages(tmp_path: Path) -> None:
    path = write(tmp_path, "a.traj.json", mini(two_steps()))
    data = path.read_bytes()
    counts = []
    for end in range(0, len(data) - 1, 53):
        path.write_bytes(data[:end])
        found, notes = read(path, strict=False)
        counts.append(len(found))
        assert notes.skipped.total() == 1
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"[1, 2]", b"{", b"\0\0", b"null", b'{"messages": 3}', b"[" * 9000]
)
def test_other_content_is_no_trajectory(tmp_path: Path, data: bytes) -> None:
    bad = tmp_path / "bad.traj.json"
    bad.write_bytes(data)
    good = write(tmp_path, "good.traj.json", mini(two_steps()))
    found, _ = read(bad, tmp_path / "missing.traj.json", good, strict=False)
    assert len(found) == 2


def test_odd_fields_are_taken_as_missing(tmp_path: Path) -> None:
    messages = [*two_steps(), 7, {"role": 3}, {"role": "assistant", "content": None, "extra": 1}]
    messages += [{"role": "assistant", "extra": {"response": {"usage": [], "created": "x"}}}]
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages) | {"info": [1]}))
    assert len(found) == 4


def test_strict_stops_at_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.traj.json"
    path.write_bytes(b'{"messages": [')
    with pytest.raises(InputError, match=r"a\.traj\.json: no trajectory"):
        read(path)


# Interactive mode, other models, batches


def test_a_persons_command_is_no_call(tmp_path: Path) -> None:
    """In version 1 it is an assistant's message without a response, in version 2 a user's."""
    typed = {"role": "assistant", "content": "```bash\nls\n```"}
    asked = user("User command: ls", actions=[{"command": "ls"}])
    messages = [system(), user("mend it"), typed, user("planks"), answer(1, "looking"), asked]
    found, _ = read(write(tmp_path, "a.traj.json", mini([*messages, answer(2, "mended", 150)])))
    assert len(found) == 2
    assert words(found[0].prompt)[2:] == ["assistant: ```bash\nls\n```", "user: planks"]
    assert words(found[1].prompt)[-1] == "user: User command: ls"


def test_a_reply_in_a_wrong_form_may_be_text_without_its_response(tmp_path: Path) -> None:
    error = user("Give ONE action", interrupt_type="FormatError", model_response="none at all")
    messages = [system(), user("mend it"), error, answer(2, "mended", 150)]
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages)))
    assert len(found) == 2
    assert words(found[0].path)[-1] == "assistant: none at all"
    assert (found[0].usage_source, found[1].usage_source) == ("none", "logged")
    assert words(found[1].prompt)[-1] == "user: Give ONE action"


@pytest.mark.parametrize("status", ["LimitsExceeded", "TimeExceeded", "RuntimeError", ""])
def test_how_a_run_ended_does_not_matter(status: str, tmp_path: Path) -> None:
    messages = [*two_steps()[:-1], {"role": "exit", "content": status, "extra": {}}]
    more = {"exit_status": status, "submission": "", "traceback": "x"}
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages, **more)))
    assert len(found) == 2


def test_models_that_take_turns_have_prompts_of_their_own(tmp_path: Path) -> None:
    messages = [system(), user("mend it")]
    for number, name in enumerate(["sail-1", "rope-2", "sail-1"]):
        messages += [answer(number, f"step {number}", model_name=name), observed(number, "planks")]
    path = write(tmp_path, "a.traj.json", mini(messages))
    found, _ = read(path)
    assert [call.model for call in found] == ["sail-1", "rope-2", "sail-1"]
    with TraceBuilder(load("bytes")) as builder:
        for call in found:
            builder.add(call)
        trace = builder.finish({})
    assert trace.array("base").tolist() == [-1, -1, 0]


def test_images_are_sized_by_their_pixels(tmp_path: Path) -> None:
    head = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAYAAACqaXHe"
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{head}"}},
    ]
    seen = {"role": "user", "content": parts, "extra": {"timestamp": AT}}
    found, _ = read(write(tmp_path, "a.traj.json", mini([system(), seen, answer(1, "ok")])))
    assert words(found[0].prompt)[-1] == "image:4"
    assert "iVBOR" not in str(words(found[0].prompt))


def test_usage_of_providers_that_count_otherwise(tmp_path: Path) -> None:
    """What LiteLLM passes on of Anthropic's counts, with cache writes in the prompt or not."""
    usages = [
        {"prompt_tokens": 4, "completion_tokens": 7, "cache_creation_input_tokens": 6553},
        {
            "prompt_tokens": 6769,
            "completion_tokens": 7,
            "cache_creation_input_tokens": 209,
            "cache_read_input_tokens": 6553,
            "prompt_tokens_details": {"cached_tokens": 6553},
        },
        None,
    ]
    messages = [system(), user("mend it")]
    for number, usage in enumerate(usages):
        said = answer(number, f"step {number}")
        said["extra"]["response"]["usage"] = usage
        messages += [said, observed(number, "planks")]
    found, _ = read(write(tmp_path, "a.traj.json", mini(messages)))
    assert [call.logged_prompt_tokens for call in found] == [6557, 6769, None]
    assert [call.usage_source for call in found] == ["logged", "logged", "none"]


def test_a_batch_is_its_trajectories_and_nothing_else(tmp_path: Path) -> None:
    for task in ("sail-7", "sail-8"):
        write(tmp_path / task, f"{task}.traj.json", mini(two_steps()) | {"instance_id": task})
    (tmp_path / "preds.json").write_text('{"sail-7": {"model_patch": ""}}')
    (tmp_path / "exit_statuses_1790000000.yaml").write_text("Submitted: [sail-7]")
    (tmp_path / "minisweagent.log").write_text("INFO done")
    found, notes = read(*paths.find(tmp_path))
    assert [call.session for call in found] == ["sail-7"] * 2 + ["sail-8"] * 2
    # Equal beginnings are one prefix.
    assert found[0].prompt is found[2].prompt
    assert notes.skipped.total() == 0


def test_a_copy_of_a_run_counts_once(tmp_path: Path) -> None:
    for place in ("runs", "backup"):
        write(tmp_path / place, "sail-7.traj.json", mini(two_steps()))
    found, notes = read(*paths.find(tmp_path))
    assert len(found) == 2
    assert notes.counts["copies"] == 1


def test_compressed_trajectories(tmp_path: Path) -> None:
    plain = write(tmp_path, "sail-7.traj.json", mini(two_steps()))
    for codec in ("zstd", "gzip"):
        ending = {"zstd": "zst", "gzip": "gz"}[codec]
        path = tmp_path / codec / f"sail-7.traj.json.{ending}"
        path.parent.mkdir()
        with pa.CompressedOutputStream(str(path), codec) as file:
            file.write(plain.read_bytes())
        assert paths.find(path.parent) == [path]
        found, _ = read(path)
        assert [call.session for call in found] == ["sail-7"] * 2


# Where they are


def test_trajectories_are_told_by_their_content(tmp_path: Path) -> None:
    new = write(tmp_path / "x", "any.json", mini(two_steps()))
    bare = write(tmp_path / "x", "old.traj.json", [system(), user("hi"), answer(1, "a")])
    write(tmp_path, "chat.json", [system(), user("hi"), answer(1, "a")])
    fenced = {"role": "assistant", "content": "THOUGHT\n\n```bash\nls\n```"}
    oldest = write(tmp_path / "x", "run.json", [system(), user("hi"), fenced])
    write(tmp_path, "other.json", {"info": {"model_stats": {}}, "trajectory": [], "history": []})
    (tmp_path / "notes.txt").write_text("hi")
    assert paths.find(tmp_path) == sorted([new, bare, oldest])


def test_the_last_run_is_found_on_this_machine(tmp_path: Path) -> None:
    path = write(tmp_path / ".config/mini-swe-agent", "last.traj.json", mini(two_steps()))
    found = default_logs({"HOME": str(tmp_path)})
    assert {source.name: files for source, files in found.logs.items()} == {"mini-swe": [path]}


def test_roots_follow_the_environment(tmp_path: Path) -> None:
    assert str(paths.roots({"HOME": "/h"})[0]) == "/h/.config/mini-swe-agent"
    assert str(paths.roots({"XDG_CONFIG_HOME": "/c"})[0]) == "/c/mini-swe-agent"
    named = paths.roots({"HOME": "/h", "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path)})
    assert named == [tmp_path]
