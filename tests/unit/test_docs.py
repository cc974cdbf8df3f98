from __future__ import annotations

import re

import pytest

import docs
from agentkv_trace.cli.app import VERBS

README = docs.README.read_text(encoding="utf-8")


def test_the_readme_shows_what_the_commands_print() -> None:
    assert docs.render(README) == README, "run `make docs`"


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_every_verb_has_its_help_in_the_readme(verb: str) -> None:
    assert f"<!-- run: agentkv-trace {verb} --help -->" in README


@pytest.mark.parametrize("page", sorted(docs.REPO.rglob("README.md")), ids=str)
def test_links_between_pages_lead_somewhere(page) -> None:
    if ".venv" in page.parts:
        return
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"
