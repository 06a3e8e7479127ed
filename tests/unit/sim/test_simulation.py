"""The books of a run, its measured window and its progress."""

import numpy as np
import pytest
from engine_kit import Row, Rows, made_up_cost, prepared, scenario, serve, table

from models.errors import InputError, InvariantError
from scenarios.build import simulate
from scenarios.loader import load_scenario
from sim.books import check_books, check_requests
from sim.simulation import Measurement
from sim.workload.phases import Phase

COST = made_up_cost(fixed_s=1.0)
NVME = {"nvme": {"device": "nvme-gen4", "capacity": 1e9}}
LOAD = [Row(0.0, 65, 3, [1, 2]), Row(10.0, 65, 3, [1, 2]), Row(20.0, 65, 3)]


def finished():
    simulation = prepared(scenario(tiers=NVME), Rows(LOAD), COST)
    simulation.run()
    return simulation


def books(simulation) -> None:
    check_books(simulation.cluster, simulation.network, simulation.meter)


def test_the_books_of_a_run_balance():
    books(finished())


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("request_id", 1, 0, "request 0 of 3 ended 2 times"),
        ("computed_prompt_tokens", 2, 64, "request 2: 65 prompt tokens, but 64 hit or computed"),
        ("hit_tokens_nvme", 0, 1, "request 0: 65 prompt tokens, but 66 hit or computed"),
        ("other_s", 1, -1e-3, "request 1: other_s of its TTFT is -0.001"),
        ("queue_s", 1, np.nan, "request 1: queue_s of its TTFT is nan"),
    ],
)
def test_a_wrong_row_is_found(column, row, value, message):
    columns = {name: values.copy() for name, values in finished().cluster.log.columns().items()}
    check_requests(columns, 3)
    columns[column][row] = value
    with pytest.raises(InvariantError, match=message):
        check_requests(columns, 3)


def test_a_request_that_is_lost_is_found():
    simulation = finished()
    with pytest.raises(InvariantError, match="request 3 of 4 ended 0 times"):
        check_requests(simulation.cluster.log.columns(), 4)
    simulation.cluster.submitted += 1
    with pytest.raises(InvariantError, match="1 of 4 requests never ended"):
        books(simulation)


def test_bytes_that_nobody_metered_are_found():
    simulation = finished()
    simulation.meter = type(simulation.meter)([link.name for link in simulation.network.links])
    with pytest.raises(InvariantError, match="bytes were sent but"):
        books(simulation)


def test_a_tier_whose_ledger_does_not_balance_is_found():
    simulation = finished()
    simulation.cluster.tiers["nvme"][0].arrived_chunks += 1
    with pytest.raises(InvariantError, match="tier nvme: the ledger does not balance"):
        books(simulation)


def test_only_the_measured_phase_counts():
    phases = [Phase(name="warm", driver=Rows(LOAD)), Phase(name="run", driver=Rows(LOAD[:1]), clear=("hbm",))]
    simulation = prepared(scenario(tiers=NVME), phases, COST)
    simulation.measurement = Measurement(phase=1)
    summary = simulation.run().summary()
    assert summary["requests"]["completed"] == 1
    assert summary["tiers"]["nvme"]["hit_tokens"] == 64
    assert summary["itl_s"]["max"] == 1.0
    assert simulation.intervals.count == 2


def test_what_arrives_in_the_warm_up_does_not_count():
    simulation = prepared(scenario(tiers=NVME), Rows(LOAD), COST)
    simulation.measurement = Measurement(warmup_s=5.0)
    result = simulation.run()
    assert result.summary()["requests"]["completed"] == 2
    assert len(table(result)["state"]) == 3
    assert simulation.intervals.count == 4
    simulation = prepared(scenario(tiers=NVME), Rows(LOAD), COST)
    simulation.measurement = Measurement(warmup_s=60.0)
    with pytest.raises(InputError, match=r"run\.warmup is 60 s: the last request arrives before, at 20 s"):
        simulation.run()


def test_progress_rises_to_one():
    seen: list[float] = []
    simulation = prepared(scenario(), Rows([Row(0.001 * n, 20, 1) for n in range(3000)]), COST)
    from unittest import mock

    with mock.patch("sim.simulation._PROGRESS_EVERY_S", -1.0):
        simulation.run(lambda fraction, ended: seen.append(fraction))
    assert seen == sorted(seen)
    assert 0.0 < seen[0] < 0.2
    assert 0.9 < seen[-1] <= 1.0


def test_gaps_that_a_preemption_makes_are_counted():
    result = serve(scenario(hbm_blocks=8), Rows([Row(0.0, 32, 60), Row(0.0, 32, 60)]), COST)
    assert result.summary()["itl_s"]["max"] == table(result)["itl_max_s"].max() == 28.0


def test_links_carry_in_a_measured_phase_what_its_tiers_read_to_the_byte():
    result = simulate(load_scenario("r1-parallel")).summary()
    assert result["links"]["fx100"]["read_bytes"] == result["tiers"]["fx100"]["read_bytes"]
    assert result["links"]["fx100"]["write_bytes"] == 0.0


def test_requests_without_output_end_with_their_prompt_and_are_counted():
    result = serve(scenario(), Rows([Row(0.0, 65, 0), Row(10.0, 65, 2)]), COST)
    rows = table(result)
    assert rows["finished_at_s"][0] == rows["first_token_at_s"][0] == 1.0
    assert [w for w in result.summary()["warnings"] if w.startswith("1 of 2 requests have no output")]
    assert not any("no output" in w for w in serve(scenario(), Rows(LOAD), COST).summary()["warnings"])
