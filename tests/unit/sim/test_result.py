from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from models.errors import InputError, UnknownNameError
from sim.results.files import jsonable
from sim.results.result import SimulationResult, versions


def a_result(seed: int = 3) -> SimulationResult:
    return SimulationResult(
        scenario={"name": "tiny", "tiers": {"dram": {"capacity": 5e11}}},
        seed=seed,
        provenance=versions() | {"events": 7},
        columns={
            "requests": {
                "request_id": np.array([0, 1, 2]),
                "state": np.array([0, 1, 0], dtype=np.int32),
                "ttft_s": np.array([0.1, np.nan, 0.1 + 0.2]),
            },
            "transfers": {"kind": np.array([], dtype=np.int8), "n_bytes": np.array([], dtype=np.int64)},
        },
        summary_values={"makespan_s": 3.0, "ttft_s": {"mean": 0.2, "p50": None}},
        labels={"requests": {"state": ("completed", "rejected")}, "transfers": {"kind": ("read", "write")}},
    )


def test_a_saved_result_comes_back_bit_for_bit(tmp_path: Path) -> None:
    result = a_result()
    where = result.save(tmp_path / "runs" / "one")
    loaded = SimulationResult.load(where)
    assert (loaded.scenario, loaded.seed, loaded.provenance) == (result.scenario, result.seed, result.provenance)
    assert (loaded.summary(), loaded.labels) == (result.summary(), result.labels)
    for table, columns in result.columns.items():
        assert list(loaded.table(table)) == list(columns)
        for name, column in columns.items():
            assert np.array_equal(loaded.table(table)[name], column, equal_nan=column.dtype.kind == "f"), name
    assert sorted(path.name for path in where.parent.iterdir()) == ["one"]
    assert json.loads((where / "summary.json").read_text())["makespan_s"] == 3.0


def test_parquet_holds_words_for_other_programs(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    a_result().save(tmp_path / "one")
    assert pq.read_table(tmp_path / "one" / "requests.parquet").column("state").to_pylist() == [
        "completed",
        "rejected",
        "completed",
    ]


def test_an_earlier_result_is_replaced_and_an_empty_directory_used(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    a_result(seed=1).save(tmp_path / "one")
    a_result(seed=2).save(str(tmp_path / "one"))
    assert SimulationResult.load(tmp_path / "one").seed == 2
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no kvtier result"):
        a_result().save(tmp_path)
    with pytest.raises(InputError, match="is a file"):
        a_result().save(tmp_path / "notes.txt")
    with pytest.raises(InputError, match="cannot write a result here"):
        a_result().save(tmp_path / "notes.txt" / "one")
    where = a_result().save(tmp_path / "one")
    (where / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds files that are not of a result \(notes.txt\)"):
        a_result().save(where)
    assert (where / "notes.txt").read_text() == "mine"


def test_a_failed_save_leaves_the_earlier_result_and_no_litter(tmp_path: Path) -> None:
    a_result(seed=1).save(tmp_path / "one")
    broken = a_result(seed=2)
    broken.columns["requests"]["ttft_s"] = np.array([object()] * 3)
    with pytest.raises(Exception, match=r"object|convert"):
        broken.save(tmp_path / "one")
    assert SimulationResult.load(tmp_path / "one").seed == 1
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def damage_manifest(where: Path, **changes: object) -> None:
    manifest = json.loads((where / "result.json").read_text())
    (where / "result.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda where: (where / "result.json").unlink(), "no kvtier result here"),
        (lambda where: (where / "result.json").write_text("{"), "damaged, or not of a kvtier result"),
        (lambda where: (where / "result.json").write_text("[]"), "damaged, or not of a kvtier result"),
        (lambda where: (where / "result.json").write_bytes(b"\xff\xfe"), "damaged, or not of a kvtier result"),
        (lambda where: damage_manifest(where, files=3), "damaged, or not of a kvtier result"),
        (lambda where: damage_manifest(where, format_version=9), "result format 9; this kvtier reads 1"),
        (lambda where: damage_manifest(where, labels=[1]), "damaged result"),
        (lambda where: damage_manifest(where, files=[1]), "damaged result"),
        (lambda where: (where / "summary.json").write_text("{"), "damaged result: summary.json"),
        (lambda where: (where / "scenario.json").write_text("[]"), "scenario.json: must be a JSON object"),
        (lambda where: (where / "requests.parquet").unlink(), "damaged result"),
        (lambda where: (where / "requests.parquet").write_bytes(b"PAR1"), "damaged result: requests.parquet"),
        (lambda where: damage_manifest(where, labels={"requests": {"state": ["a"]}}), "damaged result"),
    ],
)
def test_a_damaged_result_is_one_clear_line(tmp_path: Path, damage: object, message: str) -> None:
    where = a_result().save(tmp_path / "one")
    assert callable(damage)
    damage(where)
    with pytest.raises(InputError, match=message) as caught:
        SimulationResult.load(where)
    assert "\n" not in str(caught.value)


def test_tables_are_data_frames_with_words_for_codes() -> None:
    result = a_result()
    frame = result.to_pandas("requests")
    assert frame["state"].tolist() == ["completed", "rejected", "completed"]
    assert frame["ttft_s"].isna().tolist() == [False, True, False]
    assert result.to_pandas("transfers").empty
    with pytest.raises(UnknownNameError, match="did you mean 'requests'"):
        result.to_pandas("request")


def test_a_summary_may_be_changed_without_changing_the_result() -> None:
    result = a_result()
    result.summary()["ttft_s"]["mean"] = 0.0
    assert result.summary()["ttft_s"]["mean"] == 0.2


def test_jsonable_knows_no_nan_and_no_numpy() -> None:
    value = {
        "a": np.float64("nan"),
        "b": [np.int64(3), np.bool_(True), float("inf")],
        1: (np.array([1.5, np.nan]), "x"),
    }
    assert jsonable(value) == {"a": None, "b": [3, True, None], "1": [[1.5, None], "x"]}
