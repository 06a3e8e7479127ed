"""What can be measured of a run, and the same figure read off a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from models.errors import InputError, UnknownNameError
from sim.results.percentiles import PercentileRule, percentile
from sim.results.result import SimulationResult

_IOSTAT_BYTES_PER_S: Final = 1.024e9
"""``iostat -k`` counts kB of 1024 B; divided by 1e6 they are shown as GB/s."""
_UNITS: Final = {
    "time": {"s": 1.0, "ms": 1e-3},
    "tokens": {"tok/s": 1.0, "tokens/s": 1.0},
    "rate": {"GB/s": 1e9, "iostat GB/s": _IOSTAT_BYTES_PER_S, "GiB/s": float(1 << 30), "MB/s": 1e6, "MiB/s": 1048576.0},
    "ratio": {"": 1.0, "1": 1.0, "%": 0.01},
}
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def _disk(result: SimulationResult) -> dict[str, Any]:
    """Return the use of the link of the slowest tier: an array's ports, or a drive."""
    tier = list(result.scenario["tiers"])[-1]
    links: dict[str, Any] = result.summary_values["links"]
    if tier not in links:
        raise InputError(f"scenario {result.scenario['name']}: tier {tier} has no link of its own to measure")
    use: dict[str, Any] = links[tier]
    return use


def _read_while_reading(result: SimulationResult) -> float | None:
    use = _disk(result)
    busy_s = use["busy_fraction"] * result.summary_values["makespan_s"]
    return use["read_bytes"] / busy_s if busy_s else None


_METRICS: Final[dict[str, tuple[str, Callable[[SimulationResult], float | None]]]] = {
    "makespan": ("time", lambda result: result.summary_values["makespan_s"]),
    "hit_ratio": ("ratio", lambda result: result.summary_values["hit_ratio_tokens"]),
    "disk_peak": ("rate", lambda result: _disk(result)["peak_bytes_per_s"]),
    "disk_busy_mean": ("rate", lambda result: _disk(result)["read_busy_mean_bytes_per_s"]),
    "disk_read_bw": ("rate", _read_while_reading),
}
_DISTRIBUTIONS: Final = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
_STATISTICS: Final = ("mean", *_QUANTILES, "max")
_THROUGHPUTS: Final = {
    "throughput": ("output_tokens_per_s",),
    "input_throughput": ("input_tokens_per_s",),
    "total_throughput": ("input_tokens_per_s", "output_tokens_per_s"),
}
NAMES: Final = (*(f"{d}_{s}" for d in _DISTRIBUTIONS for s in _STATISTICS), *_THROUGHPUTS, *_METRICS)
"""Metrics of a measurement. Those of requests take ``@N`` for the requests of one replica alone.

``throughput`` is output tokens over the wall time, ``input_throughput`` prompt tokens, whether they were computed or
found, and ``total_throughput`` both. ``disk_*`` are the reads of the slowest tier's link: its largest
second, the mean of its seconds above 0.5 GB/s (iostat's columns in reports R2 and R3), and bytes over the time in which
something is being read.
"""


def check_metric(metric: str) -> str:
    """Return the name of a metric without its replica; UnknownNameError, InputError where there is none such."""
    name, at, replica = metric.partition("@")
    if name not in NAMES:
        raise UnknownNameError("metric", name, NAMES)
    if at and (name.partition("_")[0] not in _DISTRIBUTIONS or not replica.isdigit()):
        raise InputError(f"metric '{metric}': only ttft, tpot and e2e take the number of a replica, such as ttft_p50@0")
    return name


def unit_factor(name: str, unit: str) -> float:
    """Return what a unit of a metric is in SI units; InputError for a unit of something else."""
    distribution = name.partition("_")[0] in _DISTRIBUTIONS
    kind = "time" if distribution else "tokens" if name in _THROUGHPUTS else _METRICS[name][0]
    if unit not in _UNITS[kind]:
        raise InputError(f"unit '{unit}' is none of {name}; allowed: {', '.join(filter(None, _UNITS[kind]))}")
    return _UNITS[kind][unit]


def simulated(result: SimulationResult, metric: str, unit: str, client_s: float) -> float | None:
    """Return a metric of a run in *unit*; None where the run has none (nothing completed, a link never busy)."""
    name, _, replica = metric.partition("@")
    kind, _, statistic = name.partition("_")
    value: float | None
    if kind in _DISTRIBUTIONS and replica:
        value = _of_replica(result, _DISTRIBUTIONS[kind], statistic, int(replica))
    elif kind in _DISTRIBUTIONS:
        value = result.summary_values[_DISTRIBUTIONS[kind]][statistic]
    elif name in _THROUGHPUTS:
        makespan_s = result.summary_values["makespan_s"]
        rates = [result.summary_values["throughput"][of] for of in _THROUGHPUTS[name]]
        value = None if None in rates else sum(rates) * makespan_s / (makespan_s + client_s)
    else:
        value = _METRICS[name][1](result)
    return None if value is None else value / unit_factor(name, unit)


def _of_replica(result: SimulationResult, column: str, statistic: str, replica: int) -> float | None:
    requests = result.table("requests")
    scenario = result.scenario
    chosen = requests["replica"] == replica
    measured = scenario["run"]["measure"]
    if measured is not None:
        names = [phase["name"] for phase in scenario["workload"]["phases"]]
        chosen &= requests["phase"] == names.index(measured)
    values = requests[column][chosen]
    values = values[~np.isnan(values)]
    if not values.size:
        return None
    if statistic in _QUANTILES:
        rule: PercentileRule = scenario["run"]["percentiles"]
        return percentile(values, _QUANTILES[statistic], rule)
    return float(values.mean() if statistic == "mean" else values.max())
