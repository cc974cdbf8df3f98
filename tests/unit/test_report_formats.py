"""One report in every format."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from importlib.resources import files
from io import StringIO

import pytest
from rich.text import Text

from agentkv_trace.profiles.load import find_gpu, find_model, gpus
from agentkv_trace.report import csv as csv_report
from agentkv_trace.report import json as json_report
from agentkv_trace.report import markdown, model, terminal
from agentkv_trace.report.build import build_report
from agentkv_trace.report.model import Report, ReportOptions, TraceFacts
from naive import DistanceCurve, DistanceWorkload

FACTS = TraceFacts(calls=1234, sessions=1, longest_prompt_tokens=60_000, tokenizer="bytes")
CURVE = DistanceCurve([512] * 400 + [25_600] * 500, cold=100)
FOUR = ("rtx3090", "h20", "l4", "dgx-spark")
SCHEMA = json.loads(
    files("agentkv_trace.report").joinpath("schemas/report.schema.json").read_text("utf-8")
)


def report(*names: str, model: str = "llama-3.1-8b", **options: object) -> Report:
    chosen = [find_gpu(name) for name in names or FOUR]
    return build_report(
        DistanceWorkload(CURVE, FACTS), find_model(model), chosen, ReportOptions(**options)
    )


REPORTS = {
    "four": report(),
    "all": report(*gpus()),
    "tp": report(tp=8),
    "given": report(gpu_kv_tokens=20_000, kv_bytes_per_token=65_536.0),
    "small": report("rtx3090", "b200-sxm", model="llama-3.1-70b"),
    "nothing": report("h20"),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [40, 60, 80, 120, 160])
def test_terminal_fits_its_width(name: str, width: int) -> None:
    text = terminal.render(REPORTS[name], width=width)
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii()
    assert text.endswith("\n")


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 100])
def test_terminal_says_all_that_counts_at_any_width(name: str, width: int) -> None:
    words = " ".join(terminal.render(REPORTS[name], width=width).split())
    for finding in REPORTS[name].gpus:
        assert finding.summary in words
        for note in finding.notes:
            assert note in words
    for assumption in REPORTS[name].assumptions:
        assert assumption in words


def test_terminal_at_60() -> None:
    text = terminal.render(REPORTS["four"], width=60)
    head = text.split("- Hits: ")[0]
    assert head == (
        "RTX 3090: depends on the fixed time of a restore (5 to 25\n"
        "  ms; even at 5.15 ms): 64 GiB host memory: hits 40.0% ->\n"
        "  90.0%; loses 5.0 times the prefill time at worst, saves\n"
        "  30.3% of prefill time at best\n"
        "H20: neutral: buy no host memory: the GPU's KV pool holds\n"
        "  the whole working set\n"
        "L4: depends on the fixed time of a restore more than on\n"
        "  anything else (5 to 25 ms), but not on it alone: 64 GiB\n"
        "  host memory: hits 40.0% -> 90.0%; loses 5.7 times the\n"
        "  prefill time at worst, saves 19.3% of prefill time at best\n"
        "DGX Spark: neutral: buy no host memory: the GPU's KV pool\n"
        "  holds the whole working set\n"
        "\n"
        "Trace: 1,234 calls in 1 session, 16k tokens of prompts,\n"
        "  longest 60k tokens\n"
        "Model: Llama-3.1-8B, GQA, bf16 KV 128 KiB per token\n"
        "Backend: ideal LRU tiers\n"
        "Best: 90.0% of prompt tokens were processed before\n"
        "Working set: 410k tokens (50 GiB) for all of these hits,\n"
        "  410k tokens (50 GiB) for 95.0% of them\n"
        "Agents: 1 takes turns at 13 tokens a call: others touch 0\n"
        "  tokens (0 B) before one returns\n"
        "\n"
        "                    KV pool   Hits    Host     Hits\n"
        "GPU        Verdict   tokens  alone  memory  with it    Saves\n"
        "RTX 3090   depends    39.8k  40.0%  64 GiB    90.0%  -3.93 s\n"
        "H20        neutral     566k  90.0%    none        -        -\n"
        "L4         depends    27.6k  40.0%  64 GiB    90.0%  -4.24 s\n"
        "DGX Spark  neutral     748k  90.0%    none        -        -\n"
        "\n"
        "RTX 3090 by size of host memory (* judged)\n"
        "    Host         Computed  Restored    Lost\n"
        "  memory   Hits    tokens    tokens  unused    Saves\n"
        "    none  40.0%      9.6k         0       -        -\n"
        "  24 GiB  40.0%      9.6k         0    0.0%  -0.01 s\n"
        "  32 GiB  40.0%      9.6k         0    0.0%  -0.01 s\n"
        "  48 GiB  40.0%      9.6k         0    0.0%  -0.01 s\n"
        "* 64 GiB  90.0%      1.6k        8k    0.0%  -3.93 s\n"
        "  96 GiB  90.0%      1.6k        8k    0.0%  -3.93 s\n"
        " 128 GiB  90.0%      1.6k        8k    0.0%  -3.93 s\n"
        "\n"
        "Hits by size of host memory (* judged)\n"
        "Host memory  Holds tokens  RTX 3090       L4\n"
        "       none             -     40.0%    40.0%\n"
        "     24 GiB          197k     40.0%    40.0%\n"
        "     32 GiB          262k     40.0%    40.0%\n"
        "     48 GiB          393k     40.0%    40.0%\n"
        "     64 GiB          524k   * 90.0%  * 90.0%\n"
        "     96 GiB          786k     90.0%    90.0%\n"
        "    128 GiB         1.05M     90.0%    90.0%\n"
        "\n"
        "Mind: RTX 3090: its KV pool (39.8k tokens) is smaller than\n"
        "  the longest prompt (60k tokens), which it could not serve\n"
        "Mind: L4: its KV pool (27.6k tokens) is smaller than the\n"
        "  longest prompt (60k tokens), which it could not serve\n"
    )


def test_a_wider_terminal_shows_more() -> None:
    narrow, wide = (terminal.render(REPORTS["tp"], width=width) for width in (60, 160))
    assert "Weights per GPU" not in narrow
    assert "Weights per GPU" in wide


def test_many_gpus_are_split_over_tables_and_none_is_lost() -> None:
    text = terminal.render(report(*gpus(), gpu_kv_tokens=20_000), width=60)
    table = text.split("Hits by size of host memory")[1].split("\nMind")[0]
    assert table.count("64 GiB") == table.count("none") > 1
    assert table.count("* 90.0%") == len(gpus()) - 1  # all but the unified one


def test_colour_changes_no_word() -> None:
    plain = terminal.render(REPORTS["four"], width=80)
    colored = terminal.render(REPORTS["four"], width=80, color=True)
    assert "\x1b[" not in plain
    assert "\x1b[" in colored
    assert Text.from_ansi(colored).plain.rstrip("\n") == plain.rstrip("\n")


def check(value: object, schema: dict, where: str = "report") -> None:
    """Assert the part of JSON Schema that the file uses."""
    if "$ref" in schema:
        check(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], where)
    if "anyOf" in schema:
        assert any(_valid(value, option) for option in schema["anyOf"]), where
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    if "type" in schema:
        kinds = {
            "object": dict,
            "array": list,
            "string": str,
            "integer": int,
            "number": (int, float),
            "null": type(None),
            "boolean": bool,
        }
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, kinds[kind]) for kind in named), where
    if isinstance(value, int | float):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), where
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema["required"]) <= set(value), where
        assert set(value) <= set(schema["properties"]), where
        for key, item in value.items():
            check(item, schema["properties"][key], f"{where}.{key}")
    if isinstance(value, list) and "items" in schema:
        assert len(value) >= schema.get("minItems", 0), where
        assert len(value) <= schema.get("maxItems", len(value)), where
        for item in value:
            check(item, schema["items"], f"{where}[]")


def _valid(value: object, schema: dict) -> bool:
    try:
        check(value, schema)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", REPORTS)
def test_json_follows_its_schema(name: str) -> None:
    text = json_report.render(REPORTS[name])
    value = json.loads(text)
    check(value, SCHEMA)
    assert value == json_report.as_dict(REPORTS[name])
    assert json_report.render(REPORTS[name]) == text


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        (("schema",), "agentkv-trace/report/2"),
        (("gpus",), []),
        (("gpus", 0, "verdict"), "perhaps"),
        (("gpus", 0, "gpu_hit_ratio"), 1.5),
        (("gpus", 0, "pool"), 3),
        (("workload", "calls"), "many"),
        (("workload", "extra"), 1),
    ],
)
def test_the_check_refuses_what_is_wrong(path: tuple, bad: object) -> None:
    value = json_report.as_dict(REPORTS["four"])
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = bad
    assert not _valid(value, SCHEMA)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (SCHEMA, model.Report),
        (SCHEMA["$defs"]["options"], model.ReportOptions),
        (SCHEMA["$defs"]["workload"], model.WorkloadFacts),
        (SCHEMA["$defs"]["model"], model.ModelFacts),
        (SCHEMA["$defs"]["gpu"], model.GpuFinding),
        (SCHEMA["$defs"]["pool"], model.PoolFacts),
        (SCHEMA["$defs"]["host_size"], model.HostSize),
        (SCHEMA["$defs"]["backend"], model.BackendFacts),
        (SCHEMA["$defs"]["economics"], model.EconomicsFacts),
        (SCHEMA["$defs"]["thrash"], model.ThrashFacts),
        (SCHEMA["$defs"]["fix"], model.FixFacts),
    ],
)
def test_the_schema_lists_every_field(part: dict, kind: type) -> None:
    names = [field.name for field in fields(kind)]
    assert list(part["properties"]) == part["required"] == names


def test_csv_has_a_row_per_size() -> None:
    rows = list(csv.DictReader(StringIO(csv_report.render(REPORTS["four"]))))
    mine = [row for row in rows if row["gpu"] == "rtx3090"]
    (best,) = [row for row in mine if row["recommended"] == "yes"]
    assert int(best["host_total_bytes"]) == 64 * 2**30
    assert float(best["hit_ratio"]) == 0.9
    assert [int(row["host_total_bytes"]) // 2**30 for row in mine] == [0, 24, 32, 48, 64, 96, 128]
    (alone,) = [row for row in rows if row["gpu"] == "h20"]
    assert (alone["recommended"], alone["host_total_bytes"]) == ("yes", "0")


def test_csv_names_a_gpu_that_is_too_small() -> None:
    rows = list(csv.DictReader(StringIO(csv_report.render(REPORTS["small"]))))
    assert rows[0]["gpu_verdict"] == "does_not_fit"
    assert rows[0]["hit_ratio"] == ""


@pytest.mark.parametrize("name", REPORTS)
def test_markdown_tables_are_whole(name: str) -> None:
    text = markdown.render(REPORTS[name])
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line.startswith("|") and lines[index - 1].startswith("|"):
            assert line.count(" |") == lines[index - 1].count(" |")
    for finding in REPORTS[name].gpus:
        assert f"- **{finding.summary.replace('>', '&gt;')}**" in text
    assert text.endswith(".\n")
