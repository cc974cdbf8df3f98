"""Gates for CI: rules, configuration, baseline, and one renderer per format."""
