"""When a call began and ended, by what each version of the log tells."""

from __future__ import annotations

DELAY_US = 20_000
"""From the last input written to the request's arrival at the server."""

_MARKED = ((0, 42), (0, 139))
"""From the first to before the second version, a repeated token_count is written at each start."""
_LATE_USAGE = (0, 50)
"""Before this version the usage is written only after the tools have run."""


class Clock:
    """Follows the stamps of one thread's records; times are UTC microseconds."""

    def __init__(self, version: tuple[int, int] | None, session_us: int | None) -> None:
        self._marked = version is not None and _MARKED[0] <= version < _MARKED[1]
        self._late_usage = version is not None and version < _LATE_USAGE
        self._session_us = session_us or 0
        self._now: int | None = None
        self._settled = 0
        self._last_start = 0
        self._last_end: int | None = None
        self._input: int | None = None
        self._marker: int | None = None
        self._output: int | None = None
        self._end: int | None = None
        self._end_logged = False
        self._tools = 0

    def see(self, now: int | None) -> None:
        """Take the stamp of the record at hand; without one the last stamp stays."""
        if now is not None:
            self._now = now

    def see_input(self) -> None:
        """Note that something was written that the next prompt holds."""
        self._input, self._marker = self._now, None

    def see_output(self) -> None:
        """Note an item of the response."""
        self._output = self._now

    def see_marker(self) -> None:
        """Note a token_count that tells nothing new: some versions write it at each start."""
        if self._marked:
            self._marker = self._now

    def see_tool(self, seconds: float) -> None:
        """Note how long a tool ran."""
        self._tools += int(seconds * 1e6)

    def see_end(self, logged: bool) -> None:
        """Note the usage of the response; `logged` where it is written as the response ends."""
        self._end, self._end_logged = self._now, logged

    def start(self) -> tuple[int | None, bool]:
        """Return when the call that now begins was sent, and whether the log says so."""
        start, logged = self._marker, True
        if start is None:
            logged = False
            start = self._last_end if self._input is None else self._input + DELAY_US
            if start is None or self._now is None or start > self._now:
                start = self._now
        self._input = self._marker = self._output = self._end = None
        self._tools = 0
        return start, logged

    def end(self) -> tuple[int | None, bool]:
        """Return when the call that is now whole ended, and whether the log says so."""
        if self._end is None:
            end, logged = self._output or self._now, False
        elif self._late_usage:
            end, logged = self._end - self._tools, False
        elif not self._end_logged:
            end, logged = self._output or self._end, False
        else:
            end, logged = self._end, True
        self._last_end = end
        return end, logged

    def settle(
        self, started: tuple[int | None, bool], ended: tuple[int | None, bool]
    ) -> tuple[int, int, str]:
        """Return start, end and time source of the thread's next call, in order and consistent."""
        (start, start_logged), (end, end_logged) = started, ended
        if start is None or end is None:
            at = self._session_us + self._settled
            self._settled += 1
            return at, at, "order_only"
        start = max(min(start, end), self._last_start)
        self._last_start = start
        return start, max(start, end), "logged" if start_logged and end_logged else "estimated"
