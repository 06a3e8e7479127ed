"""Tables of measurements: what ships is whole, and what is wrong in one of a user is said."""

import csv
from pathlib import Path

import pytest

from calibration.measurements import MeasurementError, check_scenarios, read_table, tables
from models.errors import InputError
from scenarios.loader import library

HEADER = "id,scenario,metric,value,unit\n"
ROW = "a,r2-fx100-c8,ttft_p50,7.5,s\n"


def table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_what_ships_names_its_licence_and_scenarios_that_ship() -> None:
    shipped = {name for name, _ in library()}
    for found in tables():
        assert found.source
        assert found.licence
        assert {row.scenario for row in found.rows} <= shipped
        check_scenarios(found.rows)


def test_every_published_figure_is_there_with_its_value(measured_folder: Path) -> None:
    with (measured_folder / "mingxin_r1_r2_r3.csv").open(encoding="utf-8", newline="") as file:
        published = {row["id"]: float(row["value"]) for row in csv.DictReader(file)}
    assert {row.id: row.value for row in read_table("mingxin-r1-r3").rows} == published


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no measurement"),
        (HEADER, "holds no measurement"),
        ("id,scenario,metric,value\n", r":1: lacks unit"),
        (HEADER.replace("value", "value,size") + ROW, ":1: has size"),
        (HEADER + ROW.replace(",s", ""), ":2: has 4 values; must have 5"),
        (HEADER + ROW + ROW, ":3: id 'a' stands twice"),
        (HEADER + ROW.replace("7.5", "fast"), ":2: value is 'fast'; must be a number"),
        (HEADER + ROW.replace("7.5", "-1"), ":2: value is -1; must be above 0"),
        (HEADER + ROW.replace("7.5", "nan"), ":2: value is nan; must be above 0"),
        (HEADER + ROW.replace("7.5", ""), ":2: value is empty"),
        (HEADER + ROW.replace("ttft_p50", "ttft_p5"), ":2: unknown metric 'ttft_p5'; did you mean 'ttft_p50'"),
        (HEADER + ROW.replace("ttft_p50", "throughput@1"), "only ttft, tpot and e2e"),
        (HEADER + ROW.replace(",s\n", ",GB/s\n"), ":2: unit 'GB/s' is none of ttft_p50; allowed: s, ms"),
    ],
)
def test_a_malformed_table_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("'", ".")) as caught:
        read_table(table(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_row_whose_scenario_does_not_exist_is_refused(tmp_path: Path) -> None:
    rows = read_table(table(tmp_path, HEADER + ROW.replace("r2-fx100-c8", "r2-fx100-c9"))).rows
    with pytest.raises(MeasurementError, match=r"mine.csv:2: a: unknown scenario 'r2-fx100-c9'; did you mean"):
        check_scenarios(rows)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_table(str(tmp_path / "none.csv"))
