"""The page in a real browser: no request, no error, and the numbers of the JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import browser
from agentkv_trace.cli.app import main

SAMPLES = Path(__file__).parents[2] / "sample_traces"
REQUEST = ["--model", "qwen3-4b", "--gpu", "rtx3090", "--gpu", "h100-sxm", "--agents", "8"]


@pytest.fixture(scope="module")
def chromium():
    program = browser.find()
    if program is None:
        if os.environ.get("AGENTKV_REQUIRE_BROWSER"):
            pytest.fail("no Chromium found, though this run requires one")
        pytest.skip("no Chromium found (set CHROMIUM to its program)")
    found = browser.Browser(program)
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> tuple[Path, dict]:
    """Return the page of the sample logs, and the JSON of the same report."""
    folder = tmp_path_factory.mktemp("page")
    trace = str(folder / "trace.parquet")
    assert main(["ingest", str(SAMPLES / "codex"), "-q", "-o", trace]) == 0
    for form in ("html", "json"):
        out = str(folder / f"report.{form}")
        assert main(["report", trace, *REQUEST, "--format", form, "-q", "-o", out]) == 0
    return folder / "report.html", json.loads((folder / "report.json").read_text())


def test_it_opens_without_a_request_or_an_error(chromium, page) -> None:
    path, _ = page
    chromium.open(path)
    requests = chromium.of("Network.requestWillBeSent")
    assert [each["request"]["url"] for each in requests] == [path.as_uri()]
    assert chromium.of("Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []
    assert chromium.of("Log.entryAdded") == []


def test_the_policy_forbids_requests(chromium, page) -> None:
    chromium.open(page[0])
    chromium.run("new Image().src = 'http://127.0.0.1:9/x.png'; fetch('http://127.0.0.1:9/')")
    chromium.run("1")
    failed = chromium.of("Log.entryAdded")
    assert len(failed) >= 2
    assert all("Content Security Policy" in each["entry"]["text"] for each in failed)


def test_it_says_what_the_json_says(chromium, page) -> None:
    path, report = page
    chromium.open(path)
    assert json.loads(chromium.run("document.getElementById('report').textContent")) == report
    answers = chromium.run("[...document.querySelectorAll('.answers li')].map(li => li.className)")
    assert answers == [finding["verdict"] for finding in report["gpus"]]
    cells = chromium.run(
        "[...document.querySelectorAll('figure[data-chart=curve] tbody tr')]"
        ".map(tr => tr.cells[2].textContent)"
    )
    shown = {f"{point['miss_ratio']:.2%}" for point in report["detail"]["curve"]}
    assert len(cells) > 3
    assert set(cells) <= shown
    sessions = chromium.run(
        "[...document.querySelectorAll('section')]"
        ".find(s => s.querySelector('h2').textContent === 'Sessions')"
        ".querySelectorAll('tbody tr').length"
    )
    assert sessions == len(report["detail"]["sessions"]["rows"])


def test_a_series_is_hidden_and_shown_by_its_button(chromium, page) -> None:
    chromium.open(page[0])
    chart = "document.querySelector('figure[data-chart=context]')"
    group = f"{chart}.querySelector('svg.wide g[data-series=\"1\"]')"
    visible = f"getComputedStyle({group}).display !== 'none'"
    button = f"{chart}.querySelector('.legend button[data-series=\"1\"]')"
    assert chromium.run(visible)
    chromium.run(f"{button}.click()")
    assert not chromium.run(visible)
    assert chromium.run(f"{button}.getAttribute('aria-pressed')") == "false"
    chromium.run(f"{button}.click()")
    assert chromium.run(visible)


def test_the_pointer_reads_a_value(chromium, page) -> None:
    path, report = page
    chromium.open(path)
    box = chromium.run(
        "(svg => { svg.scrollIntoView({block: 'center'}); const b = svg.getBoundingClientRect();"
        " return {x: b.x, y: b.y, width: b.width, height: b.height}; })"
        "(document.querySelector('figure[data-chart=curve] svg.wide'))"
    )
    x, y = box["x"] + 0.6 * box["width"], box["y"] + box["height"] / 2
    chromium("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    said = chromium.run("document.querySelector('figure[data-chart=curve] .readout').textContent")
    name, _, value = said.rpartition(" ")
    assert name.endswith("miss ratio")
    assert value in {f"{point['miss_ratio']:.1%}" for point in report["detail"]["curve"]}


def test_the_keyboard_reads_the_same(chromium, page) -> None:
    chromium.open(page[0])
    chart = "document.querySelector('figure[data-chart=agents]')"
    chromium.run(f"{chart}.querySelector('svg.wide').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        chromium("Input.dispatchKeyEvent", type="keyDown", key=key)
    said = chromium.run(f"{chart}.querySelector('.readout').textContent")
    assert said.startswith("1: RTX 3090 alone")
    assert chromium.run(f"{chart}.querySelectorAll('svg.wide .cursor').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_of_the_page(chromium, page, width: int, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium("Emulation.setEmulatedMedia", features=[feature])
    chromium.open(page[0], width)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    seen = "narrow" if width == 390 else "wide"
    assert chromium.run(
        "[...document.querySelectorAll('figure > svg.chart')]"
        ".filter(s => s.getClientRects().length)"
        f".every(s => s.classList.contains('{seen}'))"
    )
    paper = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    # Text of charts is not smaller than 10 pixels.
    assert (
        chromium.run(
            "Math.min(...[...document.querySelectorAll('figure > svg.chart text')]"
            ".filter(t => t.getClientRects().length).map(t => t.getBoundingClientRect().height))"
        )
        >= 10
    )


def test_it_prints(chromium, page) -> None:
    chromium.open(page[0])
    printed = chromium("Page.printToPDF")["data"]
    assert printed.startswith("JVBER")  # %PDF
    assert len(printed) > 50_000
