"""Where the points of a sweep come from, what they are, and when two of them are the same run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models.errors import InputError, ScenarioError
from scenarios.loader import load_scenario
from scenarios.sweeping import Sample, load_points
from scenarios.sweeping.identity import RunKeys, code_fingerprint
from scenarios.sweeping.points import value_at
from scenarios.sweeping.sources import Range
from scenarios.sweeping.units import text_of, unit_of


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_csv_file_is_a_point_a_line_and_an_empty_cell_says_nothing(small: str) -> None:
    Path("p.csv").write_text(
        '\ufefftiers.dram.capacity, cluster.router\r\n64 GB,"{prefix-aware: {temperature: 0.5}}"\r\n,\r\n\r\n1e12,\r\n'
    )
    points = load_points(small, rows="p.csv")
    assert [dict(point.values) for point in points] == [
        {"tiers.dram.capacity": 64 * 10**9, "cluster.router": '{"prefix-aware": {"temperature": 0.5}}'},
        {"tiers.dram.capacity": 10**12, "cluster.router": "round-robin"},
    ]
    assert [dict(point.written) for point in points][1] == {"tiers.dram.capacity": "1 TB"}


@pytest.mark.parametrize("name", ["p.yaml", "p.json"])
def test_a_yaml_or_json_file_is_a_list_of_mappings(small: str, name: str) -> None:
    text = '[{"tiers.dram.capacity": "64 GB", "run.seed": 3}, {"tiers.fabric": null}]'
    Path(name).write_text(text)
    first, second = load_points(small, rows=name)
    assert (first.seed, second.seed) == (3, 0)
    assert list(second.scenario.tiers) == ["hbm", "dram"]
    assert dict(second.values) == {"tiers.dram.capacity": 500 * 10**9, "run.seed": 0, "tiers.fabric": None}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("p.csv", "", "p.csv: holds no point"),
        ("p.csv", "run.seed\n", "p.csv: holds no point"),
        ("p.csv", "run.seed,run.seed\n1,2\n", "p.csv:1: the key 'run.seed' stands twice"),
        ("p.csv", "run.seed,\n1,2\n", "p.csv:1: a column has no key"),
        ("p.csv", "run.seed\n1,2\n", "p.csv:2: has 2 cells; the first line names 1 keys"),
        ("p.csv", 'run.seed\n"1"2\n', "p.csv:2: is not valid CSV"),
        ("p.csv", "run.seed\n[1\n", "p.csv:2: is not valid YAML"),
        ("p.csv", "run.sed\n1\n", "p.csv:2: run.sed: unknown key; did you mean 'seed'?"),
        ("p.csv", "run..seed\n1\n", "p.csv:2: 'run..seed' is no key"),
        ("p.yaml", "a: 1\n", "p.yaml: holds no list"),
        ("p.yaml", "- 3\n", "p.yaml:1: must be a mapping of keys"),
        ("p.yaml", "- run.seed: 1\n- run.seed: x\n", "p.yaml:2: run.seed: is 'x'; must be a whole number"),
        ("p.yaml", "- run: {seed: 1}\n", "p.yaml:1: run: write single keys with dots"),
    ],
)
def test_a_wrong_list_is_told_with_its_line(small: str, name: str, text: str, line: str) -> None:
    Path(name).write_text(text)
    with pytest.raises(ScenarioError) as raised:
        load_points(small, rows=name)
    assert str(raised.value).startswith(line)


def test_sources_are_combined_the_grid_going_round_first(small: str) -> None:
    sample = Sample(ranges={"workload.rate_scale": (1, 2)}, points=2)
    rows = [{"cluster.replicas": 1}, {"cluster.replicas": 2}]
    points = load_points(small, rows=rows, sample=sample, grid={"run.seed": np.arange(2)})
    assert [(point.values["cluster.replicas"], point.seed) for point in points] == [
        *[(1, 0), (1, 1)] * 2,
        *[(2, 0), (2, 1)] * 2,
    ]
    scales = [point.values["workload.rate_scale"] for point in points]
    assert scales[0] == scales[1] == scales[4] != scales[2]


@pytest.mark.parametrize("method", ["sobol", "lhs"])
def test_samples_fill_their_ranges_evenly(small: str, method: str) -> None:
    ranges = {
        "tiers.dram.capacity": ("64 GB", "1024 GB", "log"),
        "workload.rate_scale": (1, 3),
        "cluster.replicas": (1, 4),
    }
    points = load_points(small, sample=Sample(ranges=ranges, points=32, method=method))
    columns = {key: [point.values[key] for point in points] for key in ranges}
    assert all(isinstance(value, int) for value in columns["tiers.dram.capacity"] + columns["cluster.replicas"])
    assert all(isinstance(value, float) for value in columns["workload.rate_scale"])
    assert (
        np.histogram(np.log2(columns["tiers.dram.capacity"]), 4, (np.log2(64e9), np.log2(1024e9)))[0].tolist()
        == [8] * 4
    )
    assert np.histogram(columns["workload.rate_scale"], 4, (1, 3))[0].tolist() == [8] * 4
    assert [columns["cluster.replicas"].count(number) for number in (1, 2, 3, 4)] == [8] * 4
    again = load_points(small, sample=Sample(ranges=ranges, points=32, method=method))
    other = load_points(small, sample=Sample(ranges=ranges, points=32, method=method, seed=1))
    assert [point.key for point in again] == [point.key for point in points]
    assert not {point.key for point in other} & {point.key for point in points}


def test_a_sample_of_any_size_begins_as_a_larger_one(small: str) -> None:
    def scales(points: int) -> list[object]:
        sample = Sample(ranges={"workload.rate_scale": (1, 3)}, points=points)
        return [point.values["workload.rate_scale"] for point in load_points(small, sample=sample)]

    assert scales(5) == scales(8)[:5]
    assert len(scales(1)) == 1


@pytest.mark.parametrize(
    ("key", "ends", "line"),
    [
        ("cluster.router", ("a", "b"), "--range cluster.router: unknown router 'a'"),
        ("tiers.dram.eviction", ("lru", "fifo"), "is 'lru'; only numbers have a range"),
        ("workload.rate_scale", (3, 1), "--range workload.rate_scale: goes from 3 down to 1"),
        ("run.warmup", ("0 s", "1 h", "log"), "--range run.warmup: begins at 0, which has no logarithm"),
        ("run.warmup", (1, 2, "square"), "must be a low value, a high one and perhaps 'log'"),
    ],
)
def test_what_has_no_range_is_refused(small: str, key: str, ends: tuple[object, ...], line: str) -> None:
    with pytest.raises(InputError) as raised:
        load_points(small, sample=Sample(ranges={key: ends}))
    assert line in str(raised.value)


def test_whole_numbers_are_equally_likely_and_never_beyond_the_ends() -> None:
    ends = Range(key="k", low=1, high=4)
    assert [ends.at(share) for share in (0.0, 0.24, 0.25, 0.5, 0.99, 1.0)] == [1, 1, 2, 3, 4, 4]
    ratios = Range(key="k", low=1.0, high=100.0, log=True)
    assert [ratios.at(share) for share in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 10.0, 100.0])


def test_what_makes_two_runs_the_same(small: str, write: Callable[..., str], conversation: Path) -> None:
    def key(*overrides: str, trace: Path | None = None) -> str:
        return RunKeys().key(load_scenario(small, overrides=overrides, trace=trace and str(trace)))

    assert key("tiers.dram.capacity=64GB") == key("tiers.dram.capacity=6.4e10") != key()
    assert key("run.seed=1") != key()
    # A file is its content, wherever it lies.
    copy = write(text=conversation.read_text(), name="elsewhere/t.jsonl")
    before = key(trace=conversation)
    assert key(trace=Path(copy)) == before
    conversation.write_text(conversation.read_text() * 2)
    assert key(trace=conversation) != before
    assert key(trace=Path(copy)) == before


def test_a_catalogue_file_counts_with_what_it_is_built_on(small: str, write: Callable[..., str]) -> None:
    figure = "figures: {read_latency: {value: %s, unit: us, source: mine, status: assumed}}\n"
    write(text="base: nvme-gen4\ntitle: below\nstatus: assumed\n" + figure % 90, name="below.yaml")
    device = write(
        text='base: "below.yaml"  # in this folder\ntitle: mine\nstatus: assumed\nfigures: {}\n', name="mine.yaml"
    )
    overrides = [f"tiers.fabric={{device: {device}, capacity: 1 TB}}"]
    before = RunKeys().key(load_scenario(small, overrides=overrides))
    write(text="base: nvme-gen4\ntitle: below\nstatus: assumed\n" + figure % 91, name="below.yaml")
    assert RunKeys().key(load_scenario(small, overrides=overrides)) != before


def test_a_plug_in_counts_with_its_source(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "class Mine:\n    def choose(self, request, replicas):\n        return 0\n"
    (tmp_path / "sweep_plug_in.py").write_text(source)
    scenario = load_scenario(small, overrides=["cluster.router=sweep_plug_in:Mine"])
    before = RunKeys().key(scenario)
    assert RunKeys().key(scenario) == before
    (tmp_path / "sweep_plug_in.py").write_text(source + "# changed\n")
    assert RunKeys().key(scenario) != before


def test_the_fingerprint_sees_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sim

    before = code_fingerprint.__wrapped__()
    assert code_fingerprint.__wrapped__() == before
    (tmp_path / "one.py").write_text("")
    monkeypatch.setattr(sim, "__path__", [str(tmp_path)])
    other = code_fingerprint.__wrapped__()
    assert other != before
    (tmp_path / "one.py").write_text("x = 1\n")
    assert code_fingerprint.__wrapped__() != other


def test_files_are_named_from_the_root_for_processes_elsewhere(small: str, conversation: Path) -> None:
    (point,) = load_points(small, trace=conversation.name, grid=["run.seed=1"])
    assert point.scenario.workload.trace == str(conversation.absolute())
    assert point.scenario.tiers["dram"].model_fields_set == load_scenario(small).tiers["dram"].model_fields_set


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n')
    return path


def test_values_are_found_where_a_key_points() -> None:
    values = {
        "links": {"fabric.drives": {"latency": 1.0}},
        "workload": {"phases": [{"name": "a", "wave": {"requests": 3}}]},
    }
    assert value_at(values, "links.fabric.drives.latency") == 1.0
    assert (
        value_at(values, "workload.phases.a.wave.requests") == value_at(values, "workload.phases.0.wave.requests") == 3
    )
    assert value_at(values, "workload.phases.1.wave") is value_at(values, "tiers.dram") is None
    assert value_at(values, "links") == '{"fabric.drives": {"latency": 1.0}}'


def test_units_are_those_of_the_schema() -> None:
    assert [unit_of(key) for key in ("tiers.dram.capacity", "links.nic.0.bandwidth", "slo.ttft")] == [
        *("bytes", "bytes_per_s", "seconds")
    ]
    assert unit_of("workload.phases.a.wave.arrival_jitter") == "seconds"
    assert [unit_of(key) for key in ("cluster.replicas", "tiers.dram.eviction", "llm", "no.such.key")] == [None] * 4
    assert [text_of(value, None) for value in (True, None, 20000, 0.125, "lru")] == [
        "true",
        "null",
        "20,000",
        "0.125",
        "lru",
    ]
