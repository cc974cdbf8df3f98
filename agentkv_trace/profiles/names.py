"""Names as people type them: case, spaces, dots, hyphens and underscores do not count."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_SHOWN = 5


def normalize(name: str) -> str:
    """Return the letters and digits of a name in lower case."""
    return "".join(char for char in name.casefold() if char.isalnum())


def resolve(name: str, table: Mapping[str, Iterable[str]], kind: str) -> str:
    """Return the id in `table` that `name` means.

    `table` maps each id to its other names. A whole name wins; else the start of a name is
    enough where it fits one id only. `kind` is what the error calls the thing.

    Raises InputError, listing the candidates of an ambiguous name or the nearest known ones.
    """
    wanted = normalize(name)
    spellings = {
        key: {normalize(spelling) for spelling in (key, *others)} for key, others in table.items()
    }
    if wanted:
        whole = [key for key, known in spellings.items() if wanted in known]
        started = [
            key
            for key, known in spellings.items()
            if any(spelling.startswith(wanted) for spelling in known)
        ]
        candidates = whole or started
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise InputError(
                f"{kind} {name!r} could mean {_listed(candidates, 'or')}; name one of them"
            )
    raise InputError(f"unknown {kind} {name!r}; {_nearest(wanted, spellings)}")


def _nearest(wanted: str, spellings: Mapping[str, set[str]]) -> str:
    owners = {spelling: key for key, known in spellings.items() for spelling in sorted(known)}
    close = get_close_matches(wanted, sorted(owners), n=2 * _MAX_SHOWN, cutoff=0.5)
    keys = list(dict.fromkeys(owners[spelling] for spelling in close))[:_MAX_SHOWN]
    if keys:
        return f"nearest: {_listed(keys, 'or')}"
    return f"known: {_listed(sorted(spellings), 'and')}"


def _listed(names: list[str], word: str) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) > 2 * _MAX_SHOWN:
        return f"{', '.join(names[: 2 * _MAX_SHOWN])} {word} {len(names) - 2 * _MAX_SHOWN} more"
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
