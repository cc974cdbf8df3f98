"""Codex CLI logs."""
