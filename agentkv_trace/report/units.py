"""Numbers with their units, three figures long."""

from __future__ import annotations


def format_tokens(number: int) -> str:
    """Return a number of tokens such as `950`, `12.3k`, `1.2M` or `4.56B`, without the word."""
    return _scaled(number, 1000, ("", "k", "M", "B", "T"))


def format_bytes(number: float) -> str:
    """Return bytes such as `96 KiB`, `11.4 GiB` or `1.5 TiB`."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def format_ratio(ratio: float) -> str:
    """Return a ratio as a percentage such as `41.0%`."""
    return f"{100 * ratio:.1f}%"


def format_points(difference: float) -> str:
    """Return a difference of ratios such as `52.2 points`."""
    return f"{100 * difference:.1f} points"


def _scaled(number: float, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while power < len(suffixes) - 1 and float(_figures(number)) >= base:
        number /= base
        power += 1
    return f"{_figures(number)}{suffixes[power]}"


def _figures(number: float) -> str:
    decimals = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_seconds(seconds: float) -> str:
    """Return a time such as `0.8 s`, `45 s`, `12.5 min` or `3.1 h`; the sign is left out."""
    seconds = abs(seconds)
    for limit, size, unit in ((90, 1, "s"), (5400, 60, "min")):
        if seconds < limit:
            return f"{_figures(seconds / size)} {unit}"
    return f"{_figures(seconds / 3600)} h"


def format_count(number: float) -> str:
    """Return a rate or ratio such as `2.25K` or `15.5K`, in thousands as the paper writes it."""
    return _scaled(number, 1000, ("", "K", "M"))
