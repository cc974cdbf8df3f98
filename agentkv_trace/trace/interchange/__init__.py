"""Other tools' traces, in and out."""
