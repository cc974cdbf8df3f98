"""Stand-in during the move of Notes."""

from agentkv_trace.notes import MAX_EXAMPLES, Notes

__all__ = ["MAX_EXAMPLES", "Notes"]
