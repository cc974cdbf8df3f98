"""GPU and model profiles."""
