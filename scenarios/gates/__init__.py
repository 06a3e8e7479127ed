"""Acceptance gates: thresholds from a file, evidence from measurements or runs, and a verdict with its margins."""
