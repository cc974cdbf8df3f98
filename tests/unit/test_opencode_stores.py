"""Where OpenCode's sessions are kept, and what is read of damaged, locked and doubled stores."""

from __future__ import annotations

import json
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.opencode import database as module
from agentkv_trace.ingest.opencode import files, paths
from agentkv_trace.notes import Notes
from opencode_logs import (
    START_MS,
    Log,
    connect,
    database,
    ident,
    insert,
    read,
    said,
    spelled,
    tool,
    words,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall


def talk(start_ms: int = START_MS, text: str = "one", **info: Any) -> Log:
    log = Log(start_ms, **info)
    log.user(text)
    log.assistant("I look", tool("c1"), finish="tool-calls")
    log.assistant("done")
    return log


def shown(calls: list[LoggedCall]) -> list[object]:
    return [
        (call.session, call.start_us, call.end_us, call.kind, call.logged_prompt_tokens,
         spelled(call.prompt), spelled(call.path))
        for call in calls
    ]  # fmt: skip


def test_all_stores_give_the_same_calls(tmp_path: Path) -> None:
    log = talk(permission=[{"permission": "task", "pattern": "*", "action": "deny"}])
    one = read(database(tmp_path / "opencode.db", log))
    assert len(one) == 2
    for path in (log.tree(tmp_path / "storage"), log.export(tmp_path / "a.json")):
        other = read(path)
        assert shown(other) == shown(one)
        assert other[0].prompt.parent is not None


def test_the_oldest_tree(tmp_path: Path) -> None:
    log = talk(version="0.3.0")
    storage = tmp_path / "project" / "work" / "storage"
    path = log.tree(storage)
    session = storage / "session"
    (session / "info").mkdir()
    moved = path.rename(session / "info" / path.name)
    (storage / "message").rename(session / "message")
    for folder in list((storage / "part").iterdir()):
        target = session / "part" / log.id / folder.name
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
    assert paths.find(tmp_path) == [moved]
    assert len(read(moved)) == 2


def test_the_database_wins_over_stale_files_and_each_session_comes_once(tmp_path: Path) -> None:
    log = talk()
    tree, export = log.tree(tmp_path / "storage"), log.export(tmp_path / "a.json")
    log.assistant("later")
    old = talk(START_MS - 90_000_000, "old")
    stale = old.tree(tmp_path / "storage")
    notes = Notes()
    calls = read(export, tree, stale, database(tmp_path / "opencode.db", log), notes=notes)
    assert [call.session for call in calls] == [old.id] * 2 + [log.id] * 3
    assert notes.counts["deduplicated sessions"] == 2
    assert notes.counts["sessions"] == 2
    assert notes.counts["calls"] == 5


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    logs = [talk(START_MS + n * 10_000, f"say {n}") for n in range(3)]
    made = [log.export(tmp_path / f"{n}.json") for n, log in enumerate(logs)]
    assert shown(read(*made)) == shown(read(*reversed(made)))


def test_of_two_databases_the_later_state_wins(tmp_path: Path) -> None:
    log = talk()
    old = database(tmp_path / "opencode-old.db", log)
    log.assistant("later")
    new = database(tmp_path / "opencode.db", log)
    assert len(read(old, new)) == len(read(new, old)) == 3


# Forks


def test_a_fork_copies_history_not_calls(tmp_path: Path) -> None:
    log = talk()
    fork = log.fork(START_MS + 100_000)
    fork.user("two")
    fork.assistant("forked")
    notes = Notes()
    calls = read(database(tmp_path / "opencode.db", log, fork), notes=notes)
    assert [(c.session, c.kind, c.parent_session) for c in calls] == [
        (log.id, "turn", None),
        (log.id, "turn", None),
        (fork.id, "fork", log.id),
    ]
    assert words(calls[2].prompt) == ["u one", "a I look [c1]", "t done", "a done", "u two"]
    assert notes.counts["deduplicated calls"] == 2


def test_a_fork_without_its_origin_has_only_its_own_calls(tmp_path: Path) -> None:
    fork = talk().fork(START_MS + 100_000)
    fork.user("two")
    fork.assistant("forked")
    (call,) = read(fork.export(tmp_path / "a.json"))
    assert (call.kind, call.parent_session) == ("fork", None)


def test_equal_answers_in_two_sessions_are_two_calls(tmp_path: Path) -> None:
    one, other = talk(), talk(START_MS + 7)
    assert len(read(database(tmp_path / "opencode.db", one, other))) == 4


# SQLite


def test_rows_in_the_write_ahead_log_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    live = connect(path)
    insert(live, talk())
    assert (tmp_path / "opencode.db-wal").stat().st_size > 0
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.iterdir()}
    assert len(read(path)) == 2
    after = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.iterdir()}
    assert after == before
    live.close()


def test_a_database_at_rest_gets_no_files_beside_it(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", talk())
    (tmp_path / "opencode.db-wal").unlink(missing_ok=True)
    (tmp_path / "opencode.db-shm").unlink(missing_ok=True)
    path.chmod(0o444)
    assert len(read(path)) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["opencode.db"]


def test_a_locked_database_is_read(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    live = connect(path)
    insert(live, talk())
    live.execute("BEGIN EXCLUSIVE")
    live.execute("DELETE FROM part")
    notes = Notes()
    assert len(read(path, notes=notes)) == 2
    assert not notes.skipped
    live.execute("ROLLBACK")
    live.close()


def test_a_half_copied_write_ahead_log_gives_what_was_committed_before(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    live = connect(path)
    insert(live, talk())
    wal = tmp_path / "opencode.db-wal"
    kept = wal.stat().st_size
    insert(live, talk(START_MS + 50_000, "two"))
    copies = tmp_path / "copy"
    copies.mkdir()
    shutil.copy(path, copies)
    (copies / wal.name).write_bytes(wal.read_bytes()[: kept + 5000])
    live.close()
    assert {call.session for call in read(copies / path.name)} == {talk().id}


def test_a_log_that_grows_into_the_database_while_copied_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "opencode.db"
    live = connect(path)
    insert(live, talk())
    copy = shutil.copyfile
    copied = []

    def slow(source: Any, target: Any) -> Any:
        done = copy(source, target)
        if not copied:
            live.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            insert(live, talk(START_MS + 50_000, "two"))
        copied.append(source)
        return done

    monkeypatch.setattr(module.shutil, "copyfile", slow)
    assert len(read(path)) == 4
    live.close()


def test_a_corrupt_database_gives_what_is_readable(tmp_path: Path) -> None:
    logs = [talk(START_MS + n * 10_000, f"say {n} " + "sea " * 900) for n in range(30)]
    path = database(tmp_path / "opencode.db", *logs)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    good = talk(START_MS + 900_000, "beside")
    notes = Notes()
    calls = read(path, good.export(tmp_path / "a.json"), notes=notes)
    assert notes.skipped["damaged database"] >= 1
    assert {call.session for call in calls} > {good.id}


def test_a_file_that_only_begins_like_a_database(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(module.MAGIC + b"\0\xff" * 3000)
    notes = Notes()
    assert read(path, talk().export(tmp_path / "a.json"), notes=notes)
    assert notes.skipped["damaged database"] == 1


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE threads (id text)")
    connection.close()
    notes = Notes()
    assert read(path, notes=notes) == []
    assert notes.skipped == {"database of another program": 1}


def test_bad_rows_lose_only_themselves(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", talk())
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE part SET data = '{\"type\":\"te' WHERE data LIKE '%done%tool%'")
    connection.execute(
        "INSERT INTO part VALUES ('prt_x', 'msg_gone', ?, 0, 0, '{\"type\":\"text\"}')",
        (talk().id,),
    )
    connection.execute(
        "UPDATE message SET data = CAST(x'7b22ff' AS text) WHERE data LIKE '%tool-calls%'"
    )
    connection.close()
    notes = Notes()
    (call,) = read(path, notes=notes)
    assert words(call.prompt) == ["u one"]
    assert notes.skipped["damaged record"] == 1
    assert notes.counts["parts without a message"] == 4 + 1
    with pytest.raises(InputError, match="damaged record"):
        read(path, notes=Notes(strict=True))


def test_a_huge_attachment_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINE", 10_000)
    monkeypatch.setattr(files, "MAX_LINE", 10_000)
    url = "data:image/png;base64," + "A" * 100_000
    log = Log()
    log.user("see", {"type": "file", "mime": "image/png", "url": url})
    log.assistant("seen")
    for path, reason in (
        (database(tmp_path / "opencode.db", log), "record too large"),
        (log.tree(tmp_path / "storage"), "file too large"),
    ):
        notes = Notes()
        (call,) = read(path, notes=notes)
        assert words(call.prompt) == ["u see"]
        assert notes.skipped == {reason: 1}


def test_a_large_picture_costs_its_tokens_only(tmp_path: Path) -> None:
    log = Log()
    url = "data:image/png;base64," + "A" * 5_000_000
    log.user("see", {"type": "file", "mime": "image/png", "url": url})
    log.assistant("seen")
    (call,) = read(database(tmp_path / "opencode.db", log))
    assert words(call.prompt) == ["u see|*", "1536 tokens"]
    node, size = call.prompt, 0
    while node.parent is not None:
        size, node = size + len(node.content), node.parent
    assert size < 1000


# JSON files


def test_damaged_files_of_the_tree_lose_only_themselves(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    path = talk().tree(storage)
    good = talk(START_MS + 60_000, "two").tree(storage)
    (storage / "session" / "global" / "ses_empty.json").write_bytes(b"")
    nul = storage / "session" / "global" / "ses_nul.json"
    nul.write_bytes(b"\0" * 400)
    messages = sorted((storage / "message" / path.stem).iterdir())
    messages[1].write_bytes(b"\0" * 100)
    parts = sorted((storage / "part" / messages[2].stem).iterdir())
    parts[1].write_text(parts[1].read_text()[:60])
    (storage / "part" / "msg_orphan").mkdir()
    notes = Notes()
    calls = read(path, good, nul, nul.with_name("ses_empty.json"), notes=notes)
    assert [words(call.prompt) for call in calls] == [
        ["u one"],
        ["u two"],
        ["u two", "a I look [c1]", "t done"],
    ]
    assert notes.skipped == {"file of NUL bytes": 2, "empty file": 1, "damaged file": 1}
    assert notes.examples["empty file"] == [str(nul.with_name("ses_empty.json"))]


def test_a_record_written_twice_on_a_line(tmp_path: Path) -> None:
    path = talk().tree(tmp_path / "storage")
    message = sorted((tmp_path / "storage" / "message" / path.stem).iterdir())[0]
    record = json.loads(message.read_text())
    torn = json.dumps(record)[:90]
    message.write_text(torn + json.dumps(record))
    notes = Notes()
    assert len(read(path, notes=notes)) == 2
    assert notes.skipped == {"damaged file": 1}


def test_several_exports_in_a_file(tmp_path: Path) -> None:
    one = talk().export(tmp_path / "1.json").read_text()
    two = talk(START_MS + 60_000, "two").export(tmp_path / "2.json").read_text()
    for number, between in enumerate(("", "\n", " ")):
        path = tmp_path / f"both{number}.json"
        path.write_text("\ufeff" + one + between + two)
        notes = Notes()
        assert len(read(path, notes=notes)) == 4
        assert not notes.skipped


def test_an_export_that_breaks_off_gives_its_finished_messages(tmp_path: Path) -> None:
    path = talk().export(tmp_path / "a.json")
    data = path.read_text()
    path.write_text(data[: data.index("done\\n")])
    whole = talk(START_MS + 60_000, "two").export(tmp_path / "b.json")
    notes = Notes()
    calls = read(path, whole, notes=notes)
    assert [call.session for call in calls] == [talk(START_MS + 60_000).id] * 2
    assert notes.skipped == {"damaged file": 1}
    path.write_text(data[: data.rindex('"role"')])
    assert len(read(path)) == 1


def test_half_a_surrogate_pair_does_not_lose_a_record(tmp_path: Path) -> None:
    log = Log()
    log.user("cut \ud83d off")
    log.assistant("x \ud83d\ude00")
    for path in (
        log.export(tmp_path / "a.json"),
        log.tree(tmp_path / "storage"),
        database(tmp_path / "opencode.db", log),
    ):
        notes = Notes()
        (call,) = read(path, notes=notes)
        assert words(call.path) == ["u cut \ufffd off", "a x \U0001f600"]
        assert not notes.skipped


def test_values_of_other_types_than_known(tmp_path: Path) -> None:
    log = Log(permission="all", directory=7, version=None)
    log.user(said("go", text=[1]), {"type": 3}, {"type": "file", "mime": 1, "url": {}})
    log.assistant(
        tool("c1", status=9, input=None, time=[1], attachments="x", metadata=3),
        thought_of_other_type := {"type": "reasoning", "text": None, "metadata": [1], "time": "x"},
        agent=5, mode=None, path="x", providerID=1, modelID=None, summary="x", finish=1,
        error=0,
    )  # fmt: skip
    log.assistant(thought_of_other_type, parentID=[1])
    log.messages[0][0]["tools"] = [1]
    for path in (log.export(tmp_path / "a.json"), log.tree(tmp_path / "storage")):
        assert len(read(path)) == 2


def test_line_separators_inside_strings(tmp_path: Path) -> None:
    log = Log()
    log.user("a\u2028b\u2029c\x85d")
    log.assistant("x")
    assert (
        spelled(read(log.export(tmp_path / "a.json"))[0].prompt)[0]["content"]
        == "a\u2028b\u2029c\x85d"
    )


# Second schema


SECOND = """
CREATE TABLE session_v2 (id text, parent_id text, fork_session_id text, directory text,
  version text, time_created integer, time_updated integer);
CREATE TABLE session_message (id text, session_id text, type text, seq integer,
  time_created integer, time_updated integer, data text);
"""


def second(path: Path, rows: list[tuple[str, dict[str, Any]]], **info: Any) -> str:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(SECOND)
    name = ident("ses", START_MS)
    row = (name, None, info.get("fork"), "/work", "2.0.1", START_MS, START_MS)
    connection.execute("INSERT INTO session_v2 VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for seq, (kind, data) in enumerate(rows):
        at = START_MS + 1000 * (seq + 1)
        data = {"time": {"created": at}, **data}
        values = (f"msg_{seq}", name, kind, seq, at, at, json.dumps(data))
        connection.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    connection.close()
    return name


def answer(*content: dict[str, Any], **data: Any) -> tuple[str, dict[str, Any]]:
    used = {"input": 100, "output": 5, "reasoning": 2, "cache": {"read": 900, "write": 0}}
    model = {"providerID": "pier", "id": "tide-2"}
    base = {"agent": "build", "model": model, "content": list(content), "tokens": used}
    return "assistant", {**base, "finish": "stop", **data}


def test_second_schema(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    state = {
        "status": "completed", "input": {"command": "ls"}, "structured": {},
        "content": [{"type": "text", "text": "a.csv"}],
    }  # fmt: skip
    ran = {"ran": START_MS + 3500}
    looked = {"type": "tool", "id": "c1", "name": "bash", "state": state, "time": ran}
    attached = {"mime": "text/plain", "name": "t", "data": "aGk="}
    name = second(
        path,
        [
            ("system", {"text": "date: today"}),
            ("user", {"text": "go", "files": [attached]}),
            answer(said("on it"), looked),
            ("shell", {"command": "ls", "output": {"output": "b.csv"}}),
            ("synthetic", {"text": "note"}),
            ("model-switched", {"model": {}}),
            answer(said("done")),
            ("compaction", {"summary": "we looked", "recent": "tail", "status": "completed"}),
            ("user", {"text": "next"}),
            answer(said("sure")),
        ],
    )  # fmt: skip
    calls = read(path)
    assert [(c.session, c.kind, c.model) for c in calls] == [
        (name, "turn", "tide-2"),
        (name, "turn", "tide-2"),
        (name, "compaction", None),
        (name, "fold", "tide-2"),
    ]
    assert words(calls[0].prompt) == ["s date: today", "u go|\n\nAttached file: t\n\nhi"]
    assert words(calls[1].prompt)[2:] == [
        "a on it [c1]", "t a.csv", "u Shell command: ls\n\nb.csv", "u note",
    ]  # fmt: skip
    assert calls[0].logged_prompt_tokens == 1000
    assert calls[0].output_tokens == 7
    assert [c.fidelity for c in calls] == [
        "exact", "output_reformatted", "compaction_estimated", "exact",
    ]  # fmt: skip
    checkpoint, asked = words(calls[3].prompt)
    assert asked == "u next"
    assert "we looked" in checkpoint
    assert "tail" in checkpoint


def test_both_schemas_in_one_database(tmp_path: Path) -> None:
    first = talk(START_MS + 500_000)
    path = database(tmp_path / "opencode.db", first)
    name = second(path, [("user", {"text": "go"}), answer(said("done"))])
    assert {call.session for call in read(path)} == {first.id, name}


# Finding


def test_roots() -> None:
    def found(**env: str) -> list[str]:
        return list(map(str, paths.roots({"HOME": "/home/me"} | env)))

    assert found() == ["/home/me/.local/share/opencode"]
    assert found(XDG_DATA_HOME="/data") == ["/data/opencode"]
    assert found(XDG_DATA_HOME="/data", OPENCODE_DATA_DIR="/a, /b,,/a") == ["/a", "/b"]


def test_find_takes_logs_and_nothing_else(tmp_path: Path) -> None:
    log = talk()
    expected = [
        log.export(tmp_path / "kept.json"),
        database(tmp_path / "opencode-beta.db", log),
        database(tmp_path / "opencode.db", log),
        log.tree(tmp_path / "storage"),
    ]
    (tmp_path / "other.db").write_bytes(module.MAGIC)
    (tmp_path / "auth.json").write_text('{"pier": {"type": "api"}}')
    (tmp_path / "storage" / "session_diff").mkdir()
    (tmp_path / "storage" / "session_diff" / f"{log.id}.json").write_text("[]")
    assert paths.find(tmp_path) == expected
    assert paths.find(tmp_path / "storage") == expected[-1:]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.json").symlink_to(talk().export(tmp_path / "a.json"))
    assert paths.find(inside) == []


def test_what_looks_like_a_log(tmp_path: Path) -> None:
    log = talk()
    export = log.export(tmp_path / "a.json")
    tree = log.tree(tmp_path / "storage")
    assert paths.looks_like(export, export.read_bytes()[:4096])
    assert paths.looks_like(tree, tree.read_bytes()[:4096])
    assert paths.looks_like(tmp_path / "any.db", module.MAGIC + b"\x10\0")
    assert not paths.looks_like(export, b'{"info": {"id": "x"}}')
    assert not paths.looks_like(export, b'{"timestamp":"2026-01-01","type":"session_meta"}')
    assert not paths.looks_like(export, b"")


def test_progress_ends_with_all_bytes(tmp_path: Path) -> None:
    from agentkv_trace.ingest.opencode import calls

    one = database(tmp_path / "opencode.db", talk(), talk(START_MS + 10_000))
    made = [one, talk(START_MS + 20_000).export(tmp_path / "a.json"), tmp_path / "empty.json"]
    made[2].write_bytes(b"")
    told: list[int] = []
    list(calls.read(made, Notes(), told.append))
    assert sum(told) == sum(path.stat().st_size for path in made)
