"""Readers of agents' logs."""
