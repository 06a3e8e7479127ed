"""Days of service: what a run holds does not grow with the time that it has run for, and its times do not drift.

R2's node for three days, cut to a few hours of the same load: a session comes back from the array every ten seconds.
"""

import gc
import tracemalloc
from math import sqrt

import numpy as np
import pytest

from scenarios.build import build
from scenarios.loader import load_scenario
from sim.simulation import Simulation

CHECKPOINTS = "neighbours.training={tier: fx100, direction: write, senders: 8, bursts: {bytes: 60 GB, every: 5 min}}"
LATE = "neighbours.late={tier: fx100, direction: read, rate: 8 GB/s, phase: days, start: 3 h}"


def days(hours: int, *overrides: str) -> Simulation:
    # Bins of a minute: those of a second grow up to 200,000 of them, two and a half days.
    shorter = f"workload.phases.days.poisson.requests={360 * hours}"
    return build(load_scenario("r2-fx100-72h", overrides=[shorter, *overrides]), link_bin_s=60.0)


@pytest.mark.parametrize("overrides", [(), (CHECKPOINTS,)])
def test_nothing_is_held_for_each_request_or_hour_but_rows_of_the_tables(overrides: tuple[str, ...]) -> None:
    simulation = days(5, *overrides)
    seen: list[tuple[int, int, int]] = []

    def look(_: object) -> None:
        gc.collect()
        seen.append((simulation.cluster.submitted, len(gc.get_objects()), tracemalloc.get_traced_memory()[0]))

    for hour in (1, 2, 3, 4):
        simulation.clock.at(hour * 3600.0, 0, look)
    tracemalloc.start()
    try:
        simulation.run()
    finally:
        tracemalloc.stop()
    (first, objects, held_bytes), *_, (last, objects_then, held_bytes_then) = seen
    assert last - first > 1000
    # A few are under way at any moment; one for every tenth request would be 100.
    assert abs(objects_then - objects) < 60
    # A row of 120 bytes and 12 a tier for each request, and one of 38 for each of its transfers, about one each; tables
    # are given room for more than they hold.
    row_bytes = 120 + 12 * len(simulation.cluster.tiers) + 38 * simulation.transfers.seen / simulation.cluster.submitted
    assert held_bytes_then - held_bytes < 1.5 * row_bytes * (last - first)


def drift(*overrides: str) -> tuple[float, float]:
    """Mean TTFT of the last quarter of the time against the first [1], and the standard error of that.

    Requests follow on each other, so the error is that of the means of sixteen stretches of each quarter.
    """
    result = days(7, *overrides).run()
    requests, measured = result.table("requests"), result.measured_requests()
    ttft_s = requests["ttft_s"][measured][np.argsort(requests["arrived_at_s"][measured])]
    first, *_, last = (np.array([part.mean() for part in np.array_split(q, 16)]) for q in np.array_split(ttft_s, 4))
    error_s = sqrt((first.var(ddof=1) + last.var(ddof=1)) / 16)
    return float(last.mean() / first.mean() - 1.0), error_s / float(first.mean())


def test_times_do_not_drift() -> None:
    by, error = drift()
    assert error < 0.015  # a drift of 5 % would be seen
    assert abs(by) < 3.0 * error


def test_a_drift_would_be_seen() -> None:
    """Somebody takes half of the array from the middle of the run on."""
    by, error = drift(LATE)
    assert by > 10.0 * error
