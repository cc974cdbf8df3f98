"""The configuration of `check`: `[tool.agentkv-trace.check]`, or `[check]` in a file of its own."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agentkv_trace.check.rules import FIGURES, RULES, Rule, figure
from agentkv_trace.check.values import Tolerance, limit_of
from agentkv_trace.errors import InputError

OWN_FILE = "agentkv-trace.toml"
SCOPES = ("agent", "model")
"""Tables of gates for some calls only."""

SETTINGS: tuple[tuple[str, type, bool, str], ...] = (
    ("sources", str, True, "traces or logs to check where none is named"),
    ("baseline", str, False, "file of the baseline"),
    ("capacity", str, False, "cache that hit ratios are of: 4096chunks, 2Mtok, 40GiB"),
    ("profile", str, False, "model profile: for GPUs, and for sizes in bytes"),
    ("gpu", str, True, "GPU profiles"),
    ("tp", int, False, "tensor-parallel ranks"),
    ("kv-dtype", str, False, "type of the KV cache"),
    ("weight-dtype", str, False, "type of the weights"),
    ("gpu-memory-utilization", float, False, "share of GPU memory that the engine takes"),
    ("gpu-kv-tokens", int, False, "KV pool in tokens as the engine logged it"),
    ("kv-bytes-per-token", int, False, "KV bytes per token and rank"),
    ("backend", str, False, "backend whose tiers are followed"),
    ("host-size", str, False, "host memory that no-thrash is judged with"),
    ("agents", int, False, "agents at once, replayed for no-thrash and max-host-size"),
    ("recover", float, False, "share of what an unlimited tier adds that host memory recovers"),
    ("bytes-per-token", float, False, "bytes per token of logs; else that of the baseline"),
    ("samples", int, False, "most chunks to sample; none: exact"),
    ("seed", int, False, "seed of the sample"),
)
"""Keys that are no gates: name, type, whether it is a list, what it means."""

_NO_FIGURE = frozenset({"sources", "baseline", "bytes-per-token"})
"""Settings that decide where figures come from, not what they mean."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A rule with its limit, for all calls or those of one agent or model."""

    rule: Rule
    limit: Any
    scope: str = "all"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings given, the gates, and by how much figures may regress."""

    settings: dict[str, Any] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    file: Path | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting."""
        return self.settings.get(key, default)

    def with_options(self, **options: Any) -> Config:
        """Return the configuration with what the command line gave; None is not given."""
        given = {key.replace("_", "-"): value for key, value in options.items() if value}
        return replace(self, settings=self.settings | given)

    @property
    def folder(self) -> Path:
        """Return the folder that paths in the file are relative to."""
        return self.file.parent if self.file else Path()

    @property
    def hash(self) -> str:
        """Return what tells apart configurations whose figures mean different things."""
        meaning = {key: value for key, value in self.settings.items() if key not in _NO_FIGURE}
        text = json.dumps(meaning, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def find_config(start: Path) -> Path | None:
    """Return the nearest file with a configuration in a folder or above it, or None."""
    for folder in (start, *start.parents):
        own, project = folder / OWN_FILE, folder / "pyproject.toml"
        if own.is_file():
            return own
        if project.is_file() and _table_of(project) is not None:
            return project
    return None


def load_config(file: Path) -> Config:
    """Read a configuration. Raises InputError, naming the key, for what cannot be meant."""
    table = _table_of(file)
    if table is None:
        where = "[check]" if file.name != "pyproject.toml" else "[tool.agentkv-trace.check]"
        raise InputError(f"{file}: has no table {where}")
    return parse_config(table, file)


def parse_config(table: dict[str, Any], file: Path) -> Config:
    """Return the configuration of a table. Raises InputError as `load_config` does."""
    rules = {rule.key: rule for rule in RULES}
    settings = {name: (kind, many) for name, kind, many, _ in SETTINGS}
    found: dict[str, Any] = {}
    gates: list[Gate] = []
    tolerances: dict[str, Tolerance] = {}
    for key, value in table.items():
        where = f"{file}: {key}"
        if key in rules:
            gates.append(Gate(rules[key], limit_of(rules[key], value, where)))
        elif key in settings:
            found[key] = _setting(value, *settings[key], where)
        elif key == "max-regression":
            tolerances = _tolerances(value, where)
        elif key in SCOPES:
            gates += _scoped(key, value, rules, where)
        else:
            known = [*rules, *settings, "max-regression", *SCOPES]
            raise InputError(f"{where}: unknown key{_meant(key, known)}")
    return Config(found, tuple(gates), tolerances, file)


def shown(config: Config) -> str:
    """Return the configuration in force as TOML, defaults of regression included."""
    lines = [f"# {config.file}" if config.file else "# no configuration file"]
    lines.append("[tool.agentkv-trace.check]")
    lines += [f"{key} = {_toml(value)}" for key, value in config.settings.items()]
    scopes: dict[str, list[Gate]] = {}
    for gate in config.gates:
        scopes.setdefault(gate.scope, []).append(gate)
    for scope, gates in sorted(scopes.items(), key=lambda item: (item[0] != "all", item[0])):
        if scope != "all":
            column, _, name = scope.partition(" ")
            lines += ["", f"[tool.agentkv-trace.check.{column}.{json.dumps(name)}]"]
        lines += [f"{gate.rule.key} = {_toml(gate.limit)}" for gate in gates]
    lines += ["", "[tool.agentkv-trace.check.max-regression]"]
    for each in FIGURES:
        if each.tolerance is not None:
            tolerance = config.tolerances.get(each.name) or Tolerance.parse(each.tolerance)
            lines.append(f"{each.name.replace('_', '-')} = {_toml(str(tolerance))}")
    return "\n".join(lines) + "\n"


def _table_of(file: Path) -> dict[str, Any] | None:
    try:
        with file.open("rb") as opened:
            document = tomllib.load(opened)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: not TOML ({error})") from None
    path = ("tool", "agentkv-trace", "check") if file.name == "pyproject.toml" else ("check",)
    table: Any = document
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def _setting(value: Any, kind: type, many: bool, where: str) -> Any:
    if many:
        values = value if isinstance(value, list) else [value]
        return [_setting(each, kind, False, where) for each in values]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{where}: must be {_KIND_WORDS[kind]}, not {value!r}")
    return value


_KIND_WORDS = {str: "text", int: "a whole number", float: "a number"}


def _scoped(column: str, tables: Any, rules: dict[str, Rule], where: str) -> list[Gate]:
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise InputError(f"{where}: must hold a table for each {column}, such as [{column}.NAME]")
    gates = []
    scoped = {key: rule for key, rule in rules.items() if rule.scoped}
    for name, table in tables.items():
        for key, value in table.items():
            place = f"{where}.{name}.{key}"
            if key not in scoped:
                raise InputError(f"{place}: no gate for a single {column}{_meant(key, scoped)}")
            limit = limit_of(scoped[key], value, place)
            gates.append(Gate(scoped[key], limit, f"{column} {name}"))
    return gates


def _tolerances(value: Any, where: str) -> dict[str, Tolerance]:
    """Read one tolerance for all figures of its unit, or a table by figure."""
    compared = {each.name.replace("_", "-"): each for each in FIGURES if each.tolerance}
    if isinstance(value, str):
        one = Tolerance.parse(value, where)
        return {each.name: one for each in compared.values() if one.fits(each.unit)}
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a tolerance such as '1pp', or a table of them")
    found = {}
    for key, text in value.items():
        if key not in compared:
            raise InputError(f"{where}.{key}: unknown figure{_meant(key, compared)}")
        tolerance = Tolerance.parse(text, f"{where}.{key}")
        if not tolerance.fits(figure(compared[key].name).unit):
            unit = "points, such as 1pp" if compared[key].unit == "ratio" else "per cent"
            raise InputError(f"{where}.{key}: must be in {unit}")
        found[compared[key].name] = tolerance
    return found


def _meant(key: str, known: Any) -> str:
    close = get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _toml(value: Any) -> str:
    return json.dumps(str(value) if not isinstance(value, bool | int | float | list) else value)
