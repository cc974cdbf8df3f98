"""What `explain` says of calls that lost their prefix, and in which forms."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from markdown_it import MarkdownIt

import json_schema
from agentkv_trace.advise.break_cost import Cost
from agentkv_trace.advise.break_words import CAUSES, CLASSES
from agentkv_trace.advise.economics import prefill_s
from agentkv_trace.profiles.flops import prefill_cost
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report.breaks import csv as csv_form
from agentkv_trace.report.breaks import json as json_form
from agentkv_trace.report.breaks import markdown, model, terminal
from agentkv_trace.report.breaks.build import build_explanation
from agentkv_trace.tiers.capacity import Deployment
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import Node
from made import call, text

if TYPE_CHECKING:
    from agentkv_trace.report.breaks.model import Explanation

SECOND = 1_000_000


def says(role: str, words: str) -> bytes:
    return json.dumps({"role": role, "content": words}).encode()


class Talk:
    """A session made call by call."""

    def __init__(self, builder: TraceBuilder, session: str, root: Node, **fields: Any) -> None:
        self.builder, self.session, self.fields = builder, session, fields
        self.node = root
        self.at = 0

    def say(self, *words: str, after_s: int = 1, **fields: Any) -> None:
        """Make a call whose prompt goes on with a user's message."""
        self.at += after_s * SECOND
        for each in words:
            self.node = self.node.text(says("user", each))
        self.make(self.node, **fields)

    def make(self, prompt: Node, **fields: Any) -> None:
        made = call(self.session, prompt, self.at, **self.fields | fields)
        made.path = self.node = prompt.text(says("assistant", f"yes {self.at} " * 20))
        made.end_us = self.at + 10
        self.builder.add(made)


def explained(builder: TraceBuilder, *costs: Cost) -> Explanation:
    return build_explanation(builder.finish({}, fixed_bytes_per_token=4.0), costs)


def kinds(found: Explanation) -> list[tuple[str, str | None]]:
    return [(row.break_class, row.cause) for row in found.breaks]


LONG = "words and words " * 30


def test_a_session_that_only_grows_loses_nothing() -> None:
    builder = TraceBuilder(layout=True)
    talk = Talk(builder, "a", Node.head("h"))
    for number in range(5):
        talk.say(f"{number} {LONG}")
    found = explained(builder)
    assert (found.breaks, found.causes, found.lost_tokens) == ((), (), 0)
    assert found.layout


def test_a_fold_and_the_call_that_makes_it() -> None:
    builder = TraceBuilder(layout=True)
    head = Node.head("h", typical_tokens=160).text(says("system", LONG))
    talk = Talk(builder, "a", head)
    for number in range(12):
        talk.say(f"{number} {LONG}")
    old = talk.node
    other = Node.head("h", "compaction", typical_tokens=16).text(says("user", LONG * 3))
    talk.make(other, kind="compaction", fidelity="compaction_estimated")
    talk.node = head
    talk.say("Notes: " + LONG * 4, kind="fold")
    talk.say("go on")
    found = explained(builder)
    assert kinds(found) == [("history_folded", "fold_request"), ("history_folded", None)]
    assert [row.before.index for row in found.breaks] == [11, 11]
    assert old is not talk.node


def test_an_expired_session_is_told_from_a_broken_prompt() -> None:
    builder = TraceBuilder(layout=True)
    talk = Talk(builder, "a", Node.head("h").text(text(1) * 20))
    usage = {"usage_source": "logged", "logged_prompt_tokens": 1000}
    talk.say(LONG, logged_cached_tokens=0, **usage)
    talk.say(LONG, logged_cached_tokens=800, **usage)
    talk.say(LONG, after_s=600, kind="resume", logged_cached_tokens=0, **usage)
    talk.say(LONG, after_s=600, kind="resume", logged_cached_tokens=900, **usage)
    found = explained(builder)
    assert kinds(found) == [("resumed_expired", None)]
    assert found.breaks[0].index == 2
    assert found.breaks[0].waited_s == pytest.approx(600, abs=0.1)
    assert [ref.index for ref in found.intact] == [3]


def test_a_short_pause_is_no_expiry() -> None:
    builder = TraceBuilder(layout=True)
    talk = Talk(builder, "a", Node.head("h").text(text(1) * 20))
    usage = {"usage_source": "logged", "logged_prompt_tokens": 1000}
    talk.say(LONG, logged_cached_tokens=500, **usage)
    talk.say(LONG, after_s=30, logged_cached_tokens=0, **usage)
    assert explained(builder).breaks == ()


def test_a_sub_agent_with_another_head() -> None:
    builder = TraceBuilder(layout=True)
    parent = Talk(builder, "p", Node.head("main", typical_tokens=160))
    parent.say(LONG)
    for number, head in enumerate(("child", "child", "main")):
        child = Talk(builder, f"c{number}", Node.head(head, typical_tokens=160))
        child.at = (number + 2) * SECOND
        child.say(LONG * 2, kind="subagent", parent_session="p")
    found = explained(builder)
    # The second shares its head with the first, the third with the parent.
    assert [(row.session, row.break_class) for row in found.breaks] == [("c0", "subagent_head")]
    assert found.breaks[0].lost_tokens == 160


def test_without_a_layout_only_models_and_folds_are_told_apart() -> None:
    builder = TraceBuilder()
    talk = Talk(builder, "a", Node.head("h"))
    talk.say(LONG, model="one")
    talk.make(Node.head("k").text(says("user", LONG)), model="two")
    talk.make(Node.head("l").text(says("user", LONG + "x")), model="two")
    found = explained(builder)
    assert not found.layout
    assert kinds(found) == [("model_changed", None), ("unknown", None)]
    assert found.breaks[0].place == ""
    assert "ingest --with-layout" in terminal.render(found)


def test_the_cost_is_the_prefill_of_what_was_lost() -> None:
    gpu, profile = find_gpu("h100-sxm"), find_model("qwen3-8b")
    found = explained(broken(), Cost(gpu, profile, Deployment(tp=2)))
    (row,) = found.breaks
    from agentkv_trace.advise.economics import Machine

    peak = gpu.bf16_tflops * 1e12 * 2
    machine = Machine(linear_flops=peak, attention_flops=peak, kv_rank_bytes=0)
    start, end = row.reused_tokens, row.reused_tokens + row.lost_tokens
    expected = prefill_s(prefill_cost(profile), start, end, machine, gpu.prefill_mfu[1])
    assert row.cost_s == (pytest.approx(float(expected)),)
    assert found.causes[0].cost_s == row.cost_s
    assert (found.gpus[0].gpu, found.gpus[0].tp) == (gpu.id, 2)


def broken() -> TraceBuilder:
    builder = TraceBuilder(layout=True)
    head = Node.head("h").text(says("system", LONG))
    talk = Talk(builder, "a|*b", head, model="m<1>")
    talk.say(LONG)
    talk.make(head.text(says("user", LONG + " ")).text(says("user", LONG * 9)))
    return builder


# Forms


@pytest.fixture(scope="module")
def found() -> Explanation:
    gpu, profile = find_gpu("h100-sxm"), find_model("qwen3-8b")
    return explained(broken(), Cost(gpu, profile, Deployment()))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_terminal_fits_its_width_and_says_all(found: Explanation, width: int) -> None:
    said = terminal.render(found, width=width)
    assert max(map(len, said.splitlines())) <= width
    words = " ".join(said.split())
    for expected in (
        "2 calls of 1 session",
        "message edited: white space changes",
        "do: resend messages byte for byte",
        "see: a|*b call 1",
        "in message 1 of role user",
        "on H100 SXM",
    ):
        assert expected in words


def test_json_keeps_to_its_schema(found: Explanation) -> None:
    schema = json_schema.load("agentkv_trace.report", "explain.schema.json")
    value = json.loads(json_form.render(found))
    json_schema.check(value, schema, schema)
    for bad in ({"schema": "agentkv-trace/explain/2"}, {"calls": -1}, {"extra": 1}):
        with pytest.raises(AssertionError):
            json_schema.check(value | bad, schema, schema)


def test_the_schema_names_all_classes_and_causes_and_fields() -> None:
    defs = (schema := json_schema.load("agentkv_trace.report", "explain.schema.json"))["$defs"]
    assert defs["class"]["enum"] == list(CLASSES)
    assert defs["cause_name"]["enum"] == [None, *CAUSES]
    for part, kind in (
        (schema, model.Explanation),
        (defs["cause"], model.CauseRow),
        (defs["break"], model.BreakRow),
        (defs["gpu"], model.CostBasis),
        (defs["call"], model.CallRef),
    ):
        assert part["required"] == list(part["properties"]) == list(kind.__slots__)


def test_csv_has_a_row_per_break(found: Explanation) -> None:
    (row,) = csv.DictReader(StringIO(csv_form.render(found)))
    assert row["session"] == "a|*b"
    assert int(row["lost_tokens"]) == found.breaks[0].lost_tokens
    assert float(row["cost_s_h100-sxm"]) == found.breaks[0].cost_s[0]


def test_markdown_is_rendered_with_names_as_they_are(found: Explanation) -> None:
    html = MarkdownIt().enable("table").render(markdown.render(found))
    assert "<td>a|*b</td>" in html
    assert html.count("<tr>") == 2
    assert "<strong>message edited: white space changes</strong>" in html


def test_no_text_of_prompts_is_in_any_form(found: Explanation) -> None:
    for said in (
        terminal.render(found),
        json_form.render(found),
        csv_form.render(found),
        markdown.render(found),
    ):
        assert "words and words" not in said


def test_at_most_so_many_breaks_are_listed_those_that_lost_most(found: Explanation) -> None:
    builder = TraceBuilder(layout=True)
    for number in range(4):
        head = Node.head("h").text(says("system", LONG + str(number)))
        talk = Talk(builder, f"s{number}", head)
        talk.say(LONG)
        talk.make(head.text(says("user", LONG + " ")).text(says("user", LONG * (number + 2))))
    whole = builder.finish({}, fixed_bytes_per_token=4.0)
    every, some = build_explanation(whole), build_explanation(whole, limit=2)
    assert replace(some, breaks=every.breaks) == every
    most = sorted(row.lost_tokens for row in every.breaks)[-2:]
    assert sorted(row.lost_tokens for row in some.breaks) == most
