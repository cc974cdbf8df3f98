"""Values that no reader expects, at every place of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[str | int, ...]


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Yield where values are inside another one, itself included."""
    yield above
    for key, inner in (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list)
        else ()
    ):  # fmt: skip
        yield from places(inner, (*above, key))


def replaced(value: Any, place: Place, odd: Any) -> Any:
    """Return a value with another one at a place inside it."""
    if not place:
        return odd
    copy = value.copy()
    copy[place[0]] = replaced(value[place[0]], place[1:], odd)
    return copy
