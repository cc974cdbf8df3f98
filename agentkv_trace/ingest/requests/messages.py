"""What the model reads of one message, whichever API it was sent by."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import msgspec
import xxhash

from agentkv_trace.ingest import images
from agentkv_trace.ingest.codex.items import Opaque, estimated_tokens
from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.trace.call import weakest

Piece = bytes | Opaque
"""Text to be read, or content that is only sized."""

_OF_MODEL = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "web_search_call",
        "image_generation_call",
    }
)
_UNSENT = frozenset({"cache_control", "internal_chat_message_metadata_passthrough"})
_CUT = re.compile(rb"\(litellm_truncated skipped (\d+) chars")
_BYTES_PER_TOKEN = 4
_DEEPEST = 100
"""What is nested deeper in a message is no message's content, and left out."""


@dataclass(slots=True)
class Message:
    """A message as the model reads it, and what tells whose it is."""

    pieces: list[Piece]
    by_model: bool = False
    fidelity: str = "exact"
    asks: tuple[str, ...] = ()
    """Ids of the tool calls that it makes."""
    words: tuple[int, ...] = field(default=())
    """Digests of the texts of a user's or the model's message."""


def message_of(value: object) -> Message:
    """Return what the model reads of a message or an item.

    Left out are ids of items, cache markers and signatures; images and encrypted reasoning
    become opaque pieces behind the text.
    """
    sized: list[Opaque] = []
    found = Message([])
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if key != "id"}
        found.by_model = value.get("role") == "assistant" or text(value.get("type")) in _OF_MODEL
        if found.by_model:
            found.asks = tuple(_asked(value))
        if found.by_model or value.get("role") == "user":
            found.words = tuple(word_digest(words) for words in texts_of(value))
        if _is_encrypted(value):
            found.fidelity = "reasoning_opaque"
            value, sized = {"type": value["type"]}, [_encrypted(value)]
    data = _encoded(_read(value, sized))
    if b"litellm_truncated" in data and (cut := _CUT.search(data)):
        # Which text stood in the middle is lost, how long it was is not.
        tokens = (len(data) + int(cut[1])) // _BYTES_PER_TOKEN
        found.pieces = [Opaque(b"cut\0" + digest(data), tokens)]
        found.fidelity = weakest(found.fidelity, "output_reformatted")
        return found
    found.pieces = [data, *sized]
    return found


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half of a character that is two escapes in JSON, which UTF-8 cannot hold.
        return json.dumps(value, separators=(",", ":")).encode()


def digest(data: bytes | str) -> bytes:
    """Return what tells one content from another."""
    return xxhash.xxh3_128_digest(_plain(data) if isinstance(data, str) else data)


def word_digest(words: str) -> int:
    """Return what tells one text from another."""
    return xxhash.xxh3_64_intdigest(_plain(words))


def _plain(words: str) -> bytes:
    return words.encode(errors="surrogatepass")


def texts_of(message: Record) -> list[str]:
    """Return the texts of a message, one for each of its parts."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [words for part in parts if (words := text(table(part).get("text"))) is not None]


def _asked(message: Record) -> list[str]:
    calls = message.get("tool_calls")
    parts = message.get("content")
    found = [text(message.get("call_id"))]
    if isinstance(calls, list):
        found += [text(table(call).get("id")) for call in calls]
    if isinstance(parts, list):
        uses = [table(part) for part in parts]
        found += [text(part.get("id")) for part in uses if part.get("type") == "tool_use"]
    return [each for each in found if each is not None]


def _is_encrypted(item: Record) -> bool:
    return item.get("type") == "reasoning" and text(item.get("encrypted_content")) is not None


def _encrypted(item: Record) -> Opaque:
    blob = item["encrypted_content"]
    return Opaque(b"reasoning\0" + digest(blob), estimated_tokens(blob))


def _read(value: object, sized: list[Opaque], depth: int = 0) -> object:
    """Return a value without what the model does not read as text; `sized` takes what is sized."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return [_read(each, sized, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind == "thinking":
        return {"type": kind, "thinking": _read(value.get("thinking"), sized, depth + 1)}
    if kind == "redacted_thinking" and (data := text(value.get("data"))) is not None:
        sized.append(Opaque(b"thinking\0" + digest(data), estimated_tokens(data)))
        return {"type": kind}
    if kind in ("image_url", "input_image") and (url := _url(value.get("image_url"))) is not None:
        sized.append(_picture(url, images.tokens_of_url(url)))
        return {"type": kind}
    if kind in ("image", "document") and (data := _base64(value.get("source"))) is not None:
        sized.append(_picture(data, images.tokens_of_base64(data)))
        return {"type": kind}
    return {key: _read(each, sized, depth + 1) for key, each in value.items() if key not in _UNSENT}


def _url(value: object) -> str | None:
    url = value.get("url") if isinstance(value, dict) else value
    return url if isinstance(url, str) and images.is_data_url(url) else None


def _base64(source: object) -> str | None:
    fields = table(source)
    return text(fields.get("data")) if fields.get("type") == "base64" else None


def _picture(data: str, tokens: int) -> Opaque:
    return Opaque(b"image\0" + digest(data), tokens)
