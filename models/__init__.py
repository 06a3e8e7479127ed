"""What things cost: passive specifications, cost functions and the catalogue of sourced figures. No clock, no state."""

from models.accelerator import Accelerator, load_accelerator
from models.catalogue import Entry, Figure, entries, load_entry
from models.errors import (
    CatalogueError,
    InputError,
    InvariantError,
    KvTierError,
    ScenarioError,
    SimulationError,
    TraceError,
    UnknownNameError,
)
from models.link import Link, load_link
from models.llm import Llm, load_llm
from models.roofline import StepCost, kv_capacity_bytes, step_cost
from models.software import SoftwarePath
from models.storage import Device, DeviceCost, load_device
from models.units import format_bytes, format_number, format_rate, format_seconds, parse_quantity

__all__ = [
    "Accelerator",
    "CatalogueError",
    "Device",
    "DeviceCost",
    "Entry",
    "Figure",
    "InputError",
    "InvariantError",
    "KvTierError",
    "Link",
    "Llm",
    "ScenarioError",
    "SimulationError",
    "SoftwarePath",
    "StepCost",
    "TraceError",
    "UnknownNameError",
    "entries",
    "format_bytes",
    "format_number",
    "format_rate",
    "format_seconds",
    "kv_capacity_bytes",
    "load_accelerator",
    "load_device",
    "load_entry",
    "load_link",
    "load_llm",
    "parse_quantity",
    "step_cost",
]
