"""OpenCode logs."""
