"""As much of JSON Schema as the shipped schemas use."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

_KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
    "boolean": bool,
}


def load(package: str, name: str) -> Any:
    return json.loads(files(package).joinpath(f"schemas/{name}").read_text("utf-8"))


def check(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "$") -> None:
    """Raise AssertionError, naming the place, where a value breaks a schema."""
    if "$ref" in schema:
        check(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], f"{where}: {value!r}"
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        right = any(
            isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
            for kind in named
        )
        assert right, f"{where}: {value!r} is no {named}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), where
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), where
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key, each in value.items():
            assert key in known or others is not False, f"{where}.{key}"
            part = known.get(key, others)
            if isinstance(part, dict):
                check(each, part, root, f"{where}.{key}")
    if isinstance(value, list) and "items" in schema:
        for at, each in enumerate(value):
            check(each, schema["items"], root, f"{where}[{at}]")
