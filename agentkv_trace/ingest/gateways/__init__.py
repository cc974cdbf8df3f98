"""Logs of gateways, proxies and tracers, and of the server itself."""
