"""Many points of one scenario: planned and checked, run anywhere, kept as they end, and gathered in one table."""

from scenarios.sweeping.points import Point, load_points
from scenarios.sweeping.result import SweepResult
from scenarios.sweeping.running import run_points, sweep
from scenarios.sweeping.sources import Sample

__all__ = ["Point", "Sample", "SweepResult", "load_points", "run_points", "sweep"]
