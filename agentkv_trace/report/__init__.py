"""One frozen result and one renderer per format."""
