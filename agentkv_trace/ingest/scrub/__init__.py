"""Logs without their words: the same records, lengths and equalities, to share in a bug report."""
