"""What the catalogue alone says of the published runs, before anything is fitted."""

from statistics import median

import pytest

from calibration.compare import Comparison, compare, markdown
from calibration.published import reports
from scenarios.build import simulate
from scenarios.loader import library, load_scenario
from sim.results.result import SimulationResult


@pytest.fixture(scope="module")
def rows() -> dict[str, Comparison]:
    return {row.measurement.id: row for row in compare(seeds=range(3))}


def run(name: str, seed: int = 0) -> SimulationResult:
    return simulate(load_scenario(name, seed=seed))


def test_every_figure_names_a_shipped_scenario_and_its_licence() -> None:
    shipped = {name for name, _ in library()}
    for report in reports():
        assert report.licence
        assert {figure.scenario for figure in report.figures} <= shipped
        ids = [figure.id for figure in report.figures]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ["r2-fx100-c8-p50", "r2-fx100-c16-p50", "r2-nvme-c8-p50", "r2-nvme-c16-p50"])
def test_cold_recovery_ttft_is_within_15_percent(rows: dict[str, Comparison], name: str) -> None:
    assert abs(rows[name].error) <= 0.15


@pytest.mark.parametrize("name", ["r2-fx100-c8", "r2-fx100-c16", "r2-nvme-c8", "r2-nvme-c16"])
def test_the_default_seed_alone_is_within_15_percent(name: str) -> None:
    measured = next(f.value for report in reports() for f in report.figures if f.id == f"{name}-p50")
    assert run(name).summary()["ttft_s"]["p50"] == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("name", ["r3-fx100-c16-p50", "r3-fx100-c32-p50", "r3-nvme-c16-p50", "r3-nvme-c32-p50"])
def test_two_replicas_on_one_array_are_predicted_within_15_percent(rows: dict[str, Comparison], name: str) -> None:
    assert abs(rows[name].error) <= 0.15


def test_serial_against_parallel_reads_is_the_software_path(rows: dict[str, Comparison]) -> None:
    assert abs(rows["r1-serial-ttft"].error) <= 0.15
    assert abs(rows["r1-parallel-ttft"].error) <= 0.15


def test_about_two_of_sixteen_sessions_come_from_the_dram_pool() -> None:
    sessions = [run("r2-fx100-c16", seed).summary()["tiers"]["dram"]["hit_tokens"] / 30_208 for seed in range(5)]
    assert 1.0 <= median(sessions) <= 3.0


def test_the_first_wave_finds_nothing_in_dram() -> None:
    assert run("r2-fx100-c8").summary()["tiers"]["dram"]["hit_tokens"] == 0


def test_a_few_requests_make_the_first_step_and_the_rest_finish_together() -> None:
    result = run("r3-fx100-c16")
    summary = result.summary()
    assert len(set(result.columns["requests"]["replica"].tolist())) == 2
    assert summary["ttft_s"]["mean"] < summary["ttft_s"]["p50"]
    assert summary["ttft_s"]["p90"] == pytest.approx(summary["ttft_s"]["p50"], rel=0.05)


def test_the_table_has_a_row_a_figure(rows: dict[str, Comparison]) -> None:
    assert len(markdown(list(rows.values())).splitlines()) == 2 + len(rows)
