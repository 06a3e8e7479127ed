"""What can be measured of a run, and the same figure read off a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from models.errors import InputError, UnknownNameError
from sim.arrays import Floats
from sim.results.percentiles import PercentileRule, percentile
from sim.results.result import SimulationResult
from sim.results.summary import measured_window

_IOSTAT_BYTES_PER_S: Final = 1.024e9
"""``iostat -k`` counts kB of 1024 B; divided by 1e6 they are shown as GB/s."""
_SAMPLE_S: Final = 1.0
"""What ``iostat -x 1`` averages over."""
_BUSY_ABOVE_BYTES_PER_S: Final = 0.5 * _IOSTAT_BYTES_PER_S
"""Seconds that count as busy in the scripts of the reports: more than 500,000 kB/s."""
LINK_BIN_S: Final = 0.05
"""Bins in which a run must meter its links for seconds that may begin at twenty places."""
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


def _sampled_reads(result: SimulationResult) -> list[Floats]:
    """Return the reads of the slowest tier's link second by second [B/s], once for each place where a second may begin.

    A sampler such as iostat starts whenever it starts; its seconds are cut out of the bins of the run.
    """
    _disk(result)
    links = result.table("links")
    mine = links["link"] == list(result.labels["links"]["link"]).index(list(result.scenario["tiers"])[-1])
    time_s, rate = links["time_s"][mine], links["read_bytes_per_s"][mine]
    if not np.any(rate):
        return []
    bin_s = float(time_s[1] - time_s[0])
    from_s, to_s = measured_window(result.table("requests"), result.measured_requests())
    rate = rate[(time_s + bin_s > from_s) & (time_s < to_s)]
    a_second = max(round(_SAMPLE_S / bin_s), 1)
    samples = []
    for begins in range(a_second):
        padded = np.concatenate([np.zeros(begins), rate, np.zeros(-(begins + rate.size) % a_second)])
        samples.append(padded.reshape(-1, a_second).mean(axis=1))
    return samples


def _peak(result: SimulationResult) -> float | None:
    largest = [seconds.max() for seconds in _sampled_reads(result)]
    return float(np.mean(largest)) if largest else None


def _busy_mean(result: SimulationResult) -> float | None:
    busy = [seconds[seconds > _BUSY_ABOVE_BYTES_PER_S] for seconds in _sampled_reads(result)]
    means = [seconds.mean() for seconds in busy if seconds.size]
    return float(np.mean(means)) if means else None


def _read_while_reading(result: SimulationResult) -> float | None:
    use = _disk(result)
    busy_s = use["busy_fraction"] * result.summary_values["makespan_s"]
    return use["read_bytes"] / busy_s if busy_s else None


_METRICS: Final[dict[str, tuple[str, Callable[[SimulationResult], float | None]]]] = {
    "makespan": ("time", lambda result: result.summary_values["makespan_s"]),
    "hit_ratio": ("ratio", lambda result: result.summary_values["hit_ratio_tokens"]),
    "disk_peak": ("rate", _peak),
    "disk_busy_mean": ("rate", _busy_mean),
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
found, and ``total_throughput`` both. ``disk_*`` are the reads of the slowest tier's link: its largest second, the mean
of its seconds above 0.5 iostat GB/s (columns of reports R2 and R3), and bytes over the time in which something is being
read. Where a sampler's seconds begin is chance, and moves the mean of a wave of 7 s by an eighth: both are means over
all places where they may.
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
    values = requests[column][(requests["replica"] == replica) & result.measured_requests()]
    values = values[~np.isnan(values)]
    if not values.size:
        return None
    if statistic in _QUANTILES:
        rule: PercentileRule = result.scenario["run"]["percentiles"]
        return percentile(values, _QUANTILES[statistic], rule)
    return float(values.mean() if statistic == "mean" else values.max())
