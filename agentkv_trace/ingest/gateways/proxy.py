"""Proxies between Claude Code and its provider: pairs of requests and responses, or a database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from agentkv_trace.ingest.codex.records import Record, table, text, whole
from agentkv_trace.ingest.gateways.values import unpacked
from agentkv_trace.ingest.requests.times import micros

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentkv_trace.notes import Notes

MAGIC = b"SQLite format 3\0"
_COLUMNS = {"id", "timestamp", "endpoint", "body", "response"}
_MESSAGES = ("/v1/messages", "/chat/completions", "/responses")
_BODIES = ("messages", "input")


def is_pair(record: Record) -> bool:
    """Tell whether a record is a request with the response to it."""
    request = table(record.get("request"))
    return "body" in request and "url" in request


def pair_of(record: Record, notes: Notes) -> Record | None:
    """Return a pair as a raw request; None where no model was asked for a message."""
    request = table(record["request"])
    if not _asks(text(request.get("url")), unpacked(request.get("body")), notes):
        return None
    if record.get("response") is None:
        notes.count("requests without a response")
    return {**record, "request": {**request, "body": unpacked(request.get("body"))}}


def _asks(url: str | None, body: object, notes: Notes) -> bool:
    place = (url or "").partition("?")[0]
    asks = place.endswith(_MESSAGES) and any(name in table(body) for name in _BODIES)
    if not asks:
        notes.count("requests for something else")
    return asks


def is_database(path: Path) -> bool:
    """Tell whether a SQLite file holds a proxy's requests."""
    try:
        with closing(_opened(path)) as database:
            columns = {row[1] for row in database.execute("pragma table_info(requests)")}
    except sqlite3.Error:
        return False
    return columns >= _COLUMNS


def rows_of(path: Path, notes: Notes) -> Iterator[tuple[int, Record]]:
    """Yield the rows of a proxy's database as raw requests; it is opened to be read only."""
    try:
        with closing(_opened(path)) as database:
            query = "select rowid, timestamp, endpoint, body, response from requests order by rowid"
            for number, stamp, place, body, response in database.execute(query):
                found = _row(stamp, unpacked(body), table(unpacked(response)))
                if _asks(text(place), unpacked(body), notes):
                    yield number, found
    except sqlite3.Error:
        notes.skip("damaged database", str(path))


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)


def _row(stamp: object, body: object, response: Record) -> Record:
    start = micros(stamp)
    lasted = whole(response.get("responseTime"))
    end = micros(response.get("completedAt"))
    if end is None and start is not None and lasted is not None:
        end = start + lasted * 1000
    chunks = response.get("streamingChunks")
    streamed = "\n".join(filter(None, map(text, chunks))) if isinstance(chunks, list) else ""
    return {
        "t_start": start,
        "t_end": end,
        "request": {"body": body},
        "response": {
            "status_code": response.get("statusCode"),
            "body": unpacked(response.get("bodyText") or response.get("body")) or streamed,
        },
    }
