"""Results that others published: each is simulated or left out with a reason, and comes out as README.md says."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest

from calibration import commands
from calibration.exclusions import exclusions
from calibration.fit_plan import load_plan
from calibration.measurements import MeasurementError, read_table
from calibration.validation import Validation, markdown, seeds_of, validate
from models.errors import InputError
from scenarios.cli import main
from scenarios.commands import discovery
from scenarios.loader import load_scenario
from scenarios.parameters import read_parameters

TABLE = read_table("third-party")
README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
SHOWN = README.partition("<!-- kvtier validate third-party --markdown -->\n")[2].partition("<!-- end -->")[0]
LINES = [line.strip("| ").split(" | ") for line in SHOWN.split("\n")[2:-1]]
WORST = {cells[0]: float(cells[4].rstrip("%")) / 100 for cells in LINES}
QUICK = ("vLLM prefill", "vLLM load", "MiniMax on MI300X", "TensorRT-LLM on Azure")
FEW = {
    "vLLM batch": (("M0022", "M0028"), ()),
    "Mooncake SSD offload": (("M0133", "M0144", "M0155"), ()),
    "Mooncake SSD offload, hits": (("M0134-hit", "M0144-hit", "M0154-hit"), ()),
    "llm-d host memory": (("M0214", "M0216", "M0221"), ("workload.closed_loop.requests=450",)),
    "llm-d Lustre": (("M0234", "M0242"), ("workload.closed_loop.requests=400",)),
}
"""Some rows of each slow group, and what makes their runs brief: such a run is a little further off."""


def of_groups(*groups: str) -> Validation:
    return validate([replace(TABLE, rows=tuple(row for row in TABLE.rows if row.group in groups))], jobs=1)


@pytest.fixture(scope="module")
def quick() -> Validation:
    return of_groups(*QUICK)


def test_every_published_figure_is_a_row_or_left_out(measured_folder: Path) -> None:
    with (measured_folder / "public.csv").open(encoding="utf-8", newline="") as file:
        published = {row["id"]: row for row in csv.DictReader(file)}
    rows = {row.id: row for row in TABLE.rows if not row.id.endswith("-hit")}
    left_out = [name for each in TABLE.excluded for name in each.ids]
    assert sorted([*rows, *left_out]) == sorted(published)
    assert {name: row.value for name, row in rows.items()} == {n: float(published[n]["value"]) for n in rows}
    hits = {row.id.removesuffix("-hit"): row.value for row in TABLE.rows if row.id.endswith("-hit")}
    assert hits == {name: float(published[name]["config_note"].split("hit ")[1].rstrip("%")) for name in hits}
    assert len(hits) == 32


def test_every_row_runs_a_scenario_that_ships_under_the_parameters_it_names() -> None:
    for setup in {row.setup for row in TABLE.rows}:
        assert load_scenario(setup[0], overrides=setup[1]).name == setup[0]


def test_only_prefills_loads_and_four_batches_of_vllm_are_fitted() -> None:
    plan = load_plan("vllm-offload-h100")
    assert {row.group for row in plan.rows} == {"vLLM prefill", "vLLM load", "vLLM batch"}
    assert read_parameters("fitted/vllm-offload-h100").value["rows"].plain() == [row.id for row in plan.rows]
    assert set(plan.parameters) == {
        "figures.h100-sxm.bf16_efficiency",
        "figures.h100-sxm.host_link_delivered_fraction",
    }
    others = read_parameters("fitted/trtllm-hopper").value
    assert "AIConfigurator's silicon sample" in others["source"].plain()  # no row of which is in this table


def test_one_efficiency_and_one_link_serve_every_length(quick: Validation) -> None:
    errors = {row.measurement.id: abs(row.error) for row in quick.rows if row.measurement.group.startswith("vLLM")}
    assert len(errors) == 20
    assert sum(errors.values()) / 20 <= 0.04
    # Attention's share of a prefill grows from a tenth to a half between these two.
    assert max(errors["M0003"], errors["M0019"]) <= 0.03


def test_readme_shows_what_comes_out_of_the_quick_groups(quick: Validation) -> None:
    lines = markdown(quick).split("\n")[2:]
    assert len(lines) == len(QUICK)
    assert [line for line in lines if line not in SHOWN.split("\n")] == []


@pytest.mark.parametrize("group", FEW)
def test_a_row_of_a_slow_group_is_no_further_off_than_readme_says(group: str) -> None:
    ids, settings = FEW[group]
    chosen = [replace(row, settings=(*row.settings, *settings)) for row in TABLE.rows if row.id in ids]
    assert [row.group for row in chosen] == [group] * len(ids)
    found = validate([replace(TABLE, rows=tuple(chosen), seeds=1)], jobs=1)
    assert max(abs(row.error) for row in found.rows) <= WORST[group] + 0.02


def test_every_group_stands_in_readme_and_is_tested() -> None:
    assert set(WORST) == {row.group for row in TABLE.rows} == {*QUICK, *FEW}


def test_hit_ratios_follow_the_capacities() -> None:
    rows = [row for row in TABLE.rows if row.id in {"M0144-hit", "M0154-hit", "M0164-hit"}]
    found = validate([replace(TABLE, rows=tuple(rows), seeds=1)], jobs=1)
    assert median(abs(row.error) for row in found.rows) <= 0.05


def test_seeds_of_a_table_are_at_most_its_own(tmp_path: Path) -> None:
    assert (TABLE.seeds, seeds_of(TABLE, 9), seeds_of(TABLE, 2)) == (3, 3, 2)
    path = tmp_path / "mine.csv"
    path.write_text("# seeds: none\nid,scenario,metric,value,unit\na,quickstart,ttft_p50,1,s\n", encoding="utf-8")
    with pytest.raises(MeasurementError, match=r"mine.csv: seeds is 'none'; must be a whole number"):
        read_table(str(path))


def test_exclusions_are_ids_and_ranges_of_them_each_with_a_reason() -> None:
    (first, second) = exclusions("a: {ids: [M08-M11, x-hit], why: old}\nb: {ids: [M12], why: new}\n", "mine.yaml")
    assert (first.group, first.ids, first.why) == ("a", ("M08", "M09", "M10", "M11", "x-hit"), "old")
    assert second.ids == ("M12",)
    assert all(len(each.why) > 40 for each in TABLE.excluded)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {ids: [M1, M1], why: x}\n", "a: id 'M1' stands twice"),
        ("a: {ids: [M1-M3], why: x}\nb: {ids: [M2], why: x}\n", "b: id 'M2' stands twice"),
        ("a: {ids: []}\n", "a.ids"),
        ("a: {ids: [M1], why: ''}\n", "a.why"),
        ("a: {ids: [M1], why: x, when: y}\n", "a.when"),
    ],
)
def test_wrong_exclusions_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"^mine.yaml: {re.escape(message)}") as caught:
        exclusions(text, "mine.yaml")
    assert "\n" not in str(caught.value)


def test_validate_shows_what_was_left_out_and_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(TABLE, rows=tuple(row for row in TABLE.rows if row.group == "MiniMax on MI300X"))
    monkeypatch.setattr("calibration.measurements.read_table", lambda _: few)
    verbs = {"validate": SimpleNamespace(load=lambda: commands.validate_app, value="calibration.commands:validate_app")}
    monkeypatch.setattr(discovery, "_installed", lambda: verbs)
    assert main(["validate", "third-party", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert all(f"{each.group} ({len(each.ids)}): {each.why}" in said for each in TABLE.excluded)
    assert "third-party, medians over 3 seeds" in said
    assert main(["validate", "third-party", "--jobs", "1", "--json"]) == 0
    assert '"excluded"' in capsys.readouterr().out
