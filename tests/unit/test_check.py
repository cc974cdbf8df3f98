"""Gates, configuration, baseline and forms of `check`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from markdown_it import MarkdownIt

import json_schema
from agentkv_trace.check import baseline as baselines
from agentkv_trace.check import github, junit, markdown, model, text
from agentkv_trace.check import json as json_form
from agentkv_trace.check.config import (
    SETTINGS,
    Config,
    find_config,
    load_config,
    parse_config,
    shown,
)
from agentkv_trace.check.figures import measure
from agentkv_trace.check.judge import NO_CAUSE, judge
from agentkv_trace.check.model import Measured
from agentkv_trace.check.rules import FIGURES, RULES, figure
from agentkv_trace.check.values import Tolerance
from agentkv_trace.engine.mrc import miss_ratio_curve
from agentkv_trace.errors import InputError
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import Node
from made import call
from made import trace as made_trace

if TYPE_CHECKING:
    from agentkv_trace.check.model import CheckResult
    from agentkv_trace.trace.store import Trace

FILE = Path("agentkv-trace.toml")


def says(role: str, words: str) -> bytes:
    return json.dumps({"role": role, "content": words}).encode()


def talks(*, dated: bool = False, agents: tuple[str, ...] = ("one",)) -> Trace:
    """Return sessions of eight calls, one per agent; dated ones change their head each call."""
    builder = TraceBuilder(layout=True)
    for at, agent in enumerate(agents):
        messages: list[bytes] = []
        for number in range(8):
            stamp = f"at 08:00:{number:02} " if dated and at == 0 else ""
            prompt = Node.head("h").text(says("system", stamp + "rules " * 50))
            messages.append(says("user", f"{agent} {number} " + "ask " * 60))
            for each in messages:
                prompt = prompt.text(each)
            answer = says("assistant", f"{number} " + "yes " * 60)
            node = call(f"s{at}", prompt, number * 1000 + at, agent=agent, model="m")
            node.path = prompt.text(answer)
            builder.add(node)
            messages.append(answer)
    return builder.finish({}, fixed_bytes_per_token=4.0)


def config(**table: Any) -> Config:
    return parse_config({key.replace("_", "-"): value for key, value in table.items()}, FILE)


def checked(trace: Trace, settings: Config, before: Trace | None = None) -> CheckResult:
    known = before and baselines.make(before, measure(before, settings), settings)
    return judge(trace, measure(trace, settings), settings, known)


# Rules


def test_every_rule_is_about_a_figure_there_is() -> None:
    names = {each.name for each in FIGURES}
    assert {rule.figure for rule in RULES} <= names
    assert {need for rule in RULES for need in rule.needs} <= {name for name, *_ in SETTINGS}


def test_figures_are_those_of_the_curve() -> None:
    trace = talks()
    curve = miss_ratio_curve(trace)
    values = {one.name: one.value for one in measure(trace, config(capacity="40chunks")).measured}
    assert values["hit_ratio"] == curve.prefix_hit_ratio(40)
    whole = {one.name: one.value for one in measure(trace, config()).measured}
    assert whole["hit_ratio"] == curve.ceiling
    assert whole["working_set_tokens"] == curve.capacity_for(prefix_hit_ratio=curve.ceiling) * 16
    assert (whole["lost_tokens"], whole["fidelity"]) == (0, "exact")


@pytest.mark.parametrize(
    ("gates", "passes"),
    [
        ({"min_hit_ratio": 0.5}, True),
        ({"min_hit_ratio": "99%"}, False),
        ({"max_working_set": "1Mtok"}, True),
        ({"max_working_set": 160}, False),
        ({"max_working_set": "1GiB", "profile": "qwen3-8b"}, True),
        ({"min_next_call_reuse": 1.0}, True),
        ({"max_lost_tokens": 0}, True),
        ({"max_lost_share": 0.0}, True),
        ({"max_head_change_tokens": 0}, True),
        ({"min_fidelity": "exact"}, True),
        ({"max_host_size": "1GiB", "profile": "qwen3-8b", "gpu": "h100-sxm"}, True),
        ({"no_thrash": True, "profile": "qwen3-8b", "gpu": ["h100-sxm"], "agents": 4}, True),
        ({"min_hit_ratio": 0.5, "profile": "qwen3-8b", "gpu": ["h100-sxm", "h20"]}, True),
    ],
)
def test_gates_on_a_good_trace(gates: dict[str, Any], passes: bool) -> None:
    result = checked(talks(), config(**gates))
    assert result.passed is passes
    assert result.findings


def test_thrashing_and_host_size_are_what_the_report_says() -> None:
    words = [range(start, start + 200) for start in (0, 1000, 2000)] * 4
    trace = made_trace(*words, sessions=list("abc") * 4)
    settings = {"profile": "qwen3-8b", "gpu": "h100-sxm", "gpu_kv_tokens": 4000, "recover": 1.0}
    result = checked(trace, config(max_host_size="1MiB", no_thrash=True, agents=3, **settings))
    host, thrash = result.findings
    per_token = 36 * 2 * 8 * 128 * 2
    assert host.value == 600 * 16 * per_token
    assert (host.passed, thrash.value, thrash.passed) == (False, True, False)
    assert "at 3 agents" in thrash.where
    allowed = config(no_thrash=False, agents=3, **settings)
    assert checked(trace, allowed).passed


@pytest.mark.parametrize(("agents", "passes"), [(2, True), (3, False), (100, False)])
def test_agents_thrash_from_the_replayed_onset_on(agents: int, passes: bool) -> None:
    # Two contexts of 200 chunks fit; in the log one session follows the other.
    words = [range(start, start + 200) for start in range(0, 4000, 1000) for _ in range(4)]
    trace = made_trace(*words, sessions=[name for name in "abcd" for _ in range(4)])
    settings = {"profile": "qwen3-8b", "gpu": "h100-sxm", "gpu_kv_tokens": 6600}
    assert checked(trace, config(no_thrash=True, **settings)).passed
    (found,) = checked(trace, config(no_thrash=True, agents=agents, **settings)).findings
    assert found.passed is passes
    assert f"at {agents} agents" in found.where


def test_a_failed_gate_names_the_cause() -> None:
    result = checked(talks(dated=True), config(max_head_change_tokens=0, min_hit_ratio=0.5))
    assert not result.passed
    for finding in result.failed:
        assert finding.cause is not None
        assert finding.cause.startswith("head changed: a date or time changes: 7 calls lost ")
        assert "system prompt, message 1 of role system" in finding.cause


def test_a_failed_gate_without_breaks_says_so() -> None:
    (finding,) = checked(talks(), config(min_hit_ratio=0.99)).findings
    assert finding.cause == NO_CAUSE


def test_gates_of_an_agent_see_its_calls_only() -> None:
    trace = talks(dated=True, agents=("one", "two"))
    gates = {"max-head-change-tokens": 0, "min-hit-ratio": 0.5, "min-next-call-reuse": 0.9}
    result = checked(trace, config(agent={"one": gates, "two": gates, "none": gates}))
    passed = {(one.scope, one.rule): one.passed for one in result.findings}
    assert passed == {
        (f"agent {name}", key): name == "two" for name in ("one", "two") for key in gates
    }
    assert [note for note in result.notes if "agent none" in note]


def test_what_a_gate_needs_is_an_error() -> None:
    for gates, message in (
        ({"max_host_size": "1GiB"}, "max-host-size needs profile and gpu"),
        ({"no_thrash": True, "profile": "qwen3-8b"}, "no-thrash needs gpu"),
        ({"gpu": ["h20"]}, "`gpu` needs a model"),
        ({"max_working_set": "1GiB"}, "needs --model"),
    ):
        with pytest.raises(InputError, match=message):
            checked(talks(), config(**gates))
    with pytest.raises(InputError, match="max-head-change-tokens needs the layout"):
        checked(made_trace([1, 2], [1, 3]), config(max_head_change_tokens=0))


# Configuration


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"min-hit-ration": 0.9}, "toml: min-hit-ration: unknown key; did you mean min-hit-ratio"),
        ({"qqq": 1}, "qqq: unknown key; known are "),
        ({"min-hit-ratio": 90}, "a share from 0 to 1"),
        ({"min-hit-ratio": True}, "must be a number"),
        ({"max-lost-tokens": -1}, "zero or more"),
        ({"max-working-set": "2 furlongs"}, "max-working-set: capacity '2 furlongs'"),
        ({"max-host-size": "2Mtok"}, "must be in bytes"),
        ({"min-fidelity": "good"}, "must be one of exact, "),
        ({"no-thrash": 1}, "true or false"),
        ({"tp": "two"}, "tp: must be a whole number"),
        ({"max-regression": "1 point"}, "'1pp' \\(points\\) or '5%'"),
        ({"max-regression": {"hit-ratios": "1pp"}}, "did you mean hit-ratio"),
        ({"max-regression": {"hit-ratio": "5%"}}, "must be in points"),
        ({"agent": {"codex": {"no-thrash": True}}}, "agent.codex.no-thrash: no gate for a single"),
        ({"agent": {"codex": 1}}, "must hold a table for each agent"),
    ],
)  # fmt: skip
def test_wrong_configuration_is_named_with_its_key(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_config(table, FILE)


def test_the_nearest_file_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.agentkv-trace.check]\nmin-hit-ratio = 0.5\n")
    (inner / "pyproject.toml").write_text("[project]\n")
    assert find_config(inner) == tmp_path / "pyproject.toml"
    assert load_config(tmp_path / "pyproject.toml").gates[0].limit == 0.5
    (inner.parent / "agentkv-trace.toml").write_text("[check]\nmin-hit-ratio = 0.7\n")
    assert find_config(inner) == inner.parent / "agentkv-trace.toml"


def test_a_file_without_the_table_or_that_is_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "agentkv-trace.toml"
    for content, message in (("a = 1\n", "has no table"), ("a =\n", "not TOML")):
        file.write_text(content)
        with pytest.raises(InputError, match=message):
            load_config(file)
    with pytest.raises(InputError, match="no such file"):
        load_config(tmp_path / "none.toml")


def test_what_is_shown_can_be_read_again() -> None:
    given = config(
        min_hit_ratio=0.5,
        max_working_set="2Mtok",
        no_thrash=True,
        gpu=["h20", "h100-sxm"],
        profile="qwen3-8b",
        agent={"my agent": {"min-next-call-reuse": "50%"}},
        max_regression={"hit-ratio": "2pp"},
    )
    import tomllib

    table = tomllib.loads(shown(given))["tool"]["agentkv-trace"]["check"]
    again = parse_config(table, FILE)
    assert (again.settings, again.gates) == (given.settings, given.gates)
    assert again.tolerances["hit_ratio"] == Tolerance(2, "pp")
    assert again.tolerances["working_set_tokens"] == Tolerance(5, "%")


def test_the_hash_changes_with_what_figures_mean_only() -> None:
    plain = config().hash
    assert config(min_hit_ratio=0.5, baseline="x", sources=["y"]).hash == plain
    assert config(capacity="2Mtok").hash != plain


# Baseline


def test_a_baseline_passes_on_its_own_trace_and_fails_on_a_broken_one() -> None:
    assert checked(talks(), config(), talks()).passed
    result = checked(talks(dated=True), config(), talks())
    assert {one.figure for one in result.failed} >= {"hit_ratio", "lost_share", "head_change_share"}
    assert all("a date or time changes" in (one.cause or "") for one in result.failed)


def test_a_baseline_is_small_stable_and_read_again(tmp_path: Path) -> None:
    trace = talks()
    made = baselines.make(trace, measure(trace, config()), config())
    written = baselines.render(made)
    file = tmp_path / "base.json"
    file.write_text(written)
    assert baselines.read(file) == made
    assert baselines.render(baselines.read(file)) == written
    assert len(written) < 1000
    assert max(map(len, written.splitlines())) < 100
    schema = json_schema.load("agentkv_trace.check", "baseline.schema.json")
    json_schema.check(json.loads(written), schema, schema)


def measured(value: float, error: float = 0.0, name: str = "hit_ratio") -> Measured:
    return Measured(name=name, figure=name, scope="all", where="", value=value, error=error)


@pytest.mark.parametrize(
    ("name", "before", "now", "tolerance", "passes"),
    [
        ("hit_ratio", 0.90, 0.89, "1pp", True),
        ("hit_ratio", 0.90, 0.889, "1pp", False),
        ("hit_ratio", 0.90, 0.99, "1pp", True),
        ("lost_share", 0.0, 0.0049, "0.5pp", True),
        ("lost_share", 0.0, 0.0051, "0.5pp", False),
        ("working_set_tokens", 1000, 1050, "5%", True),
        ("working_set_tokens", 1000, 1051, "5%", False),
        ("working_set_tokens", 1000, 10, "5%", True),
    ],
)
def test_regressions(name: str, before: float, now: float, tolerance: str, passes: bool) -> None:
    stored = {"value": before, "error": 0.0}
    found = baselines.compare(measured(now, name=name), stored, Tolerance.parse(tolerance))
    assert found.passed is passes


def test_never_fails_inside_the_errors_of_both() -> None:
    allowed = Tolerance.parse("1pp")
    stored = {"value": 0.90, "error": 0.02}
    assert baselines.compare(measured(0.851, 0.02), stored, allowed).passed
    assert not baselines.compare(measured(0.849, 0.02), stored, allowed).passed


def test_a_sampled_trace_passes_on_its_own_exact_baseline() -> None:
    """Whatever the seed, what differs is the sample and not the prompts."""
    prompts = [[*range(at % 40 * 100, at % 40 * 100 + 60), at + 9000] for at in range(200)]
    trace = made_trace(*prompts, sessions=[f"s{at % 40}" for at in range(200)])
    exact = baselines.make(trace, measure(trace, config()), config())
    for seed in range(5):
        settings = config(samples=300, seed=seed, max_regression="0pp")
        figures = measure(trace, settings)
        assert figures.sampling is not None
        errors = {one.name: one.error for one in figures.measured}
        assert errors["hit_ratio"] > 0
        result = judge(trace, figures, settings, replace(exact, config=settings.hash))
        (hits,) = [one for one in result.findings if one.figure == "hit_ratio"]
        assert hits.passed


def test_a_fidelity_may_not_get_weaker() -> None:
    stored = {"value": "head_estimated", "error": 0.0}
    allowed = Tolerance.parse(figure("fidelity").tolerance)
    weaker = Measured(name="fidelity", figure="fidelity", scope="all", where="", value="usage_only")
    same = replace(weaker, value="head_estimated")
    assert baselines.compare(same, stored, allowed).passed
    assert not baselines.compare(weaker, stored, allowed).passed


def test_figures_that_mean_other_things_are_not_compared() -> None:
    trace = talks()
    made = baselines.make(trace, measure(trace, config()), config())
    with pytest.raises(InputError, match="another configuration"):
        baselines.demand_comparable(made, trace, config(capacity="9Mtok"), FILE)
    other = replace(made, tokenizer={"name": "bytes", "bytes_per_chunk": 50})
    with pytest.raises(InputError, match=r"ingest with --bytes-per-token 3\.125"):
        baselines.demand_comparable(other, trace, config(), FILE)


def test_a_bad_baseline_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "base.json"
    for content, message in (
        ("{", "damaged baseline"),
        ('{"schema": "agentkv-trace/trace/1"}', "damaged baseline"),
        ('{"schema": "agentkv-trace/baseline/2"}', "newer agentkv-trace"),
        ('{"schema": "agentkv-trace/baseline/1"}', "damaged baseline"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=message):
            baselines.read(file)
    with pytest.raises(InputError, match="--update-baseline"):
        baselines.read(tmp_path / "none.json")


def test_a_figure_that_is_gone_is_a_note() -> None:
    settings = config(agent={"one": {"min-hit-ratio": 0.1}})
    result = checked(talks(agents=("two",)), settings, talks(agents=("one",)))
    assert any("of agent one is in the baseline and was not measured" in n for n in result.notes)


# Forms


@pytest.fixture(scope="module")
def result() -> CheckResult:
    found = checked(talks(dated=True), config(max_head_change_tokens=0), talks())
    nasty = "head: 50%, of\r\n<b>|x|*y*\x07</b>"
    first = replace(found.findings[0], message=nasty, cause=nasty)
    return replace(found, findings=(first, *found.findings[1:]))


def test_text_names_figure_limit_value_cause_and_next_command() -> None:
    found = checked(talks(dated=True), config(max_head_change_tokens=0))
    words = " ".join(text.render(found, width=60, source="logs/").split())
    value = found.findings[0].message.partition(": ")[2]
    assert f"FAIL tokens lost to head changes: {value} [max-head-change-tokens]" in words
    assert value.endswith(", at most 0 tokens")
    assert "cause: head changed: a date or time changes" in words
    assert "next: agentkv-trace explain logs/" in words
    assert words.endswith("1 of 1 gates failed on 8 calls of 1 sessions")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_text_fits_its_width(width: int) -> None:
    found = checked(talks(dated=True), config(max_head_change_tokens=0), talks())
    lines = text.render(found, width=width).splitlines()
    assert max(map(len, lines)) <= max(width, len(text.summary(found)))


def test_github_annotations_are_escaped(result: CheckResult) -> None:
    lines = github.render(result, source="a b").splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert len(commands) == len(result.failed)
    first = commands[0]
    assert first.startswith(
        "::error title=agentkv-trace%3A max-head-change-tokens::head: 50%25, of"
    )
    assert "%0D%0A<b>" in first
    assert first.endswith("%0Anext: agentkv-trace explain a b")
    assert len(lines) == len(commands) + 1


def test_github_shows_no_more_than_a_step_does(result: CheckResult) -> None:
    many = replace(result, findings=(result.findings[0],) * 30)
    assert github.render(many).count("::error ") == github.MOST


def test_junit_is_a_suite_of_cases(result: CheckResult) -> None:
    root = ElementTree.fromstring(junit.render(result))
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    for element in (root, suite):
        assert element.get("tests") == str(len(result.findings)) == str(len(list(suite)))
        assert element.get("failures") == str(len(result.failed))
        assert set(element.attrib) == {"name", "tests", "failures", "errors", "time"}
        assert (element.get("errors"), element.get("time")) == ("0", "0")
        assert element.get("name")
    for case, finding in zip(suite, result.findings, strict=True):
        assert case.tag == "testcase"
        assert set(case.attrib) == {"classname", "name", "time"}
        assert [child.tag for child in case] == ([] if finding.passed else ["failure"])
        for failure in case:
            assert set(failure.attrib) == {"type", "message"}
    assert "\x07" not in junit.render(result)
    names = [(case.get("classname"), case.get("name")) for case in suite]
    assert len(set(names)) == len(names)


def test_json_keeps_to_its_schema(result: CheckResult) -> None:
    schema = json_schema.load("agentkv_trace.check", "check.schema.json")
    value = json.loads(json_form.render(result))
    json_schema.check(value, schema, schema)
    part = schema["$defs"]["finding"]
    for listed, kind in ((schema, model.CheckResult), (part, model.Finding)):
        assert listed["required"] == list(listed["properties"]) == list(kind.__slots__)
    assert part["properties"]["figure"]["enum"] == [each.name for each in FIGURES]


def test_markdown_is_rendered_with_text_as_it_is(result: CheckResult) -> None:
    html = MarkdownIt().enable("table").render(markdown.render(result, source="logs/"))
    assert html.count("<tr>") == len(result.findings) + 1
    assert html.count("<td>failed</td>") == len(result.failed)
    assert "&lt;b&gt;|x|*y*" in html
    assert "<code>agentkv-trace explain logs/</code>" in html


def test_forms_hold_no_text_of_prompts() -> None:
    found = checked(talks(dated=True), config(max_head_change_tokens=0), talks())
    forms = (github.render, junit.render, json_form.render, markdown.render, text.render)
    for render in forms:
        assert "rules rules" not in render(found)
