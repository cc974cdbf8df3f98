"""The same sessions as other loads: timelines, a simulator of engine and tiers, sweeps."""
