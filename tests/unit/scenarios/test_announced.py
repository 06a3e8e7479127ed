"""Parts that nobody can buy yet: each loads, runs, moves its figures, and makes the run say what it is."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from three_tiers import THREE_TIERS

from models.catalogue import entries, load_entry
from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.uncertainty.sources import sources_of

TEXT = (
    f"name: announced\n{THREE_TIERS}"
    """\
workload:
  closed_loop: {concurrency: 4, requests: 40, sessions: 10, shuffle: true, prompt_tokens: 8192, output_tokens: 8}
economics: {}
"""
)
KEYS = {"accelerator": "cluster.accelerator", "link": "cluster.nic"}
ANNOUNCED = [
    (kind, name) for kind in ("accelerator", "link", "storage") for name in entries(kind)
    if load_entry(kind, name).status == "announced"
]  # fmt: skip


def run(path: str, *overrides: str) -> dict[str, Any]:
    return simulate(load_scenario(path, overrides=list(overrides))).summary()


@pytest.fixture
def path(write: Callable[..., str]) -> str:
    return write(text=TEXT, name="announced.yaml")


def test_the_generations_that_planners_ask_for_are_there() -> None:
    names = {name for _, name in ANNOUNCED}
    assert {"rubin", "mi455x", "fx400", "cmx", "samsung-pm1763", "cxl-3.1-x8", "connectx-9", "bluefield-4"} <= names
    assert {"b300-sxm", "gb300"} <= set(entries("accelerator"))


@pytest.mark.parametrize(("kind", "name"), ANNOUNCED)
def test_it_runs_and_the_run_says_so(path: str, kind: str, name: str) -> None:
    entry = load_entry(kind, name)
    memory = entry.traits.get("device_class") == "memory"
    key = KEYS.get(kind) or f"tiers.{'dram' if memory else 'fabric'}.device"
    found = run(path, f"{key}={name}")
    assert found["requests"]["completed"] == 40
    assert found["tiers"]["fabric"]["read_bytes"] > 0
    warning = next(line for line in found["warnings"] if line.startswith(f"{name} rests on"))
    assert "(announced" in warning
    spreads = [entry.figures[caveat.partition(" ")[0]].spread for caveat in entry.caveats]
    assert re.findall(r"±[\d.]+ %", warning) == [f"±{100 * spread:g} %" for spread in spreads if spread] != []
    # Prices of such parts are guesses, and said to be.
    assert any(line.startswith(f"{name}: ") for line in found["economics"]["caveats"])


@pytest.mark.parametrize(("kind", "name"), ANNOUNCED)
def test_what_is_guessed_of_it_is_drawn_wide(path: str, kind: str, name: str) -> None:
    key = KEYS.get(kind) or "tiers.fabric.device"
    overrides = [f"{key}={name}"]
    if load_entry(kind, name).traits.get("device_class") == "memory":
        overrides = [f"tiers.dram.device={name}"]
    scenario = load_scenario(path, overrides=overrides)
    drawn = {u.key: u.spread for u in sources_of(scenario, None).uncertain if u.key.startswith(f"figures.{name}.")}
    assert max(drawn.values()) >= 0.1
    # Money and wear move no time, so that draws are spent on them only where they are asked for.
    assert any("price" in key for key in drawn)
    unasked = sources_of(scenario.model_copy(update={"economics": None}), None)
    words = ("price", "power", "tdp", "amplification", "rated")
    assert not any(word in number.key for number in unasked.uncertain for word in words)


@pytest.mark.parametrize(("ports", "drives"), [(1, 4), (2, 8), (6, 24)])
def test_the_fx100_takes_one_to_six_ports_and_four_to_24_drives(path: str, ports: int, drives: int) -> None:
    found = run(path, f"tiers.fabric.ports={ports}", f"tiers.fabric.drives={drives}")
    links = found["links"]
    assert links["fabric"]["read_capacity_bytes_per_s"] == pytest.approx(ports * 12.5e9 * 0.853)
    assert links["fabric.drives"]["read_capacity_bytes_per_s"] == pytest.approx(drives * 3e9)


def test_cmx_is_predicted_against_a_baseline_that_can_be_read() -> None:
    cmx, baseline = (load_scenario(name) for name in ("cmx", "cmx-baseline"))
    # They differ in the storage and how it is reached, and in nothing else.
    plain = [scenario.model_dump() for scenario in (cmx, baseline)]
    for dump in plain:
        del dump["name"], dump["description"], dump["tiers"]["context"]["device"], dump["tiers"]["context"]["gds"]
    assert plain[0] == plain[1]
    ran = [simulate(scenario).summary() for scenario in (cmx, baseline)]
    gain = ran[0]["throughput"]["output_tokens_per_s"] / ran[1]["throughput"]["output_tokens_per_s"]
    assert 2.0 < gain < 4.0
    assert any("cmx rests on" in line for line in ran[0]["warnings"])
    # The claim stands in the entry's note, and in no figure.
    entry = load_entry("storage", "cmx")
    assert entry.note is not None
    assert "5 times" in entry.note
    assert "claim" in entry.note
    assert not any("5 times" in figure.source or figure.value == 5.0 for figure in entry.figures.values())
