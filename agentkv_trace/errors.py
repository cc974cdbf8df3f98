"""The one exception that reaches the user as a message."""

from __future__ import annotations


class AgentKVError(Exception):
    """What is wrong, where, and what to do, in one line; the command exits with 2."""


class InputError(AgentKVError):
    """Something in a file or an argument cannot be used."""
