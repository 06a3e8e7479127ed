"""Figures and fitted parameters that a scenario lays over the catalogue."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from models.accelerator import load_accelerator
from models.catalogue import entries
from models.errors import InputError
from models.figures import KINDS
from models.storage import load_device
from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.parameters import fitted_names, read_parameters
from scenarios.topology.parts import parts_of
from scenarios.uncertainty.fit import read_fit
from scenarios.uncertainty.sources import sources_of

FITTED = """\
name: mine
parameters:
  engine.request_latency: {value: 2 s, spread: 0.1}
  engine.mixed_step_factor: {value: 3}
  transfer.request_software: {value: 50 ms}
  figures.fx100.port_delivered_fraction: {value: 0.5, spread: 0.02}
  figures.mi308x.fp8_efficiency: {value: 0.1}
"""
SETUP = "r2-fx100-c8"


@pytest.fixture
def fitted(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(FITTED, encoding="utf-8")
    return str(path)


def p50(*overrides: str) -> float:
    return float(simulate(load_scenario(SETUP, overrides=["parameters=null", *overrides])).summary()["ttft_s"]["p50"])


def test_a_figure_of_an_entry_is_changed_for_one_scenario() -> None:
    scenario = load_scenario(SETUP, overrides=["figures.fx100.port_delivered_fraction=0.5"])
    array = parts_of(scenario)[-1].device
    assert array.network_delivered_fraction == 0.5
    assert array.network_bytes_per_s == load_device("fx100").configure(1, 1, 4).network_bytes_per_s
    assert load_device("fx100").entry.si("port_delivered_fraction") != 0.5


@pytest.mark.parametrize(
    "override",
    [
        "figures.fx100.port_delivered_fraction=0.5",
        "figures.mi308x.host_link_delivered_fraction=0.1",
        "figures.ddr5.read_bandwidth=10 GB/s",
        "figures.mi308x.step_fixed=1 s",
    ],
)
def test_a_changed_figure_changes_the_run(override: str) -> None:
    assert p50(override) > 1.05 * p50()


def test_a_changed_figure_says_that_it_is_assumed_and_a_fitted_one_does_not(fitted: str) -> None:
    own = load_scenario(SETUP, overrides=["figures.mi308x.fp8_efficiency=0.2"])
    assert "fp8_efficiency (assumed)" in load_accelerator("mi308x", own.changes()).caveats
    theirs = load_accelerator("mi308x", load_scenario(SETUP, overrides=[f"parameters={fitted}"]).changes())
    assert theirs.compute_efficiency["fp8"] == 0.1
    assert not [caveat for caveat in theirs.caveats if "fp8" in caveat]


def test_parameters_lie_above_the_stack_and_below_the_scenario(fitted: str) -> None:
    scenario = load_scenario(SETUP, overrides=[f"parameters={fitted}", "engine.mixed_step_factor=1.5"])
    assert scenario.engine.request_latency == 2.0
    assert scenario.transfer.request_software == 0.05
    assert scenario.engine.mixed_step_factor == 1.5
    assert scenario.figures["fx100"]["port_delivered_fraction"].spread == 0.02
    more = ["figures.fx100.port_delivered_fraction=0.7"]
    kept = load_scenario(SETUP, overrides=[f"parameters={fitted}", *more]).figures["fx100"]["port_delivered_fraction"]
    assert kept.value == 0.7


def test_parameters_are_found_beside_the_scenario(fitted: str, write: Callable[..., str]) -> None:
    del fitted
    path = write(text=f"base: {SETUP}\nparameters: mine.yaml\n", name="sub.yaml")
    assert load_scenario(path).engine.request_latency == 2.0


def test_names_of_entries_are_unique_over_kinds() -> None:
    names = [name for kind in KINDS for name in entries(kind)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("figures.fx10.read_bandwidth=3 GB/s", "did you mean 'fx100'"),
        ("figures.fx100.read_bandwith=3 GB/s", "did you mean 'read_bandwidth'"),
        ("figures.fx100.read_bandwidth=3 GB", "unknown or wrong unit"),
        ("figures.fx100.read_bandwidth=-3 GB/s", "at least 0"),
        ("figures.fx100=3", "figures.fx100"),
        ("parameters=fitted/nothing", "unknown fitted parameters 'fitted/nothing'"),
        ("parameters=nothing.yaml", "cannot be read"),
        ("parameters=3", "parameters"),
    ],
)
def test_what_is_wrong_is_said(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("'", ".")) as caught:
        load_scenario(SETUP, overrides=[override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("engine.request_latency", "engine.request_latncy", "request_latncy"),
        ("engine.request_latency", "workload.limit", "must be engine.KEY, transfer.KEY or figures.ENTRY.FIGURE"),
        ("{value: 3}", "{vlaue: 3}", "has no value"),
        ("{value: 3}", "{value: 0.5}", "at least 1"),
        ("parameters:", "parametrs:", "parameters: is missing"),
    ],
)
def test_a_wrong_file_of_parameters_is_refused(fitted: str, old: str, new: str, message: str) -> None:
    Path(fitted).write_text(FITTED.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        load_scenario(SETUP, overrides=[f"parameters={fitted}"])
    assert "mine.yaml" in str(caught.value)


def test_what_ships_says_where_it_comes_from() -> None:
    assert resources.files("models").joinpath("catalogue", "fitted").is_dir()
    for name in fitted_names():
        document = read_parameters(name).plain()
        assert {"command", "date", "source", "licence"} <= set(document)
        if document["command"].startswith("kvtier calibrate-steps"):
            assert document["fit"]["rows"] > 0 < document["fit"]["not_fitted"]["tpot_median_error"]
        else:
            assert document["rows"]
            assert document["covariance"]["order"] == list(document["parameters"])


def test_a_figure_that_another_supersedes_is_neither_rested_on_nor_drawn() -> None:
    plain = load_scenario("quickstart")
    fitted = load_scenario("quickstart", overrides=["parameters=fitted/vllm-hopper"])
    for scenario, used in ((plain, True), (fitted, False)):
        gpu = load_accelerator("h100-sxm", scenario.changes())
        assert any(caveat.startswith("layer_fixed ") for caveat in gpu.caveats) is used
        fit = None if scenario.parameters is None else read_fit(scenario.parameters)
        drawn = {number.key for number in sources_of(scenario, fit).uncertain}
        assert ("figures.h100-sxm.layer_fixed" in drawn, "figures.h100-sxm.kernel_fixed" in drawn) == (used, not used)
