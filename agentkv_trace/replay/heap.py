"""A binary heap of events in two flat arrays: the earliest first, ties by key."""

from __future__ import annotations

from agentkv_trace.replay.inner import inner


@inner
def _before(time, key, one, other):  # type: ignore[no-untyped-def]
    return time[one] < time[other] or (time[one] == time[other] and key[one] < key[other])


@inner
def _swap(time, key, one, other):  # type: ignore[no-untyped-def]
    time[one], time[other] = time[other], time[one]
    key[one], key[other] = key[other], key[one]


@inner
def _rise(time, key, at):  # type: ignore[no-untyped-def]
    while at > 0 and _before(time, key, at, (at - 1) // 2):
        _swap(time, key, at, (at - 1) // 2)
        at = (at - 1) // 2
    return at


@inner
def _push(time, key, size, when, what):  # type: ignore[no-untyped-def]
    """Add an event to a heap of `size` events; return its new size."""
    time[size] = when
    key[size] = what
    _rise(time, key, size)
    return size + 1


@inner
def _remove(time, key, size, at):  # type: ignore[no-untyped-def]
    """Take out the event at a place (0: the earliest); return the new size."""
    size -= 1
    time[at] = time[size]
    key[at] = key[size]
    at = _rise(time, key, at)
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(time, key, child + 1, child):
            child += 1
        if not _before(time, key, child, at):
            break
        _swap(time, key, at, child)
        at = child
    return size
