from __future__ import annotations

import re

import pytest

import docs
from agentkv_trace.cli.app import VERBS

PARTS = [docs.REPO / name for name in ("agentkv_trace", "sample_traces", "tests")]
README = docs.README.read_text(encoding="utf-8")


def test_the_readme_shows_what_the_commands_print() -> None:
    assert docs.render(README) == README, "run `make docs`"


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_every_verb_has_its_help_in_the_readme(verb: str) -> None:
    assert f"<!-- run: agentkv-trace {verb} --help -->" in README


PAGES = [docs.README, *(each for part in PARTS for each in sorted(part.rglob("README.md")))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(docs.REPO)))
def test_links_between_pages_lead_somewhere(page) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"
