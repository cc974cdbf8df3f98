"""What stays of OpenCode's logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.opencode import files
from agentkv_trace.ingest.opencode.database import MAGIC
from agentkv_trace.ingest.scrub.document import NOTHING, Kept, named
from agentkv_trace.ingest.scrub.rules import Form, Member, Rules
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = Kept(
    keys=named(
        """
        id parentID parent_id projectID version directory path cwd fork_session_id
        time created updated completed start end compacted ran pruned revert permission
        role agent mode providerID modelID model parts part info messages message messageID partID
        sessionID error name finish summary title tokens input output reasoning cache read write
        total type text synthetic ignored mime url uri filename auto overflow tail_start_id tool
        callID state status metadata attachments tools system format data content structured
        command files recent
        """
    ),
    values=named("version role agent mode providerID modelID model type status mime"),
    words=named("MessageAbortedError"),
    blobs=named("data"),
    inside={
        b"input": NOTHING,
        b"structured": NOTHING,
        b"permission": NOTHING,
        b"tools": NOTHING,
        b"format": NOTHING,
        b"model": Kept(
            keys=named("id providerID modelID"),
            values=named("id providerID modelID"),
        ),
        b"metadata": Kept(
            keys=named("output interrupted anthropic signature reasoningEncryptedContent"),
            blobs=named("signature reasoningEncryptedContent"),
        ),
    },
    numbers=True,
)
TABLES = ("session_v2", "session", "message", "part", "event", "session_message")
"""The tables that are read; all others are left out, with the accounts in them."""


def members(path: Path) -> Iterator[Member]:
    """Yield the files of a database, of an export, or of a session in the JSON tree."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            yield Member(path, path.parent, Form.database)
            return
    if not path.name.startswith("ses_") or "session" not in path.parts:
        yield Member(path, path.parent, Form.document)
        return
    base, old = files.storage_of(path)
    yield Member(path, base.parent, Form.document)
    info = files.session_info(path, Notes()) or {}
    ident = str(info.get("id") or path.stem)
    place = base / "session" if old else base
    for message in sorted((place / "message" / ident).glob("*.json")):
        yield Member(message, base.parent, Form.document)
        inside = (message.stem,) if not old else (ident, message.stem)
        for part in sorted((place / "part").joinpath(*inside).glob("*.json")):
            yield Member(part, base.parent, Form.document)


RULES = Rules(KEPT, re.compile(rb'\{\s*"(?:id|info)"\s*:'), members)
