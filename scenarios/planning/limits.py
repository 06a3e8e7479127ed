"""What a plan has to keep: limits on figures of a run's summary, written as `ttft_s.p99<=2`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.errors import InputError, ScenarioError, did_you_mean
from models.units import parse_quantity
from scenarios.build import Assembly
from scenarios.planning.free import quantity_text
from scenarios.planning.keys import path_of
from scenarios.schema import Scenario
from sim.arrays import Bools, Floats

RESTORES: Final = "restores_per_s"
"""Requests that loaded KV from a tier below HBM, by the makespan; beside what a run's summary has."""
UNSERVED: Final = ("requests.rejected", "requests.failed")

_LIMIT: Final = re.compile(r"(?P<figure>[^<>=\s]+)\s*(?P<operator><=|>=|<|>)\s*(?P<bound>[^<>=]+)")
_HOLDS: Final[Mapping[str, Callable[[Any, float], Any]]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
_STATISTICS: Final = ("mean", "p50", "p90", "p99", "max")
_LINK_BYTES: Final = ("read_bytes", "write_bytes", "busy_fraction", "bin_s")
_LINK_RATES: Final = (
    "peak",
    *(f"{way}{name}" for name in ("p99", "capacity") for way in ("read_", "write_")),
    *(f"{way}busy_mean" for way in ("", "read_", "write_")),
)
_LINK_SHARES: Final = ("read_utilisation", "write_utilisation", "busy_utilisation", "utilisation")
_LINK: Final = (*_LINK_BYTES, *(f"{rate}_bytes_per_s" for rate in _LINK_RATES), *_LINK_SHARES)
_TIER_BYTES: Final = ("read", "write", "evicted", "refused", "peak_used", "capacity", "orphaned")
_TIER: Final = ("hit_tokens", "failed_loads", *(f"{name}_bytes" for name in _TIER_BYTES))
# By what the name of a figure ends in, the first that fits.
_DIMENSIONS: Final = (("_bytes_per_s", "bytes_per_s"), ("_bytes", "bytes"), ("_per_s", "ops_per_s"), ("_s", "seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit: where the figure stands in a summary, ``<=``, ``<``, ``>=`` or ``>``, and the bound in SI units."""

    figure: str
    operator: str
    bound: float
    implied: bool = False

    def __str__(self) -> str:
        return f"{self.figure} {self.wanted}"

    @property
    def wanted(self) -> str:
        """What the figure has to be, for people."""
        return f"{self.operator} {figure_text(self.figure, self.bound)}"

    def value_text(self, value: float | None) -> str:
        """Return a value of its figure for people."""
        return figure_text(self.figure, value)

    def is_met(self, value: float | None) -> bool:
        """Whether a figure keeps it; one that the run does not have, since nothing was served, does not."""
        return value is not None and bool(_HOLDS[self.operator](value, self.bound))

    def are_met(self, values: Floats) -> Bools:
        """Return which of several values of its figure keep it."""
        found: Bools = _HOLDS[self.operator](values, self.bound)
        return found

    def kept_by(self, value: float | None) -> float | None:
        """Return by what share of the bound a figure is on its right side, below 0 on its wrong one; None of 0."""
        if value is None or not self.bound:
            return None
        return (self.bound - value if self.operator.startswith("<") else value - self.bound) / self.bound

    def shortfall(self, value: float | None) -> float:
        """Return by which factor a figure is beyond the bound, as a logarithm: above 0 it is missed, below 0 kept."""
        if value is None:
            return math.inf
        above, below = (value, self.bound) if self.operator.startswith("<") else (self.bound, value)
        if above <= 0.0:
            # A limit of 0 that is kept says nothing of how near it is: it must not hide how near others are.
            return -math.inf if below > 0.0 or self.is_met(value) else 0.0
        return math.inf if below <= 0.0 else math.log(above / below)


def parse_limits(texts: Sequence[str], allowed: Sequence[str]) -> tuple[Limit, ...]:
    """Return the limits that *texts* say over the figures *allowed*, and that all requests are served.

    The last is implied unless ``requests.rejected`` or ``requests.failed`` is limited: the time to first token of such
    a request appears in no percentile.

    Raises
    ------
    InputError
        If there is none, or one cannot be read, names no figure, or no bound of the figure's kind.
    """
    if not texts:
        raise InputError("needs a limit to plan for; write --slo 'ttft_s.p99<=2'")
    limits = [_parse(text, allowed) for text in texts]
    for figure in UNSERVED:
        if all(limit.figure != figure for limit in limits):
            limits.append(Limit(figure=figure, operator="<=", bound=0.0, implied=True))
    return tuple(limits)


def _parse(text: str, allowed: Sequence[str]) -> Limit:
    where = f"--slo {text}"
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise ScenarioError(where, "must be FIGURE<=VALUE (or <, >=, >), such as 'ttft_s.p99<=2'")
    figure = found["figure"]
    if figure not in allowed:
        raise ScenarioError(where, _unknown(figure, allowed))
    bound = parse_quantity(found["bound"].strip(), _dimension(figure), where)
    if bound < 0.0:
        raise ScenarioError(where, "the bound must not be below 0")
    return Limit(figure=figure, operator=found["operator"], bound=bound)


def _unknown(figure: str, allowed: Sequence[str]) -> str:
    if figure.startswith("slo.") and not any(name.startswith("slo.") for name in allowed):
        return "the scenario has no slo of its own to count requests by; add --set slo.ttft='2 s'"
    part = figure.partition(".")[0]
    below = [name for name in allowed if name.partition(".")[0] == part]
    listed = below if 0 < len(below) <= _MOST_LISTED else dict.fromkeys(name.partition(".")[0] for name in allowed)
    return f"unknown figure '{figure}'{did_you_mean(figure, allowed)} (allowed: {', '.join(listed)})"


_MOST_LISTED: Final = 12


def _dimension(figure: str) -> str:
    parts = figure.split(".")
    for name in (parts[-1], parts[0]):
        for ending, dimension in _DIMENSIONS:
            if name.endswith(ending):
                return dimension
    return "number"


def figure_text(figure: str, value: float | None) -> str:
    """Return the value of a figure for people."""
    if value is None:
        return "-"
    dimension = _dimension(figure)
    return quantity_text(dimension, value) + ("/s" if dimension == "ops_per_s" else "")


def figure_at(summary: Mapping[str, Any], figure: str) -> float | None:
    """Return a figure of a summary, None where the run has none of it."""
    value: Any = summary
    for key in path_of(figure):
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None or isinstance(value, Mapping) else float(value)


def figure_names(scenario: Scenario, assembly: Assembly) -> list[str]:
    """Return the names of all numeric figures that the summary of a scenario's run has, before it is run."""
    disaggregated = assembly.decoding is not None
    parts = ["queue", "load", "compute", "other"] + (["handover"] if disaggregated else [])
    names = list(_below(("ttft_s", "tpot_s", "itl_s", "e2e_s"), _STATISTICS))
    names += _below(["throughput"], ("output_tokens_per_s", "input_tokens_per_s", "requests_per_s"))
    names += ["makespan_s", RESTORES]
    if scenario.slo is not None:
        names += _below(["slo"], ("attainment", "goodput_requests_per_s"))
    names += _below(["requests"], ("submitted", "completed", "rejected", "failed"))
    names += ["hit_ratio_tokens", *_below(["ttft_parts_s"], parts), *_below(["load_by_tier_s"], scenario.tiers)]
    for tier in scenario.tiers:
        names += _below([f"tiers.{tier}"], _TIER)
    for link in assembly.topology.links.by_name:
        names += _below([f"links.{link}"], _LINK)
    names.append("preemptions")
    if disaggregated:
        names += _below(["handover"], ("requests", "tokens", "bytes"))
        names += _below(["handover.s", "handover.decode_queue_s"], _STATISTICS)
    return names


def _below(parts: Iterable[str], names: Iterable[str]) -> Iterable[str]:
    listed = list(names)
    return (f"{part}.{name}" for part in parts for name in listed)
