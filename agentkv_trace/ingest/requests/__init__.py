"""Logs of raw requests to a model, one record a call."""
