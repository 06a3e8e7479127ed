"""From points to a device: known devices come back from grids of theirs, and the file runs in a scenario."""

import json
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from storage_samples import FIO_OF_A_RUN, IOSTAT, MLPERF, SAMPLES

from calibration.importers.cells import Cell, Measurements
from calibration.importers.device import import_device
from calibration.importers.reading import read_measurements
from models.catalogue import load_entry
from models.errors import UnknownNameError
from models.storage import DeviceCost, load_device
from scenarios.build import simulate
from scenarios.cli import main
from scenarios.commands import discovery
from scenarios.loader import load_scenario

TRUTH = DeviceCost(
    name="truth",
    device_class="drive",
    read_bytes_per_s=6.8e9,
    write_bytes_per_s=4.2e9,
    read_iops=900e3,
    write_iops=200e3,
    read_latency_s=72e-6,
    write_latency_s=16e-6,
    duplex=False,
    stream_bytes_per_s=2.5e9,
)
SIZES = (4096, 65536, 2**20)
DEPTHS = (1, 4, 32, 256, 1024)


def grid(device: DeviceCost, shares: tuple[float, ...] = (0.0, 1.0, 0.3), factor: float = 1.0) -> Measurements:
    def cell(size: float, depth: float, share: float) -> Cell:
        rate = device.bandwidth_bytes_per_s(size, depth, share) * factor
        both = {"read_bytes_per_s": rate * (1 - share), "write_bytes_per_s": rate * share}
        return Cell(label="x", io_bytes=size, depth=depth, **both)

    return Measurements(
        tool="t", cells=[cell(size, depth, share) for size in SIZES for depth in DEPTHS for share in shares]
    )


def test_a_known_device_comes_back_from_its_grid() -> None:
    imported = import_device([("a.json", grid(TRUTH))], name="d")
    entry = imported.entry
    assert entry.si("read_bandwidth") == pytest.approx(6.8e9, rel=1e-3)
    assert entry.si("write_bandwidth") == pytest.approx(4.2e9, rel=1e-3)
    assert entry.si("read_iops") == pytest.approx(900e3, rel=1e-3)
    assert entry.si("write_iops") == pytest.approx(200e3, rel=1e-3)
    assert entry.si("read_latency") == pytest.approx(72e-6, rel=1e-3)
    assert entry.si("write_latency") == pytest.approx(16e-6, rel=2e-2)
    assert entry.si("stream_bandwidth") == pytest.approx(2.5e9, rel=1e-3)
    assert not entry.yes("duplex")
    assert max(abs(row.error) for row in imported.met) < 0.02
    assert len(imported.met) == len(SIZES) * len(DEPTHS) * 3
    assert {figure.status for figure in entry.figures.values()} == {"measured"}
    assert not imported.warnings


def test_mixes_say_whether_both_directions_share_the_medium() -> None:
    imported = import_device([("a.json", grid(replace(TRUTH, duplex=True)))], name="d")
    assert imported.entry.yes("duplex")
    assert max(abs(row.error) for row in imported.met) < 0.02


def test_no_limit_of_operations_where_littles_law_explains_the_rate() -> None:
    entry = import_device([("a.json", grid(replace(TRUTH, read_iops=None, write_iops=None)))], name="d").entry
    assert "read_iops" not in entry.figures or entry.si("read_iops") * 4096 >= 0.7 * 6.8e9


def test_a_grid_with_noise_gives_the_device_within_it() -> None:
    random = np.random.default_rng(7)
    cells = [
        replace(
            cell, read_bytes_per_s=cell.read_bytes_per_s * factor, write_bytes_per_s=cell.write_bytes_per_s * factor
        )
        for cell, factor in zip(grid(TRUTH).cells, np.exp(random.normal(0.0, 0.03, 1000)), strict=False)
    ]
    imported = import_device([("a.json", Measurements(tool="t", cells=cells))], name="d")
    entry = imported.entry
    truths = {"read_bandwidth": 6.8e9, "write_bandwidth": 4.2e9, "read_iops": 900e3, "write_iops": 200e3}
    truths |= {"read_latency": 72e-6, "stream_bandwidth": 2.5e9}
    for name, truth in truths.items():
        assert entry.si(name) == pytest.approx(truth, rel=0.1), name
    assert max(abs(row.error) for row in imported.met) < 0.15


def test_a_shallow_queue_that_is_ahead_by_chance_hides_no_limit() -> None:
    rates = {1: 1 / 17.6e-6, 4: 208e3, 256: 200e3}  # at depth 4 the latency alone would explain the rate
    small = [
        Cell(label="x", io_bytes=4096, depth=depth, write_bytes_per_s=4096 * rate) for depth, rate in rates.items()
    ]
    large = Cell(label="x", io_bytes=2**20, depth=32, write_bytes_per_s=4.2e9)
    entry = import_device([("a.json", Measurements(tool="t", cells=[*small, large]))], name="d").entry
    assert entry.si("write_iops") == pytest.approx(200e3)


def test_a_stripe_is_counted_per_device() -> None:
    stripe = replace(TRUTH, read_bytes_per_s=4 * 6.8e9, write_bytes_per_s=4 * 4.2e9, read_iops=3.6e6, write_iops=800e3)
    imported = import_device([("a.json", grid(stripe))], name="d", count=4)
    assert imported.entry.si("read_bandwidth") == pytest.approx(6.8e9, rel=1e-3)
    assert imported.entry.si("write_iops") == pytest.approx(200e3, rel=1e-3)
    assert imported.entry.si("read_latency") == pytest.approx(72e-6, rel=1e-3)
    assert max(abs(row.error) for row in imported.met) < 0.02


def test_runs_of_the_same_grid_give_a_spread() -> None:
    files = [(f"{run}.json", grid(TRUTH, factor=factor)) for run, factor in enumerate((0.95, 1.0, 1.05))]
    figure = import_device(files, name="d").entry.figures["read_bandwidth"]
    assert figure.spread == pytest.approx(0.05, rel=1e-2)
    assert figure.value == pytest.approx(6.8)
    assert figure.source == "t, 0.json; t, 1.json; t, 2.json"
    assert "median of 3 runs" in (figure.note or "")
    assert import_device(files[:1], name="d").entry.figures["read_bandwidth"].spread is None


def test_writes_seen_only_in_a_mix_follow_from_the_shared_medium() -> None:
    entry = import_device([("a.json", grid(TRUTH, (0.0, 0.3)))], name="d").entry
    assert entry.si("write_bandwidth") == pytest.approx(4.2e9, rel=1e-3)
    assert entry.figures["write_bandwidth"].status == "derived"
    assert entry.figures["write_latency"].status == "assumed"


def test_what_was_not_measured_is_assumed_and_says_so() -> None:
    imported = import_device([("a.json", grid(TRUTH, (0.0,)))], name="d")
    write = imported.entry.figures["write_bandwidth"]
    assert (write.status, write.unverified, write.spread) == ("assumed", True, 0.5)
    assert write.value == imported.entry.figures["read_bandwidth"].value
    assert imported.entry.figures["write_latency"].source.startswith("as nvme-gen4")
    assert sum("is not in the file" in text for text in imported.warnings) == 2
    named = import_device([("a.json", grid(TRUTH, (0.0,)))], name="d", stand_in="samsung-pm1743").entry
    assert (
        named.figures["write_bandwidth"].text == load_entry("storage", "samsung-pm1743").figures["write_bandwidth"].text
    )
    array = import_device([("a.json", grid(TRUTH, (0.0,)))], name="d", device_class="array", stand_in="fx100").entry
    assert array.si("write_bandwidth") == pytest.approx(4 * 1.6e9)  # the catalogue's figure is for one drive of four
    with pytest.raises(UnknownNameError):
        import_device([("a.json", grid(TRUTH, (0.0,)))], name="d", stand_in="samsung-pm")


def test_small_blocks_alone_show_no_bandwidth() -> None:
    cells = [cell for cell in grid(TRUTH).cells if cell.io_bytes == 4096]
    warnings = import_device([("a.json", Measurements(tool="t", cells=cells))], name="d").warnings
    assert any("largest reads are of 4 KiB" in text for text in warnings)


def test_times_of_a_full_queue_are_no_latency() -> None:
    cells = [cell for cell in grid(TRUTH).cells if cell.depth != 1]
    entry = import_device([("a.json", Measurements(tool="t", cells=cells))], name="d").entry
    assert entry.si("read_latency") == pytest.approx(73.6e-6, rel=1e-2)  # 4 KiB at depth 4, with its 1.6 us of bytes
    assert "upper bound" in (entry.figures["read_latency"].note or "")
    deep = [cell for cell in cells if cell.depth == 256]
    entry = import_device([("a.json", Measurements(tool="t", cells=deep))], name="d").entry
    assert entry.figures["read_latency"].status == "assumed"


def test_mixes_at_depth_1_give_latencies_where_they_were_measured() -> None:
    both = {"read_bytes_per_s": 5e7, "write_bytes_per_s": 5e7, "read_latency_s": 80e-6, "write_latency_s": 20e-6}
    cell = Cell(label="x", io_bytes=4096, depth=1, **both)
    imported = import_device([("a.json", Measurements(tool="t", cells=[cell]))], name="d")
    assert imported.entry.si("read_latency") == pytest.approx(80e-6)
    assert imported.entry.si("write_latency") == pytest.approx(20e-6)
    assert any("no reads at a queue deeper than 1" in text for text in imported.warnings)


def test_a_busy_average_bounds_both_directions_together(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(MLPERF, encoding="utf-8")
    entry = import_device([("r.json", read_measurements(tmp_path / "r.json"))], name="d").entry
    assert entry.si("read_bandwidth") == entry.si("write_bandwidth") == pytest.approx(3.25 * 2**30, rel=1e-3)
    assert "lower bound" in (entry.figures["read_bandwidth"].note or "")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the verb as pyproject.toml declares it, whether kvtier is installed here or not."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"][discovery.GROUP]
    points = {name: EntryPoint(name, value, discovery.GROUP) for name, value in declared.items()}
    monkeypatch.setattr(discovery, "_installed", lambda: points)


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for kind, text in SAMPLES.items():
        (tmp_path / f"{kind}.txt").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_file_of_every_format_becomes_a_device_that_runs(kind: str, sample: Path) -> None:
    assert main(["import-device", f"{kind}.txt", "-o", "my.yaml"]) == 0
    entry = load_device("my.yaml").entry
    assert entry.name == "my"
    measured = [figure for figure in entry.figures.values() if figure.status in {"measured", "derived"}]
    assert len(measured) >= 2
    assert all(f"{kind}.txt" in figure.source for figure in measured)
    text = "base: quickstart\ntiers: {nvme: {device: ./my.yaml}}\nworkload: {synthetic: {requests: 150}}\n"
    (sample / "mine.yaml").write_text(text, encoding="utf-8")
    result = simulate(load_scenario("mine.yaml", overrides=["tiers.dram.capacity=5 GB"]))
    assert result.summary()["requests"]["completed"] == 150
    assert result.summary()["tiers"]["nvme"]["write_bytes"] > 0


@pytest.mark.usefixtures("installed", "sample")
def test_the_device_moves_the_result() -> None:
    text = "base: quickstart\ntiers: {nvme: {device: ./my.yaml}}\nworkload: {synthetic: {requests: 150}}\n"
    Path("mine.yaml").write_text(text, encoding="utf-8")

    def read_rate() -> float:
        result = simulate(load_scenario("mine.yaml", overrides=["tiers.dram.capacity=5 GB"]))
        return float(result.summary()["links"]["nvme"]["peak_bytes_per_s"])

    assert main(["import-device", "iostat.txt", "-o", "my.yaml"]) == 0
    quick = read_rate()
    Path("slow.txt").write_text(IOSTAT.replace("6800000", "680000").replace("6600000", "660000"), encoding="utf-8")
    assert main(["import-device", "slow.txt", "-o", "my.yaml"]) == 0
    assert read_rate() < quick


@pytest.mark.usefixtures("installed", "sample")
@pytest.mark.parametrize(("device_class", "tier"), [("memory", "dram"), ("array", "nvme"), ("object", "nvme")])
def test_devices_of_every_class_run(device_class: str, tier: str) -> None:
    assert main(["import-device", "gdsio.txt", "-o", "my.yaml", "--class", device_class]) == 0
    changes = [f"tiers.{tier}.device=./my.yaml", "workload.synthetic.requests=50"]
    assert simulate(load_scenario("quickstart", overrides=changes)).summary()["requests"]["completed"] == 50


@pytest.mark.usefixtures("installed", "sample")
def test_yaml_goes_to_stdout_and_warnings_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import-device", "fio.txt"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("name: fio\n")
    assert "kvtier: warning: fio.txt: 7 of 7 jobs ran for less than 10 s" in err
    Path("again.yaml").write_text(out, encoding="utf-8")
    assert load_device("again.yaml").entry.si("read_bandwidth") == pytest.approx(2.247e9)


@pytest.mark.usefixtures("installed", "sample")
def test_json_is_one_object_with_the_curve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import-device", "fio.txt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["curve"]) == 7
    assert found["device"]["figures"]["read_bandwidth"]["unit"] == "GB/s"
    row = next(row for row in found["curve"] if row["io_bytes"] == 4096 and row["queue_depth"] == 16)
    assert row["curve_bytes_per_s"] == pytest.approx(row["measured_bytes_per_s"], rel=0.01)


@pytest.mark.usefixtures("installed")
def test_help_names_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import-device", "--help"]) == 0
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(SAMPLES) <= set(words)


@pytest.mark.usefixtures("installed", "sample")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing.json"], "nothing.json: cannot be read: No such file"),
        (["fio.txt", "--kind", "foi"], "unknown kind of measurement file 'foi'; did you mean 'fio'?"),
        (["fio.txt", "--kind", "gdsio"], "holds no line of gdsio"),
        (["fio.txt", "--class", "drvie"], "unknown device class 'drvie'; did you mean 'drive'?"),
        (["fio.txt", "-o", "my.txt"], "must end in .yaml"),
        (["fio.txt", "-o", "no/such/my.yaml"], "cannot be written"),
        (["fio.txt", "--disk", "sda"], "has no parameter 'disk'"),
        (["fio.txt", "--stand-in", "nvme-gen9"], "unknown storage 'nvme-gen9'"),
        (["fio.txt", "--count", "0"], "count"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import-device", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert problem in err
    assert len(err.strip().splitlines()) == 1


def test_the_sample_of_fio_names_no_place_of_the_machine() -> None:
    assert '"filename": "scratch.bin"' in FIO_OF_A_RUN.read_text(encoding="utf-8")
