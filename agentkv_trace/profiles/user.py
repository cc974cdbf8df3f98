"""Profiles of a user's own: `agentkv-trace.toml` in the current folder.

[gpus.my-card]
like = "h100-pcie"            # take what is not stated from a known profile
name = "My card"
[gpus.my-card.host_link]
h2d_gbps = 21

[models.my-model]
like = "qwen3-32b"
layers = 48
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import Gpu, Model
from agentkv_trace.profiles.names import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "agentkv-trace.toml"
_TABLES = ("gpus", "models")
_OTHERS = ("check",)
"""Tables of the same file that are read elsewhere."""

_Profile = TypeVar("_Profile", Gpu, Model)


def user_gpus(shipped: Mapping[str, Gpu], folder: Path | None = None) -> dict[str, Gpu]:
    """Return the GPUs of the file in `folder` (the current one), by id; none without a file.

    Raises InputError for keys that are not known, naming the nearest, and for wrong values.
    """
    return _profiles("gpus", Gpu, shipped, folder)


def user_models(shipped: Mapping[str, Model], folder: Path | None = None) -> dict[str, Model]:
    """Return the models of the file in `folder`, as `user_gpus` does."""
    return _profiles("models", Model, shipped, folder)


def _profiles(
    table: str, kind: type[_Profile], shipped: Mapping[str, _Profile], folder: Path | None
) -> dict[str, _Profile]:
    path = Path(FILE) if folder is None else folder / FILE
    try:
        raw = msgspec.toml.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{FILE}: no TOML ({error})") from None
    for key in raw:
        if key not in (*_TABLES, *_OTHERS):
            raise InputError(f"{FILE}: unknown table {key!r}{_nearest(key, _TABLES)}")
    entries = raw.get(table, {})
    if not isinstance(entries, dict):
        raise InputError(f"{FILE}: {table} is no table; write [{table}.NAME]")
    return {key: _profile(table, key, entry, kind, shipped) for key, entry in entries.items()}


def _profile(
    table: str, key: str, entry: Any, kind: type[_Profile], shipped: Mapping[str, _Profile]
) -> _Profile:
    where = f"{FILE}: {table}.{key}"
    if not isinstance(entry, dict):
        raise InputError(f"{where}: is no table; write [{table}.{key}]")
    stated = dict(entry)
    base: dict[str, Any] = {}
    like = stated.pop("like", None)
    if like is not None:
        names = {known: (profile.name,) for known, profile in shipped.items()}
        base = msgspec.to_builtins(shipped[resolve(str(like), names, f"{where}: like")])
        for gone in ("aliases", "published", "sources"):
            base.pop(gone, None)
        base |= {"confidence": "derived", "sources": [f"like {like}, {FILE}"]}
    merged = {"name": key, "sources": [FILE]} | _merged(base, stated) | {"id": key}
    try:
        return msgspec.convert(merged, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_said(str(error), kind)}") from None


def _merged(base: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in stated.items():
        inner = merged.get(key)
        both = isinstance(value, dict) and isinstance(inner, dict)
        merged[key] = {**inner, **value} if both and inner is not None else value
    return merged


def _said(message: str, kind: type[Any]) -> str:
    """Return the error in our words, with the nearest known key where one is not known."""
    if "unknown field `" in message:
        key = message.split("unknown field `")[1].split("`")[0]
        return f"unknown key {key!r}{_nearest(key, sorted(_keys(kind)))}"
    if "missing required field `" in message:
        key = message.split("missing required field `")[1].split("`")[0]
        return f"{key} is missing; state it, or a profile to take it from with `like`"
    return message


def _keys(kind: Any) -> set[str]:
    """Return the fields of a struct and of the structs in it."""
    found: set[str] = set()
    for field in msgspec.structs.fields(kind):
        found.add(field.name)
        for inner in (field.type, *getattr(field.type, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                found |= _keys(inner)
    return found - {"id"} | {"like"}


def _nearest(key: str, known: Any) -> str:
    close = get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
