"""Trajectories of mini-swe-agent."""
