"""What is asked: scenario files and their schema, the loader, and the `kvtier` command.

For notebooks: ``from scenarios import compare, load_scenario, load_variants, plan, predict, simulate, sweep``. Each is
looked up where it lives when it is first asked for, so that importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.build import simulate
    from scenarios.comparison import compare, load_variants
    from scenarios.loader import load_scenario
    from scenarios.planning import plan
    from scenarios.sweeping import sweep
    from scenarios.uncertainty.predicting import predict

__all__ = ["compare", "load_scenario", "load_variants", "plan", "predict", "simulate", "sweep"]

_HOMES = {
    "compare": "scenarios.comparison",
    "load_scenario": "scenarios.loader",
    "load_variants": "scenarios.comparison",
    "plan": "scenarios.planning",
    "predict": "scenarios.uncertainty.predicting",
    "simulate": "scenarios.build",
    "sweep": "scenarios.sweeping",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scenarios' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
