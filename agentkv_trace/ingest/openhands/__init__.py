"""OpenHands logs: conversations, trajectories, evaluations and completions of both generations."""
