"""Trace formats, one file each; the registry in `sim.traces.reading` finds every file of this folder."""
