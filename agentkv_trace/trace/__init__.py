"""The trace file: the contract between ingest and everything else."""
