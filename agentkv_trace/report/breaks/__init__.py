"""What `explain` says: one frozen result, then one renderer per format."""
