from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest import images
from agentkv_trace.ingest.discover import named_logs
from agentkv_trace.ingest.scrub import codex, files, opencode, openhands, requests
from agentkv_trace.ingest.scrub.blobs import scrub_base64
from agentkv_trace.ingest.scrub.cipher import Words
from agentkv_trace.ingest.scrub.document import Scrubber
from agentkv_trace.ingest.scrub.names import replaced
from agentkv_trace.ingest.scrub.run import members_of
from agentkv_trace.ingest.scrub.run import scrub as run
from conftest import REPO
from scrubbing import Logs, assert_same_trace, trace_of

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.ingest.scrub.rules import Rules

KEY = b"k" * 32
SAMPLES = REPO / "sample_traces"
ROLLOUT = min((SAMPLES / "codex").rglob("*.jsonl"), key=lambda path: path.stat().st_size)
THREAD = "019ad1c2-5b7e-7c3a-9d10-0123456789ab"
UUID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


def words(rules: Rules | None = None) -> Words:
    return Words(KEY, rules.markers if rules else ())


def scrubbed(record: Any, rules: Rules = codex.RULES) -> Any:
    scrubber = Scrubber(words(rules), rules.kept, rules.start)
    return json.loads(scrubber.record(json.dumps(record).encode()))


# Texts


def test_ids_keep_their_form_their_time_and_their_order() -> None:
    made = words().text(THREAD.encode()).decode()
    assert (made[:15], made[19]) == (THREAD[:15], THREAD[19])
    assert made != THREAD
    assert set(made) <= set("0123456789abcdef-")
    other = words().text(UUID.encode()).decode()
    assert (other[:4], other[14], other[19]) == (UUID[:4], UUID[14], UUID[19])
    assert other[4:14] != UUID[4:14]
    assert words().text(UUID.replace("-", "").encode()).decode() == other.replace("-", "")
    part = words().text(b"prt_22e3d676d001K0Y4FJ4gvP16rv").decode()
    assert part.startswith("prt_22e3d676d001")
    assert part.isascii()
    assert part[16:] != "K0Y4FJ4gvP16rv"


def test_an_id_is_the_same_inside_a_text_and_alone() -> None:
    text = words().text(f"Resume {THREAD}, please".encode())
    assert words().text(THREAD.encode()) in text


def test_a_part_of_an_id_behind_more_letters_is_no_id() -> None:
    made = words().text(b"x" + UUID.encode()).decode()
    assert len(made) == 37
    assert made[1:5] != UUID[:4]


def test_markers_stay_and_their_words_elsewhere_go() -> None:
    made = words(codex.RULES).text(b"<environment_context>\n<cwd>/home/x</cwd> environment_context")
    assert made.startswith(b"<environment_context>\n<")
    assert made.count(b"environment") == 1
    assert b"home" not in made


def test_keys_of_metrics_keep_that_they_are_of_a_task() -> None:
    made = scrubbed({"usage_to_metrics": {"task:find_it": {}, "multitask:x": {}}}, openhands.RULES)
    first, second = made["usage_to_metrics"]
    assert first.startswith("task:")
    assert "task:" not in second
    assert "find" not in first


def test_the_same_key_gives_the_same_another_another() -> None:
    assert words().text(b"secret plan") == words().text(b"secret plan")
    assert Words(b"other").text(b"secret plan") != words().text(b"secret plan")


def test_a_long_run_is_replaced_throughout_and_parts_where_it_did() -> None:
    one, other = b"Ab3" * 400, b"Ab3" * 300 + b"x" * 300
    made, second = words().text(one), words().text(other)
    assert len(made) == len(one)
    assert made[:900] == second[:900]
    assert made[900] != second[900]
    assert all(made[at : at + 60] not in one for at in range(0, 1200, 60))


# Records


def test_what_a_reader_goes_by_stays() -> None:
    record = {
        "timestamp": "2026-11-30T12:00:00.123Z",
        "ordinal": 7,
        "type": "response_item",
        "payload": {
            "type": "function_call",
            "name": "exec_command",
            "arguments": '{"cmd": "cat /etc/passwd", "timeout_ms": 12000, "tty": true}',
            "call_id": "call_9",
        },
    }
    made = scrubbed(record)
    assert {**made, "payload": None} == {**record, "payload": None}
    payload = made["payload"]
    assert list(payload) == list(record["payload"])  # type: ignore[call-overload]
    assert payload["type"] == "function_call"
    assert payload["name"] != "exec_command"
    (cmd, timeout, tty) = json.loads(payload["arguments"]).values()
    assert (len(cmd), tty) == (len("cat /etc/passwd"), True)
    assert timeout != 12000
    assert 10_000 < timeout < 100_000
    assert "cmd" not in payload["arguments"]


def test_unknown_keys_go_as_texts_do() -> None:
    made = scrubbed({"type": "event_msg", "payload": {"changes": {"/home/ann/plan.txt": {}}}})
    assert list(made) == ["type", "payload"]
    text = json.dumps(made)
    assert not any(word in text for word in ("changes", "home", "ann", "plan"))


def test_a_value_of_several_words_goes_whatever_its_key() -> None:
    made = scrubbed({"type": "the secret plan", "model": "gpt-5.5"})
    assert made["type"] != "the secret plan"
    assert made["model"] == "gpt-5.5"


def test_a_logged_shell_result_keeps_its_duration() -> None:
    output = '{"output":"total 4\\n","metadata":{"exit_code":1,"duration_seconds":12.5}}'
    made = json.loads(scrubbed({"payload": {"output": output}})["payload"]["output"])
    assert made["metadata"] == {"exit_code": 1, "duration_seconds": 12.5}
    assert made["output"].endswith(" 4\n") is False
    assert made["output"].endswith("\n")


def test_numbers_in_tools_arguments_go() -> None:
    part = {"type": "tool", "state": {"status": "error", "input": {"pin": 4711, "share": 0.25}}}
    made = scrubbed(part, opencode.RULES)["state"]
    assert made["status"] == "error"
    assert 4711 not in made["input"].values()
    assert [len(str(value)) for value in made["input"].values()] == [4, 4]


def test_records_behind_damage_are_found_with_all_that_a_reader_goes_by() -> None:
    whole = {"info": {"id": "msg_22e3da7c9001hL", "role": "user"}, "parts": [{"type": "text"}]}
    text = json.dumps(whole)
    torn = '{"info": {"id": "ses_22e3da7c9001hL", "title": "a secret \\u00e9'
    scrubber = Scrubber(words(), opencode.KEPT, opencode.RULES.start)
    for damage in (torn, text + text, "panic! " + text, torn + "\0\0" + torn):
        made = scrubber.record((damage + text).encode())
        again = json.loads(made[-len(text) :])
        assert list(again) == ["info", "parts"]
        assert again["info"]["role"] == "user"
        assert again["parts"] == whole["parts"]
        assert b"secret" not in made
        assert b"panic" not in made


def test_half_a_surrogate_pair_loses_no_key() -> None:
    record = (
        b'{"info":{"id":"ses_22e3da7c9001hL"},"messages":[{"info":{"role":"user"}}],"x":"a\\ud83d"}'
    )
    made = json.loads(Scrubber(words(), opencode.KEPT, opencode.RULES.start).record(record))
    assert made["messages"] == [{"info": {"role": "user"}}]
    assert list(made)[:2] == ["info", "messages"]


def test_a_stream_kept_as_text_keeps_its_usage() -> None:
    event = {"type": "message_delta", "delta": {"text": "secret"}, "usage": {"output_tokens": 33}}
    stream = f"event: x\ndata: {json.dumps(event)}\n\ndata: [DONE]\n"
    made = scrubbed({"response": {"body_raw": stream}}, requests.RULES)["response"]["body_raw"]
    lines = made.split("\n")
    assert lines[1].startswith("data: {")
    assert json.loads(lines[1][6:])["usage"] == {"output_tokens": 33}
    assert "secret" not in made


def test_large_texts_are_taken_in_blocks_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = b"one two\n" * 50 + b"x" * 300 + b"\nthree " + b"y" * 300
    record = json.dumps({"type": "a", "payload": {"message": text.decode(), "n": [1, True]}})
    scrubber = Scrubber(words(), codex.KEPT, codex.RULES.start)
    at_once = words().text(text), scrubber.record(record.encode())
    monkeypatch.setattr("agentkv_trace.ingest.scrub.cipher.LARGE", 100)
    monkeypatch.setattr("agentkv_trace.ingest.scrub.document.LARGE", 100)
    assert (words().text(text), scrubber.record(record.encode())) == at_once


# Images and other base64


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4) + b"\x08" * 99


def jpeg(width: int, height: int) -> bytes:
    place = b"\xff\xe1\0\x0a" + b"GPS 52N "
    frame = b"\xff\xc0\0\x11\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\3"
    return b"\xff\xd8" + place + frame + b"pixels" * 30


def gif(width: int, height: int) -> bytes:
    return b"GIF87a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\x77" * 40


def webp(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x99\0\0\0WEBPVP8X" + bytes(8) + sizes + b"\x44" * 40


@pytest.mark.parametrize("make", [png, jpeg, gif, webp])
def test_an_image_keeps_format_and_size_and_nothing_else(make: Any) -> None:
    data = make(640, 481)
    text = base64.b64encode(data)
    made = scrub_base64(text, words())
    assert len(made) == len(text)
    assert made[:4] == text[:4]
    again = base64.b64decode(made)
    assert images.size_of(again) == images.size_of(data) == (640, 481)
    assert data[-30:] not in again
    assert b"GPS" not in again
    assert made == scrub_base64(text, words())
    assert made != scrub_base64(base64.b64encode(data[:-1] + b"!"), words())


def test_a_data_url_is_one_wherever_it_stands() -> None:
    url = f"data:image/png;base64,{base64.b64encode(png(64, 64)).decode()}"
    text = words().text(f"see ![image]({url}) and metadata:image".encode()).decode()
    made = words().text(url.encode()).decode()
    assert f"]({made}) " in text
    assert images.tokens_of_url(made) == images.tokens_of_url(url) == 4
    assert made.startswith("data:image/png;base64,iVBORw0KGgo")
    assert "metadata" not in text
    assert words().text(b"data:text/plain,hello").startswith(b"data:")


def test_encrypted_content_becomes_digits() -> None:
    blob = base64.urlsafe_b64encode(bytes(range(256)) * 3).decode()
    made = scrubbed({"payload": {"type": "reasoning", "encrypted_content": blob}})
    assert made["payload"]["encrypted_content"].rstrip("=").isdigit()
    assert len(made["payload"]["encrypted_content"]) == len(blob)


def test_a_text_in_base64_stays_a_text_of_its_length() -> None:
    text = base64.b64encode("Grüße aus dem Büro, 12:30".encode())
    made = base64.b64decode(scrub_base64(text, words())).decode()
    assert len(made.encode()) == len("Grüße aus dem Büro, 12:30".encode())
    assert made[5] == " "
    assert "aus" not in made


# Names


@pytest.mark.parametrize(
    "name",
    [
        "sessions",
        "2026",
        "base_state.json",
        "12.json",
        "trace.jsonl",
        "0001.zst",
        "opencode.db",
        "openai__model-1796074222.249-c1ae.json",
    ],
)
def test_names_that_readers_go_by_stay(name: str) -> None:
    assert replaced(name, words()) == name


def test_names_keep_their_form_with_other_ids() -> None:
    rollout = replaced(f"rollout-2026-11-30T12-00-00-{THREAD}.jsonl.zst", words())
    assert rollout.startswith("rollout-2026-11-30T12-00-00-019ad1c2-5b7e-7")
    assert rollout.endswith(".jsonl.zst")
    assert THREAD not in rollout
    assert replaced("event-00012-cafe0123.json", words()).startswith("event-00012-cafe")
    assert replaced("opencode-acme.db", words()).startswith("opencode-")
    for name in ("acme-plans", "acme.json", "opencode-acme.db"):
        assert "acme" not in replaced(name, words())


# Files


def log(
    folder: Path, data: bytes, name: str = f"rollout-2026-11-30T12-00-00-{THREAD}.jsonl"
) -> str:
    folder.mkdir()
    (folder / name).write_bytes(data)
    return f"codex:{folder}"


def assert_same(name: str, folder: Path) -> Logs:
    logs = Logs(name)
    logs.scrubbed(folder)
    assert_same_trace(trace_of(name), trace_of(f"{logs.source.name}:{folder}"))
    return logs


def damaged(data: bytes) -> dict[str, bytes]:
    lines = data.splitlines(keepends=True)
    cut = [line[: len(line) * 2 // 3] if at in (4, 9) else line for at, line in enumerate(lines)]
    return {
        "torn lines": b"".join(cut),
        "cut inside a text": data[: len(data) // 2],
        "NUL": b"".join([*lines[:5], b"\0" * 500 + b"\n", *lines[5:]]),
        "no JSON": b"".join([*lines[:5], b"panicked at src/main.rs\n[1, 2]\n", *lines[5:]]),
        "no UTF-8": b"".join(
            [*lines[:5], lines[5].replace(b'"text":"', b'"text":"\xff'), *lines[6:]]
        ),
        "BOM and CR": b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
        "two on a line": b"".join([*lines[:5], lines[5].rstrip(), *lines[6:]]),
        "zeros padded": data + b"\0" * 4096,
    }


@pytest.mark.parametrize("case", damaged(b"{}\n" * 20))
def test_bad_lines_stay_bad_in_the_same_way(case: str, tmp_path: Path) -> None:
    name = log(tmp_path / "logs", damaged(ROLLOUT.read_bytes())[case])
    logs = assert_same(name, tmp_path / "out")
    ((path, copy),) = logs.copies.items()
    assert copy.stat().st_size == path.stat().st_size
    assert b"panicked" not in copy.read_bytes()


def test_a_line_too_long_for_any_reader_becomes_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ROLLOUT.read_bytes().splitlines()
    longest = max(map(len, known))
    monkeypatch.setattr(files, "MAX_LINE", longest)
    monkeypatch.setattr("agentkv_trace.ingest.reading.MAX_LINE", longest)
    too_long = b'{"text":"secret' + b"x" * 600_000
    lines = [known[0], too_long, *known[1:], b"y" * (longest + 1)]
    name = log(tmp_path / "logs", b"\n".join(lines))
    logs = assert_same(name, tmp_path / "out")
    ((_, copy),) = logs.copies.items()
    made = copy.read_bytes().split(b"\n")
    assert [len(line) for line in made] == [len(line) for line in lines]
    assert set(made[1] + made[-1]) == {ord("0")}


def test_compressed_files_come_out_compressed_the_same_way(tmp_path: Path) -> None:
    data = ROLLOUT.read_bytes()
    name = f"rollout-2026-11-30T12-00-00-{THREAD}.jsonl.zst"
    for number, packed in enumerate((pa.compress(data, "zstd", asbytes=True), gzip.compress(data))):
        logs = assert_same(log(tmp_path / f"logs{number}", packed, name), tmp_path / f"out{number}")
        ((_, copy),) = logs.copies.items()
        assert copy.read_bytes()[:2] == packed[:2]


def test_a_file_is_as_old_as_its_original(tmp_path: Path) -> None:
    logs = assert_same(log(tmp_path / "logs", ROLLOUT.read_bytes()), tmp_path / "out")
    ((path, copy),) = logs.copies.items()
    assert copy.stat().st_mtime_ns == path.stat().st_mtime_ns


def test_nothing_of_the_folders_above_is_told(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    first = log(tmp_path / "ann" / "plans", ROLLOUT.read_bytes())
    run(members_of(named_logs([first])), tmp_path / "ann", "seed")
    (copy,) = (path for path in (tmp_path / "ann").glob("*.jsonl"))
    assert copy.parent == tmp_path / "ann"


def test_a_session_named_alone_comes_with_its_messages(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    record = {"id": "ses_dd1c252c9ffecJG55r8rnlOwoJ", "version": "1.1.65", "directory": "/home/ann"}
    (storage / "session" / "p").mkdir(parents=True)
    path = storage / "session" / "p" / f"{record['id']}.json"
    path.write_text(json.dumps(record))
    message = {"id": "msg_22e3da7c9001hLShKBz05hUSeA", "role": "user", "time": {"created": 1}}
    (storage / "message" / record["id"]).mkdir(parents=True)
    (storage / "message" / record["id"] / f"{message['id']}.json").write_text(json.dumps(message))
    (tmp_path / "out").mkdir()
    done = run(members_of(named_logs([str(path)])), tmp_path / "out", "seed")
    parts = sorted(copy.relative_to(tmp_path / "out").parts for copy in done.files.values())
    assert [part[:2] for part in parts] == [("storage", "message"), ("storage", "session")]
    ident = json.loads(done.files[path].read_text())["id"]
    assert done.files[path].name == f"{ident}.json"
    assert parts[0][2] == ident


# Databases


def database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE session (id text PRIMARY KEY, title text, version text)")
    connection.execute("CREATE TABLE message (id text, session_id text, data text)")
    connection.execute("CREATE TABLE part (id text, message_id text, session_id text, data text)")
    connection.execute("CREATE TABLE account (email text, token text)")
    connection.execute("INSERT INTO account VALUES ('ann@example.org', 'secrettoken')")
    connection.execute(
        "INSERT INTO session VALUES ('ses_ef47d7b41ffe0V', 'Secret plan', '1.18.33')"
    )
    rows = ('{"role":"user","time":{"created":1}}', "{torn: secret", None, 7, b"\1\2secret")
    for number, data in enumerate(rows):
        row = (f"msg_22e3da7c900{number}hL", "ses_ef47d7b41ffe0V", data)
        connection.execute("INSERT INTO message VALUES (?, ?, ?)", row)
    connection.commit()
    return connection


def test_a_database_keeps_its_rows_and_loses_what_no_reader_needs(tmp_path: Path) -> None:
    database(tmp_path / "opencode.db").close()
    before = (tmp_path / "opencode.db").read_bytes()
    (tmp_path / "out").mkdir()
    run(members_of(named_logs([str(tmp_path / "opencode.db")])), tmp_path / "out", "seed")
    copy = tmp_path / "out" / "opencode.db"
    with sqlite3.connect(copy) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        title, version = connection.execute("SELECT title, version FROM session").fetchone()
        rows = connection.execute("SELECT data, typeof(data) FROM message ORDER BY id").fetchall()
    connection.close()
    assert {"session", "message", "part"} <= tables
    assert "account" not in tables
    assert (len(title), version) == (len("Secret plan"), "1.18.33")
    assert [kind for _, kind in rows] == ["text", "text", "null", "text", "blob"]
    assert rows[0][0] == '{"role":"user","time":{"created":1}}'
    assert len(rows[1][0]) == len("{torn: secret")
    for word in (b"ecret", b"ann@", b"plan"):
        assert word not in copy.read_bytes()
    assert (tmp_path / "opencode.db").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opencode.db", "out"]


def test_rows_in_the_write_ahead_log_are_taken_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    connection = database(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("INSERT INTO session VALUES ('ses_ef47d7b41ffe1V', 'x', '1.18.33')")
    connection.commit()
    names = sorted(each.name for each in tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    run(members_of(named_logs([str(path)])), tmp_path / "out", "seed")
    copied = sqlite3.connect(tmp_path / "out" / "opencode.db")
    assert copied.execute("SELECT count(*) FROM session").fetchone() == (2,)
    copied.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*names, "out"])
    connection.close()


def test_a_damaged_database_gives_what_can_be_read_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    connection = database(path)
    for number in range(400):
        row = (f"prt_{number:012x}", "m", "ses_ef47d7b41ffe0V", "x" * 500)
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096 * 3] = b"\xff" * 4096 * 3
    path.write_bytes(data)
    (tmp_path / "out").mkdir()
    done = run(members_of(named_logs([str(path)])), tmp_path / "out", "seed")
    assert done.notes.skipped == {"damaged database": 1}
    copied = sqlite3.connect(tmp_path / "out" / "opencode.db")
    assert 0 < copied.execute("SELECT count(*) FROM part").fetchone()[0] < 400
    assert copied.execute("SELECT count(*) FROM session").fetchone() == (1,)
    copied.close()


# What is no log


def test_traces_are_not_scrubbed(tmp_path: Path) -> None:
    (tmp_path / "trace.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="holds no text"):
        members_of(named_logs([str(tmp_path / "trace.parquet")]))
