"""What neighbours write to a tier's drives: in its wear by hand, and out of which policy wears least."""

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from scenarios.build import simulate
from scenarios.cli import app
from scenarios.comparison import Comparison, compare, load_variants
from scenarios.comparison.economics_texts import compared_rows, least_pairs
from scenarios.comparison.least_wear import least_wear
from scenarios.loader import load_scenario

DAY_S = 86400.0
# Contexts that come never again, on one drive a node or on an array of four that keeps a parity piece for three.
NEW = """\
name: new contexts
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: 2}
tiers:
  hbm: {capacity: 3 GB}
  nvme: {device: nvme-gen4, capacity: 2 TB, placement: none}
  array: {device: fx100, drives: 4, layout: {data: 3, parity: 1}}
workload:
  closed_loop: {concurrency: 2, requests: 60, sessions: 60, prompt_tokens: 8192, output_tokens: 8}
economics: {utilisation: 1}
figures:
  nvme-gen4: {write_amplification: 1.5}
  fx100: {write_amplification: 1.5}
"""
STEADY = "neighbours.other={tier: array, direction: write, rate: 100 MB/s}"
UNSEEN = "start: 1 h"
"""The runs end long before."""


@pytest.fixture
def path(write: Callable[..., str]) -> str:
    return write(text=NEW, name="new.yaml")


def run(path: str, *overrides: str) -> tuple[dict[str, Any], float]:
    """Return the summary of a run and its measured time [s]."""
    result = simulate(load_scenario(path, overrides=list(overrides)))
    return result.summary(), float(result.measured["window_s"])


def wear(path: str, *overrides: str, tier: str = "array") -> dict[str, float]:
    found: dict[str, float] = run(path, *overrides)[0]["economics"]["tiers"][tier]
    return found


@pytest.mark.parametrize("utilisation", [1.0, 0.25])
def test_a_steady_one_writes_all_day_what_it_moved_in_the_measured_time(path: str, utilisation: float) -> None:
    found, window_s = run(path, STEADY, f"economics.utilisation={utilisation}")
    worn, tier = found["economics"]["tiers"]["array"], found["tiers"]["array"]
    own = tier["write_bytes"] / window_s * utilisation * DAY_S
    assert own > 0.0
    theirs = found["neighbours"]["other"]["mean_bytes_per_s"] * DAY_S
    assert theirs == pytest.approx(100e6 * DAY_S, rel=0.01)
    assert worn["write_bytes_per_day"] == pytest.approx(own)
    # Parity is the tier's own; the cells are written half as much again, whoever writes.
    assert worn["drive_bytes_per_day"] == pytest.approx(own * 4 / 3 + theirs)
    assert worn["flash_bytes_per_day"] == pytest.approx(1.5 * (own * 4 / 3 + theirs))
    assert worn["neighbour_flash_bytes_per_day"] == pytest.approx(1.5 * theirs)
    alone = wear(path, f"economics.utilisation={utilisation}", STEADY.replace("write", "read"))
    for key, sense in (("dwpd", 1.0), ("wear_out_years", -1.0)):
        times = (worn["flash_bytes_per_day"] / alone["flash_bytes_per_day"]) ** sense
        assert worn[key] / alone[key] == pytest.approx(times, rel=1e-9), key


def test_one_that_stops_counts_as_what_it_moved_over_the_measured_time(path: str) -> None:
    found, window_s = run(path, STEADY.replace("}", ", stop: 0.5 s}"))
    moved = 0.5 * 100e6
    worn = found["economics"]["tiers"]["array"]["neighbour_flash_bytes_per_day"]
    assert worn == pytest.approx(1.5 * moved / window_s * DAY_S, rel=0.01)


@pytest.mark.parametrize("size", ["bytes: 6 GB", "lasts: 3 s"])
@pytest.mark.parametrize(("tier", "places"), [("array", 1), ("nvme", 2)])
def test_bursts_count_by_how_often_they_come_whatever_the_measured_time_sees(
    path: str, size: str, tier: str, places: int
) -> None:
    bursts = f"neighbours.other={{tier: {tier}, direction: write, rate: 2 GB/s, bursts: {{{size}, every: 10 min}}"
    for more in ("}", f", {UNSEEN}}}"):
        found = wear(path, bursts + more, "economics.utilisation=0.5", tier=tier)
        assert found["neighbour_flash_bytes_per_day"] == pytest.approx(1.5 * places * 6e9 * 144)


def test_neighbours_add_up(path: str) -> None:
    one, two = (
        f"neighbours.{name}={{tier: array, direction: write, bursts: {{bytes: {size}, every: 24 h}}, {UNSEEN}}}"
        for name, size in (("one", "1 TB"), ("two", "3 TB"))
    )
    assert wear(path, one, two)["neighbour_flash_bytes_per_day"] == pytest.approx(1.5 * 4e12)


@pytest.mark.parametrize(
    "neighbour",
    [
        f"{{tier: array, direction: write, bursts: {{bytes: 6 GB}}, {UNSEEN}}}",
        f"{{tier: array, direction: read, rate: 1 GB/s, {UNSEEN}}}",
        f"{{link: array.drives, direction: write, rate: 1 GB/s, {UNSEEN}}}",
        f"{{tier: nvme, direction: write, rate: 1 GB/s, {UNSEEN}}}",
    ],
)
def test_single_bursts_reads_links_and_other_tiers_wear_nothing_of_it(path: str, neighbour: str) -> None:
    assert wear(path, f"neighbours.other={neighbour}") == wear(path)


def test_tables_have_a_column_of_them_only_where_there_are_any(path: str) -> None:
    for more, is_there in ((["--set", STEADY], True), ([], False)):
        ran = CliRunner().invoke(app, ["run", path, *more])
        assert ran.exit_code == 0
        header = next(line for line in ran.stdout.splitlines() if "worn out after" in line)
        assert ("of it others'" in header) is is_there


# Which policy wears least --------------------------------------------------------------------------------------------


def compared(path: str, vary: str, *overrides: str) -> Comparison:
    return compare(load_variants(path, vary=[vary], overrides=list(overrides)), jobs=1)


PLACEMENT = "tiers.array.placement=write-through,write-through-selective"
HEAVY = f"neighbours.other={{tier: array, direction: write, bursts: {{bytes: 900 TB, every: 24 h}}, {UNSEEN}}}"


def test_what_neighbours_write_hides_no_difference_between_policies(path: str) -> None:
    alone, beside = (compared(path, PLACEMENT, *more) for more in ([], [HEAVY]))
    least = [least_wear(found) for found in (alone, beside)]
    # Nothing comes again: the selective one writes nothing, and wears nothing out.
    assert [(found.variant, found.equals, found.years) for found in least if found] == [
        ("write-through-selective", (), None)
    ] * 2
    years = [one.metrics["economics.tiers.array.wear_out_years"] for one in beside.variants]
    assert all(years)
    said = dict(least_pairs(beside))["wears least for its work at no higher mean TTFT"]
    assert "wears nothing out, neighbours' writes aside" in said
    assert "neighbours" not in dict(least_pairs(alone)).popitem()[1]
    header, _ = compared_rows(beside) or ([], [])
    assert "array flash/day of others" in header


def test_its_years_and_bytes_are_those_of_its_own_writes(path: str) -> None:
    alone, beside = (least_wear(compared(path, "run.seed=1,2", *more)) for more in ([], [HEAVY]))
    assert alone is not None
    assert beside is not None
    assert beside.years == pytest.approx(alone.years, rel=1e-9)
    assert beside.flash_bytes_per_day == pytest.approx(alone.flash_bytes_per_day, rel=1e-9)


def test_more_of_others_is_no_more_wear_of_a_variant(path: str) -> None:
    found = least_wear(compared(path, "neighbours.other.bursts.bytes=1 TB,900 TB", HEAVY))
    assert found is not None
    assert {found.variant, *found.equals} == {"1 TB", "900 TB"}
