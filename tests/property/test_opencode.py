"""Whatever happened to an OpenCode log, reading it ends, and a good one beside it is read."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from opencode_logs import START_MS, Log, begin, database, end, read, said, thought, tokens, tool


def full() -> Log:
    """Return a session with every kind of record."""
    log = Log(permission=[{"permission": "task", "pattern": "*", "action": "deny"}])
    log.user("one", {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"})
    time = {"start": START_MS + 2100, "end": START_MS + 2200, "compacted": START_MS + 4500}
    log.assistant(thought("hm"), tool("c1", time=time), finish="tool-calls")
    log.assistant(
        begin(), said(""), begin(), "again", end(tokens(7000)), steps=False, error={"name": "x"}
    )
    log.user({"type": "compaction", "auto": True, "tail_start_id": log.messages[1][0]["id"]})
    log.assistant("summary", summary=True)
    log.user("two", summary={"title": "words"})
    log.assistant("done")
    return log


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=3,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in nested objects and lists: the container and the key."""
    keys: Any = value if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


def check(*paths: Path) -> None:
    good = Log(START_MS + 900_000)
    good.user("beside")
    good.assistant("fine")
    path = good.export(paths[0].with_name("good.json"))
    calls = read(*paths, path, notes=Notes())
    assert [call.session for call in calls].count(good.id) == 1
    with TraceBuilder() as builder:
        for call in calls:
            builder.add(call)
        assert len(builder.finish({})) == len(calls)


@given(st.data())
def test_bytes_of_an_export_may_be_anything(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = full().export(Path(folder) / "a.json")
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(content) - 1))
            length = data.draw(st.integers(0, 200))
            content[at : at + length] = data.draw(st.binary(max_size=8))
        path.write_bytes(bytes(content))
        check(path)


@given(st.data())
def test_values_may_be_of_any_type(data: st.DataObject) -> None:
    log = copy.deepcopy(full())
    with tempfile.TemporaryDirectory() as folder:
        path = log.export(Path(folder) / "a.json")
        record = json.loads(path.read_text())
        for _ in range(data.draw(st.integers(1, 4))):
            container, key = data.draw(st.sampled_from(places(record)))
            container[key] = data.draw(VALUES)
        path.write_text(json.dumps(record))
        check(path)


@given(st.data())
def test_bytes_of_a_database_may_be_anything(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = database(Path(folder) / "opencode.db", full())
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + 64] = data.draw(st.binary(max_size=64))
        path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
        check(path)
