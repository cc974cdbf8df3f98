"""Findings from curves and profiles: pure functions."""
