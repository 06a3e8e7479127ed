"""Inverse sizing: the least of some quantities with which a scenario meets its limits, and what that takes."""

from scenarios.planning.answer import Plan
from scenarios.planning.planner import plan, with_uncertainty

__all__ = ["Plan", "plan", "with_uncertainty"]
