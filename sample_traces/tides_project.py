"""Words of an invented project, a reader of tide tables, for the sample logs to talk about.

Every text is drawn from the templates below: `<noun>` is replaced by a word of that list, and a
digit behind it (`<noun1>`) keeps the word the same throughout one template.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

WORDS = {
    "noun": (
        "surge ebb slack datum gauge station harbour phase epoch drift sill basin channel height "
        "offset lunation stanza column marker fathom neap spring bore swell race shoal"
    ),
    "verb": (
        "parse fold shift clamp blend scan rank align trim merge weigh smooth carry pair resample "
        "label settle mirror"
    ),
    "type": "Row Table Curve Reading Span Almanac Sounding Mark",
    "module": "tables stations harmonics almanac soundings render units calendar cache loader",
    "port": "quellhaven ostermoor brackfurt lissand pellwick dunmarrow veyholm skerraby",
    "state": "empty stale doubled unsorted clipped inverted missing early",
}

SOURCE = [
    '''def <verb1>_<noun1>(<noun2>s, <noun3>=<int>):
    """<Verb1> each <noun2> whose <noun1> lies above the <noun3>."""
    kept = [item for item in <noun2>s if item.<noun1> > <noun3> / <dec>]
    if not kept:
        raise TableError(f"no <noun1> left after <noun3> {<noun3>}, first was {<noun2>s[:1]}")
    return sorted(kept, key=lambda item: (item.<noun4>, -item.<noun1>))

''',
    """class <Noun1><type1>(<type2>):
    # A <state> <noun1> is kept, so that the <noun2> after it can still be dated.
    <noun1>: float = <dec>
    <noun2>: int = <int>

    def <verb1>(self, other):
        step = self.<noun1> * <dec> + other.<noun2>
        return <Noun1><type1>(step, max(self.<noun2>, <int>))

""",
    """def <verb1>_<noun1>_by_<noun2>(path, *, strict=False):
    total, <noun2> = 0.0, <int>
    for number, line in enumerate(path.open(), start=1):
        if line.startswith("#<noun1>"):
            <noun2> = int(line.split()[<digit>])
        elif strict and "<noun3>" not in line:
            raise ValueError(f"{path.name}:{number}: <state> <noun1>, expected <noun3>")
        else:
            total += float(line[<digit>:<int>]) - <noun2> * <dec>
    return total

""",
    """<NOUN1>_LIMITS = {
    "<port1>": (<dec>, <dec>, <int>),
    "<port2>": (<dec>, <dec>, <int>),
    "<port3>": (<dec>, <dec>, <int>),
}

""",
    """@cached(<int>)
def _<noun1>_of(<noun2>, year):
    angle = <dec> * year + <dec> * <noun2>.<noun3>
    while angle > <int>:
        angle -= <dec>
    return <verb1>(angle, <noun2>.<noun4>, default=<dec>)

""",
    """def test_<verb1>_keeps_<state1>_<noun1>():
    rows = load("<port1>", year=<int>).<verb1>("<noun1>")
    assert len(rows) == <int>
    assert rows[<digit>].<noun2> == pytest.approx(<dec>, abs=<dec>)

""",
]
TEXTS = {
    "source": SOURCE,
    "grep": [
        "src/tides/<module>.py:<int>:    <noun1> = <verb1>_<noun2>(<noun3>s, <noun4>=<int>)\n",
        "tests/test_<module>.py:<int>:    assert <verb1>(rows).<noun1> == <dec>  # <state>\n",
        "src/tides/<module>.py:<int>:# <Verb1> before the <noun1>, or the <noun2> is <state>.\n",
        "docs/<noun1>.md:<int>:* `<verb1>_<noun2>` reads the <noun3> of <port1>, row <int>\n",
    ],
    "tests": [
        "tests/test_<module>.py::test_<verb1>_keeps_<state1>_<noun1> PASSED [<digit><digit>%]\n",
        "tests/test_<module>.py::test_<noun1>_of_<port1>[<int>-<dec>] PASSED [<digit><digit>%]\n",
    ]
    * 20
    + ["tests/test_<module>.py::test_<noun1>_round_trip FAILED: <noun2> <dec> is not <dec>\n"],
    "table": [
        "<int> <port1> <dec> <dec> HW <dec> LW <dec> <noun1>\n",
        "<int> <port1> <dec> <dec> LW <dec> HW <dec> <noun1> <state>\n",
    ],
    "log": [
        "* <verb1> the <noun1> before the <noun2> is read (<module1>.py, +<int> -<digit>)\n",
        "* <Noun1> of <port1>: <state> rows no longer end it\n    src/tides/<module1>.py | <int>\n",
    ],
    "diff": [
        (
            "@@ -<int>,<digit> +<int>,<digit> @@ def <verb1>_<noun1>(<noun2>s):\n"
            "-    <noun1> = <noun2>s[<digit>].<noun3> * <dec>\n"
            "+    <noun1> = <verb1>(<noun2>s, <noun3>=<dec>)\n+    if <noun1> < <int>:\n"
            '+        log.info("<state> <noun1> at %s", <noun2>s[<digit>])\n'
        ),
    ],
    "list": ["<port>-<int>.tbl\n"],
    "rules": [
        "- Read the <noun1> before you <verb1> it, and say which <noun2> you relied on.\n",
        "- Where a <noun1> is <state>, stop and ask; never guess the <noun2> from the <noun3>.\n",
        "- Keep a change to <module1>.py apart from one to <module2>.py, each with its own test.\n",
        "- Answer shortly: what was <state>, what you did, what is left to <verb1>.\n",
        "- A test of <noun1> needs a table of <port1> of at least <int> rows, none made up.\n",
    ],
    "skills": [
        "- <verb1>-<noun1>: how to <verb1> a <state> <noun1>; see s0/<verb1>-<noun1>/SKILL.md\n",
    ],
    "summary": [
        "- Done: `<verb1>_<noun1>` in <module1>.py takes the <noun2> from the table of <port1>.\n",
        "- Found: the <noun1> of <port1> is <state> in row <int>; the <noun2> there reads <dec>.\n",
        "- Left: <verb1> the <noun1> in <module1>.py, then run tests/test_<module1>.py again.\n",
    ],
    "say": [
        "The <noun1> looks <state>; I will read <module1>.py next to see who sets it.",
        "Now the tables of <port1>, since the <noun1> there decides how far to <verb1>.",
        "Tests first: they show whether the <noun1> or the <noun2> is <state>.",
    ],
    "think": [
        "Compare the <noun1> with the <noun2> before changing <module1>.py.",
        "A <state> <noun1> would explain the failing test; check <port1> first.",
    ],
    "ask": [
        "Heights of <port1> come out <state> when the <noun1> is near <dec>. Find out why.",
        "Teach <module1>.py to <verb1> the <noun1>, with tests, and keep the old tables readable.",
    ],
}
COMMANDS = {
    "source": "sed -n 1,180p src/tides/<module1>.py",
    "grep": 'rg -n "<noun1>" src tests docs; git status --short',
    "tests": "python3 -m pytest -v tests/test_<module1>.py",
    "table": "cat data/<port1>.tbl",
    "log": "git log --stat -n 30 -- src/tides/<module1>.py",
    "diff": "git diff -- src/tides/<module1>.py",
    "list": "ls -R data",
}


def fill(template: str, rng: random.Random) -> str:
    """Return the template with a word or number drawn for each `<mark>`."""
    chosen: dict[str, str] = {}

    def draw(mark: re.Match[str]) -> str:
        name, number = mark[1].lower(), mark[2]
        if name == "int":
            return str(rng.randint(12, 2940))
        if name == "digit":
            return str(rng.randint(2, 9))
        if name == "dec":
            return f"{rng.uniform(0.05, 19.0):.3f}"
        word = rng.choice(WORDS[name].split())
        if number:
            word = chosen.setdefault(name + number, word)
        if mark[1].isupper():
            return word.upper()
        return word.capitalize() if mark[1][0].isupper() else word

    return re.sub(r"<([A-Za-z]+)(\d?)>", draw, template)


def text(kind: str, rng: random.Random, size: int = 1) -> str:
    """Return at least `size` bytes of text of one kind, in whole templates."""
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        parts.append(fill(rng.choice(TEXTS[kind]), rng))
    return "".join(parts)
