"""Charts as SVG: axes, marks and the figures of this tool. No library, no clock, no path."""
