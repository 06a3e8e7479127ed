"""`kvtier sweep`, from the command line to the table: a row a point, whatever becomes of it."""

import json
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sweep_kit import counting, runs_of

from models.errors import InputError, UnknownNameError
from scenarios import cli, load_scenario, simulate, sweep
from scenarios.comparison.metrics import metric_text
from scenarios.sweeping import Sample, SweepResult
from scenarios.sweeping.table import about_table

GRID = ("--grid", "tiers.dram.capacity=64GB,1e12", "--grid", "workload.rate_scale=1,2.5")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def called(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["sweep", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_grid_gives_a_row_a_point_with_every_figure(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = called(capsys, small, *GRID, "--jobs", "1", "--out", "s.parquet")
    assert found["wall_s"] > 0.0
    assert {key: found[key] for key in ("scenario", "out", "points", "ok", "failed", "taken_over")} == {
        **{"scenario": "small", "out": "s.parquet", "points": 4, "ok": 4, "failed": 0, "taken_over": 0}
    }
    table = pq.read_table("s.parquet")
    head = ["point", "tiers.dram.capacity", "workload.rate_scale", "seed", "status", "error", "run_key"]
    assert table.column_names[:7] == head
    types = [str(table.schema.field(name).type) for name in head]
    assert types == ["int64", "int64", "double", "int64", "string", "string", "string"]
    rows = table.to_pylist()
    assert [(row["tiers.dram.capacity"], row["workload.rate_scale"]) for row in rows] == [
        *((64 * 10**9, 1.0), (64 * 10**9, 2.5), (10**12, 1.0), (10**12, 2.5))
    ]
    assert [(row["status"], row["error"], row["seed"]) for row in rows] == [("ok", None, 0)] * 4
    overrides = ["tiers.dram.capacity=1 TB", "workload.rate_scale=2.5"]
    summary = simulate(load_scenario(small, overrides=overrides)).summary()
    figures = {name: rows[3][name] for name in table.column_names[7:]}
    assert figures == {
        name: value
        for name, value in flat(summary).items()
        if name not in {"engine.wall_s", "engine.requests_per_wall_s"}
    }
    assert figures["requests.completed"] == 100
    assert "\n" in figures["warnings"]


def flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{path}{key}.")
        else:
            found[path + key] = "\n".join(value) if isinstance(value, list) else value
    return found


def test_any_number_of_processes_gives_the_same_bytes(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    for jobs in ("1", "2"):
        called(capsys, small, *GRID, "--jobs", jobs, "--out", f"{jobs}.parquet")
    one, two = (Path(f"{jobs}.parquet").read_bytes() for jobs in "12")
    assert one == two
    called(capsys, small, *GRID, "--seed", "1", "--jobs", "1", "--out", "other.parquet")
    assert Path("other.parquet").read_bytes() != one


def test_the_file_says_what_it_is(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    called(capsys, small, *GRID, "--jobs", "1", "--out", "s.parquet")
    about = about_table(pq.read_table("s.parquet"))
    assert about["format"] == "kvtier sweep"
    assert about["scenario"] == "small"
    assert about["keys"] == ["tiers.dram.capacity", "workload.rate_scale"]
    assert about["units"] == {"tiers.dram.capacity": "bytes"}
    assert about["versions"]["numpy"] == version("numpy")
    assert re.fullmatch("[0-9a-f]{16}", about["code"])


def test_what_was_done_is_taken_over_and_a_larger_sweep_runs_the_rest(small: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    first = sweep(small, rows=counting(folder, 2), out="s.parquet", jobs=1)
    again = sweep(small, rows=counting(folder, 2), out="s.parquet", jobs=1, resume=True)
    assert runs_of(folder) == [0, 1]
    assert (first.taken_over, again.taken_over) == (0, 2)
    assert first.table.equals(again.table, check_metadata=True)
    more = sweep(small, rows=counting(folder, 3), out="s.parquet", jobs=1, resume=True)
    assert (more.taken_over, more.strangers) == (2, 0)
    less = sweep(small, rows=counting(folder, 1), out="s.parquet", jobs=1, resume=True)
    assert (less.taken_over, less.strangers) == (1, 2)
    assert runs_of(folder) == [0, 1, 2]
    sweep(small, rows=counting(folder, 1), out="s.parquet", jobs=1)  # without --resume, all afresh
    assert runs_of(folder) == [0, 0, 1, 2]


def test_equal_points_are_run_once(small: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    found = sweep(
        small, rows=counting(folder, 1), grid={"tiers.dram.capacity": ["64GB", "6.4e10", 64_000_000_000]}, jobs=1
    )
    assert runs_of(folder) == [0]
    assert found.column("ttft_s.p50") == [found.column("ttft_s.p50")[0]] * 3
    assert len(set(found.column("run_key"))) == 1


def test_a_failed_point_is_a_row_and_the_others_are_run(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [small, "--grid", "engine.max_model_len=1,null", "--jobs", "1", "--out", "s.parquet"]
    found = called(capsys, *options, code=1)
    assert (found["ok"], found["failed"]) == (1, 1)
    broken, sound = pq.read_table("s.parquet").to_pylist()
    assert broken["status"] == "failed"
    assert "none of the 100 requests can be served" in broken["error"]
    assert broken["ttft_s.p50"] is broken["warnings"] is None
    assert broken["engine.max_model_len"] == 1
    assert (sound["status"], sound["error"], sound["engine.max_model_len"]) == ("ok", None, None)
    assert cli.main(["sweep", *options, "--resume"]) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^ +0 +1 +failed$", out, flags=re.MULTILINE)
    assert "2 points, 1 ok, 1 failed; 2 taken over, 0 run; " in out  # its error is its answer
    assert "kvtier: point 0: " in err
    assert (
        cli.main(
            [
                "sweep",
                small,
                "--grid",
                "engine.max_model_len=1,2",
                "--jobs",
                "1",
                "--out",
                "t.parquet",
                "--plot",
                "p.svg",
            ]
        )
        == 1
    )
    assert pq.read_table("t.parquet").num_rows == 2
    assert not Path("p.svg").exists()


def test_an_error_that_nobody_foresaw_is_a_row_too_and_is_tried_again(small: str) -> None:
    rows = [{"cluster.router": {"sweep_kit:Failing": {"on_purpose": way}}} for way in (True, False)]
    first = sweep(small, rows=rows, out="s.parquet", jobs=1)
    assert first.failed == 2
    assert first.column("error")[0] == "the router does not like it"  # one line
    assert first.column("error")[1].startswith("ZeroDivisionError: by chance (")
    assert first.column("cluster.router")[0] == '{"sweep_kit:Failing": {"on_purpose": true}}'
    again = sweep(small, rows=rows, out="s.parquet", jobs=1, resume=True)
    assert again.taken_over == 1
    assert again.table.equals(first.table)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "needs points; write --grid KEY=VALUE,VALUE"),
        (
            ["--grid", "tiers.dramm.capacity=1GB"],
            "--grid tiers.dramm.capacity: there is no tier 'dramm'; did you mean 'dram'?",
        ),
        (["--grid", "tiers.dram.capacity=1GB,1Gb"], "--grid tiers.dram.capacity: '1Gb' may mean bits or bytes"),
        (["--grid", "tiers.dram.capasity=1GB"], "--grid tiers.dram.capasity: unknown key; did you mean 'capacity'?"),
        (["--grid", "tiers.dram.eviction=lru,lruu"], "--grid tiers.dram.eviction: unknown eviction policy 'lruu'"),
        (["--grid", "cluster.replicas"], "--grid cluster.replicas: must be KEY=VALUE,VALUE"),
        (["--grid", "cluster.replicas=2", "--grid", "cluster.replicas=3"], "--grid cluster.replicas: stands twice"),
        (["--grid", "run.seed=1,2", "--seed", "3"], "run.seed is swept, so there is no one --seed"),
        (["--grid", "run.seed=1", "--list", "seeds.csv"], "run.seed is set by two of --list, --sample and --grid"),
        (["--list", "seeds.txt"], "--list seeds.txt: must end in .csv"),
        (["--list", "no.csv"], "no.csv: cannot be read: No such file"),
        (["--list", "bad.csv"], "bad.csv:3: cluster.replicas: is 0; must be at least 1"),
        (["--sample", "halton", "--range", "run.seed=1:2"], "--sample halton: must be one of: sobol, lhs"),
        (["--sample", "sobol"], "--sample needs a --range"),
        (["--range", "run.seed=1:2"], "--range run.seed=1:2: is for --sample"),
        (["--sample", "lhs", "--range", "cluster.replicas=0:2"], "--range cluster.replicas: is 0; must be at least 1"),
        (["--trace", "no.jsonl", "--grid", "run.seed=1"], "no.jsonl: no such file"),
        (["--grid", "run.seed=1", "--plot", "p.bmp"], "--plot p.bmp: the name must end in .png"),
        (["--grid", "run.seed=1", "--out", "s.csv"], "--out s.csv: must end in .parquet"),
        (["--grid", "run.seed=1", "--out", "no/s.parquet"], "--out no/s.parquet: there is no folder no"),
        (["--grid", "run.seed=1", "--out", "foreign.parquet"], "foreign.parquet: cannot be read as a table of a sweep"),
        (
            ["--grid", "run.seed=1", "--jobs", "2", "--dask", "tcp://127.0.0.1:1"],
            "--jobs is for processes of this machine",
        ),
        (["--grid", "run.seed=1", "--jobs", "0"], "'--jobs'"),
        (["--sample", "lhs", "--range", "run.seed=1:2", "--points", "0"], "'--points'"),
    ],
)
def test_bad_input_is_told_before_anything_runs(
    small: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], line: str
) -> None:
    Path("seeds.csv").write_text("run.seed\n1\n")
    Path("bad.csv").write_text("cluster.replicas\n1\n0\n")
    Path("foreign.parquet").write_text("mine")
    monkeypatch.setattr("scenarios.sweeping.running.run_tasks", None)
    out = [] if "--out" in options else ["--out", "s.parquet"]
    assert cli.main(["sweep", small, *options, *out]) == 2
    text, err = capsys.readouterr()
    assert text == ""
    assert err.count("\n") == 1
    assert line in err
    assert Path("foreign.parquet").read_text() == "mine"
    assert list(Path().glob("s.parquet*")) == []


def test_the_table_of_another_program_is_not_written_over(small: str) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"a": [1]}), "theirs.parquet")
    with pytest.raises(InputError, match=r"theirs\.parquet: is no table of a sweep; choose another --out"):
        sweep(small, grid=["run.seed=1"], out="theirs.parquet")


def test_tables_warnings_and_the_summary_line(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", small, *GRID, "--jobs", "1", "--out", "s.parquet"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^point +capacity +rate_scale +TTFT p50 ", out, flags=re.MULTILINE)
    assert re.search(r"^ +1 +64GB +2\.5 ", out, flags=re.MULTILINE)
    assert re.search(r"^ +2 +1 TB +1 ", out, flags=re.MULTILINE)
    assert re.search(r"^4 points, 4 ok, 0 failed; 0 taken over, 4 run; .+; s\.parquet$", out, flags=re.MULTILINE)
    assert err.count("h200-sxm rests on") == 1


def test_from_python(small: str, tmp_path: Path) -> None:
    seen: list[int] = []
    scenario = load_scenario(small, overrides=["workload.synthetic.requests=50"])
    grid = {"tiers.dram.eviction": ["lru", {"slru": {"segments": 3}}], "cluster.replicas": [1, 2]}
    found = sweep(scenario, grid=grid, jobs=1, progress=lambda _, ended: seen.append(ended))
    assert len(found) == 4
    assert seen[-1] == 4
    frame = found.to_pandas()
    assert frame["requests.completed"].tolist() == [50] * 4
    assert frame["tiers.dram.eviction"].tolist() == ["lru", "lru", *['{"slru": {"segments": 3}}'] * 2]
    by_name = sweep(small, grid=grid, overrides=["workload.synthetic.requests=50"], jobs=1)
    assert by_name.table.equals(found.table)
    assert SweepResult.load(found.save(tmp_path / "kept.parquet")).table.equals(found.table, check_metadata=True)
    assert found.keys == ("tiers.dram.eviction", "cluster.replicas")
    with pytest.raises(UnknownNameError, match=r"did you mean 'ttft_s\.p50'"):
        found.column("ttft_s.p5")
    with pytest.raises(InputError, match="stack is swept; give the scenario by its name"):
        sweep(scenario, grid=["stack=lmcache,vllm-native"])
    with pytest.raises(InputError, match="loaded already has its overrides"):
        sweep(scenario, grid=grid, seed=1)


def test_plots_fit_the_number_of_keys(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = sweep(small, grid=["tiers.fabric.capacity=20GB,40GB,80GB"], jobs=1).plot.overview()
    assert [tick.get_text() for tick in lines.axes[0].get_xticklabels()] == ["20 GB", "40 GB", "80 GB"]
    assert [len(line.get_xdata()) for line in lines.axes[0].lines] == [3, 3, 3]
    two = sweep(small, grid=["cluster.replicas=1,2,3", "tiers.dram.eviction=lru,fifo"], jobs=1)
    maps = two.plot.overview()
    assert [len(ax.texts) for ax in maps.axes] == [6] * 4
    ax = two.plot.heat_map("hit_ratio_tokens", x="cluster.replicas")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("cluster.replicas", "tiers.dram.eviction")
    shown = {text.get_position(): text.get_text() for text in ax.texts}
    assert shown[(2.5, 0.5)] == f"{100 * two.column('hit_ratio_tokens')[4]:.1f}"  # three replicas, lru
    assert len(two.plot.lines("ttft_s.p50", x="tiers.dram.eviction").lines) == 1
    # Rounded once: the cells say what the table of points says, though 509.34 s are no whole seconds and 8.489 min.
    times = two.table.column_names.index("ttft_s.p90")
    long_s = [509.34, 514.14, 524.22, 0.12346, 1.2346, 11.125]
    slow = SweepResult(table=two.table.set_column(times, "ttft_s.p90", pa.array(long_s)))
    cells = slow.plot.heat_map("ttft_s.p90", x="cluster.replicas", y="tiers.dram.eviction").texts
    assert {text.get_text() for text in cells} == {metric_text("ttft_s.p90", value) for value in long_s}
    with pytest.raises(InputError, match="needs 2 swept keys; this sweep has 1"):
        sweep(small, grid=["run.seed=1"], jobs=1).plot.heat_map()
    with pytest.raises(UnknownNameError, match="swept key"):
        two.plot.lines(x="run.seed")
    sample = Sample(ranges={"cluster.replicas": (1, 3), "workload.rate_scale": (1, 4), "run.seed": (0, 9)}, points=4)
    dots = sweep(small, sample=sample, jobs=1).plot.overview()
    assert len(dots.axes) == 9
    assert cli.main(["sweep", small, *GRID, "--jobs", "1", "--out", "s.parquet", "--plot", "p.svg"]) == 0
    assert "plot saved to p.svg" in capsys.readouterr().err
    assert "<svg" in Path("p.svg").read_text()


def test_the_python_api_is_one_import(write: Callable[..., str]) -> None:
    import scenarios

    for name in scenarios.__all__:
        assert callable(getattr(scenarios, name))
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = scenarios.swep
