"""Each format: figures worked out by hand from its sample, its quirks, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from storage_samples import (
    ELBENCHO,
    FIO_OF_A_RUN,
    GDSIO,
    IOSTAT,
    MLPERF,
    MLPERF_SUMMARY,
    NIXLBENCH,
    SAMPLES,
    elbencho_row,
    iostat_log,
    iostat_row,
)

from calibration.importers.cells import Cell, MeasurementError, Measurements
from calibration.importers.reading import read_measurements
from models.errors import InputError, UnknownNameError


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def of(text: str, kind: str | None = None, **options: object) -> Measurements:
        (tmp_path / "m.txt").write_text(text, encoding="utf-8")
        return read_measurements(tmp_path / "m.txt", kind, **options)

    return of


def fio(*jobs: dict[str, Any], **common: str) -> str:
    return json.dumps({"fio version": "fio-3.33", "global options": {"direct": "1", **common}, "jobs": list(jobs)})


def job(
    name: str = "a", group: int = 0, options: dict[str, str] | None = None, **sides: tuple[float, float]
) -> dict[str, Any]:
    """A job whose sides are (bytes/s, mean latency in us) of 1 MiB."""

    def side(rate: float, latency_us: float) -> dict[str, Any]:
        iops = rate / 2**20
        return {"bw_bytes": rate, "iops": iops, "runtime": 60000 * bool(rate), "lat_ns": {"mean": 1e3 * latency_us}}

    base = {"ioengine": "libaio", "iodepth": "4", "rw": "read", **(options or {})}
    both = {name: side(*sides.get(name, (0.0, 0.0))) for name in ("read", "write")}
    return {"jobname": name, "groupid": group, "error": 0, "job options": base, **both}


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_format_is_told_by_the_file(read: Any, kind: str) -> None:
    assert read(SAMPLES[kind]) == read(SAMPLES[kind], kind)


def test_what_fio_wrote_here(read: Any) -> None:
    found = read(FIO_OF_A_RUN.read_text(encoding="utf-8"))
    assert found.tool == "fio-3.33"
    cells = {cell.label: cell for cell in found.cells}
    small = cells["4k-qd1-read"]
    assert (small.io_bytes, small.depth, small.pattern) == (4096, 1, "random")
    assert small.read_bytes_per_s == 45_511_111
    assert small.read_latency_s == pytest.approx(84.299e-6, rel=1e-4)
    mix = cells["1m-qd16-mix"]
    assert (mix.io_bytes, mix.depth) == (2**20, 16)
    assert mix.write_fraction == pytest.approx(585_968_941 / (585_968_941 + 1_264_459_294))
    assert "7 of 7 jobs ran for less than 10 s" in found.warnings


def test_fio_jobs_of_one_group_ran_at_once(read: Any) -> None:
    clones = [job(options={"numjobs": "2"}, read=(1e9, 100.0)), job(options={"numjobs": "2"}, read=(3e9, 200.0))]
    (cell,) = read(fio(*clones)).cells
    assert (cell.read_bytes_per_s, cell.depth) == (4e9, 8)
    assert cell.read_latency_s == pytest.approx(175e-6)  # of four I/Os, three took 200 us
    (grouped,) = read(fio(job(options={"numjobs": "2"}, read=(4e9, 175.0)))).cells
    assert (grouped.read_bytes_per_s, grouped.depth) == (4e9, 8)
    assert len(read(fio(job(group=0, read=(1e9, 1.0)), job(group=1, read=(1e9, 1.0)))).cells) == 2


def test_fio_engines_that_wait_have_one_io_each(read: Any) -> None:
    (cell,) = read(fio(job(options={"ioengine": "psync", "iodepth": "32", "numjobs": "3"}, read=(1e9, 1.0)))).cells
    assert cell.depth == 3


def test_old_fio_in_kib_and_us_after_a_note(read: Any) -> None:
    old = {"bw": 1024, "iops": 256.0, "runtime": 1, "lat": {"mean": 50.0}}
    text = "fio: a note\n" + fio({"jobname": "a", "read": old, "write": {"bw": 0, "iops": 0}}, bs="4k")
    (cell,) = read(text).cells
    assert (cell.read_bytes_per_s, cell.io_bytes) == (2**20, 4096)
    assert cell.read_latency_s == pytest.approx(50e-6)


def test_fio_of_the_page_cache_is_warned_about(read: Any) -> None:
    assert any("page cache" in text for text in read(fio(job(read=(1e9, 1.0)), direct="0")).warnings)
    assert read(fio(job(read=(1e9, 1.0)))).warnings == ()


def test_gdsio_in_gib_per_s(read: Any) -> None:
    cells = read(GDSIO).cells
    assert [cell.read_bytes_per_s for cell in cells] == [6.5 * 2**30, 0.04 * 2**30, 0]
    assert cells[2].write_bytes_per_s == 3.25 * 2**30
    assert [(cell.io_bytes, cell.depth) for cell in cells] == [(2**20, 8), (4096, 1), (2**20, 8)]
    assert cells[1].read_latency_s == pytest.approx(95e-6)


def test_gdsio_over_two_lines_with_a_range_of_sizes_and_no_latency(read: Any) -> None:
    text = GDSIO.splitlines()[1].replace(" IOSize: 1024(", "\nIOSize: 16-2048-16(").replace("1201.923077", "0.000000")
    (cell,) = read(text).cells
    assert cell.io_bytes == pytest.approx(818_796_544 * 1024 / 799_606)
    assert cell.latency_s("read") == pytest.approx(8 * cell.io_bytes / cell.read_bytes_per_s)


def test_nixlbench_of_two_versions_in_one_file(read: Any) -> None:
    found = read(NIXLBENCH)
    small, large, deep, write = found.cells
    assert small.latency_s("read") == pytest.approx(100e-6)  # the column "Avg Lat."
    assert (large.io_bytes, large.depth) == (2**20, 1)
    assert (deep.read_bytes_per_s, deep.depth) == (6.5e9, 32)
    assert (write.read_bytes_per_s, write.write_bytes_per_s) == (0, 4e9)
    assert not found.warnings
    assert "network" in read(NIXLBENCH.replace(": POSIX", ": UCX")).warnings[0]


def test_nixlbench_threads_and_aggregates(read: Any) -> None:
    text = NIXLBENCH.replace("=N)                               : 1", "=N)                               : 4")
    assert read(text).cells[0].depth == 4
    columns = "Block Size (B)  Batch Size  B/W (GB/Sec)  Aggregate B/W (GB/Sec)  Network Util (%)  Avg Lat. (us)"
    (cell,) = read(
        f"Op type (--op_type=[READ,WRITE]) : READ\n\n{columns}\n-----\n1048576  1  6.5  26.0  52.0  40.3\n"
    ).cells
    assert cell.read_bytes_per_s == 26e9


def test_elbencho_of_two_hosts_and_a_mix(read: Any) -> None:
    found = read(ELBENCHO)
    assert found.tool == "elbencho 3.0-1"
    write, reads, mix = found.cells
    assert write.write_bytes_per_s == 4000 * 2**20
    assert (reads.read_bytes_per_s, reads.depth) == (8000 * 2**20, 2 * 8 * 4)
    assert reads.read_latency_s == pytest.approx(8e-3)
    assert mix.write_fraction == pytest.approx(0.3)
    assert mix.read_latency_s is None


def test_elbencho_whose_threads_end_apart(read: Any) -> None:
    row = elbencho_row("READ", mib_per_s=8000).replace("8000,8000,8000,8000", "9000,8000,9000,8000")
    found = read(ELBENCHO.splitlines()[0] + "\n" + row)
    assert found.cells[0].read_bytes_per_s == 8000 * 2**20
    assert "first thread" in found.warnings[0]


def test_mlperf_names_gib_gb(read: Any) -> None:
    (cell,) = read(MLPERF).cells
    assert (cell.read_bytes_per_s, cell.write_bytes_per_s) == (3 * 2**30, 2**28)
    assert cell.is_bound
    (option,) = read(MLPERF_SUMMARY).cells
    assert option.bytes_per_s == 5 * 2**30


def test_iostat_kilobytes_are_1024_bytes(read: Any) -> None:
    """R2's local drive: 6.78 'iostat GB/s' are 6.943e9 B/s."""
    log = iostat_log([iostat_row("nvme0n1", 0.0)], *([iostat_row("nvme0n1", 6_780_000.0)],) * 3)
    (cell,) = read(log).cells
    assert cell.read_bytes_per_s == pytest.approx(6.943e9, rel=1e-4)
    assert cell.io_bytes == pytest.approx(512 * 1024, rel=1e-4)


def test_iostat_takes_the_busy_intervals_of_each_direction_after_the_first_report(read: Any) -> None:
    reads, writes = read(IOSTAT).cells
    assert reads.read_bytes_per_s == 6_700_000 * 1024
    assert reads.read_latency_s == pytest.approx(0.5e-3)
    assert writes.write_bytes_per_s == 2_000_000 * 1024


def test_iostat_leaves_a_trickle_and_the_times_of_a_full_queue_out(read: Any) -> None:
    rows = [iostat_row("nvme0n1", 0.0), iostat_row("nvme0n1", 6e6, wait_ms=9.0), iostat_row("nvme0n1", 0.0, 512.0)]
    (cell,) = read(iostat_log(*([row] for row in rows))).cells
    beside = [iostat_row("nvme0n1", 0.0), iostat_row("nvme0n1", 6e6, 512.0, wait_ms=9.0)]
    assert read(iostat_log(*([row] for row in beside))).cells == [cell]
    assert cell.read_bytes_per_s == 6e6 * 1024
    assert cell.read_latency_s is None


def test_iostat_takes_intervals_of_reads_alone_where_there_are_some(read: Any) -> None:
    rows = [iostat_row("sda", 0.0), iostat_row("sda", 3e6, 2e6), iostat_row("sda", 2e6)]
    assert read(iostat_log(*([row] for row in rows))).cells[0].bytes_per_s == 2e6 * 1024
    (reads, writes) = read(iostat_log(*([row] for row in rows[:2]))).cells
    assert reads.bytes_per_s == writes.bytes_per_s == 5e6 * 1024


def test_iostat_with_a_decimal_comma_in_megabytes(read: Any) -> None:
    log = IOSTAT.replace("rkB/s", "rMB/s").replace("wkB/s", "wMB/s").replace(".00", ",00")
    assert read(log, "iostat").cells[0].read_bytes_per_s == 6_700_000 * 2**20


def test_iostat_wants_to_know_which_of_several_drives(read: Any) -> None:
    log = iostat_log(*([iostat_row("sda", 0.0), iostat_row("nvme0n1", 1e6), iostat_row("nvme1n1", 2e6)],) * 2)
    with pytest.raises(MeasurementError, match=r"choose one with --disk \(nvme0n1, nvme1n1\)"):
        read(log)
    assert read(log, disk="nvme1n1").cells[0].read_bytes_per_s == 2e6 * 1024
    with pytest.raises(UnknownNameError, match="did you mean 'nvme1n1'"):
        read(log, disk="nvme1n")


def test_iostat_json(read: Any) -> None:
    def report(read_kb: float) -> dict[str, Any]:
        row = {
            "disk_device": "vda",
            "r/s": read_kb / 4,
            "w/s": 0.0,
            "rkB/s": read_kb,
            "wkB/s": 0.0,
            "r_await": 0.1,
            "w_await": 0.0,
        }
        return {"disk": [row]}

    text = json.dumps({"sysstat": {"hosts": [{"statistics": [report(1e9), report(1000.0), report(3000.0)]}]}})
    (cell,) = read(text).cells
    assert cell.read_bytes_per_s == 3000 * 1024
    assert cell.io_bytes == 4096


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("hello", r"say which with --kind \(elbencho, fio, gdsio, iostat, mlperf-kvcache, nixlbench\)"),
        ('{"fio version": "fio-3.33", "jobs": [', "m.txt:1: not JSON"),
        ('{"fio version": "fio-3.33", "jobs": []}', "has no jobs"),
        (fio(job("x", read=(1e9, 1.0)) | {"error": 28}), "m.txt: x: ended with error 28"),
        (fio(job("x", read=(1e9, 1.0)) | {"write": None}), "m.txt: x: write is missing"),
        (fio(job("x", options={"iodepth": "deep"}, read=(1e9, 1.0))), "m.txt: x: iodepth is 'deep'; must be a number"),
        (fio(job("x")), "no job read or wrote anything"),
        (GDSIO.replace("GiB/sec", "MiB/sec", 1), "m.txt:2: is no whole line of gdsio"),
        (GDSIO.replace("6.500000", "fast"), "m.txt:2: Throughput is 'fast'; must be a number"),
        (GDSIO.replace("IoType: WRITE", "IoType: TRIM"), "m.txt:4: IoType is TRIM; allowed: READ, RANDREAD"),
        (NIXLBENCH.replace("(--op_type=[READ,WRITE])", "", 1), "m.txt:13: no op type stands above the table"),
        (NIXLBENCH.replace("100.0  ", "", 1), "m.txt:13: has 9 columns; the header has 10"),
        (ELBENCHO.replace("block size,", "", 1), "m.txt:1: lacks the columns block size"),
        (ELBENCHO.replace(",./elbencho -r", "", 2), "m.txt:2: has fewer columns"),
        (MLPERF.replace("3.0", "NaN"), "tier_storage_read_bandwidth_gbps is nan; must be a number"),
        (MLPERF.replace("tier_storage_read", "x"), "has no tier_storage_read_bandwidth_gbps"),
        (MLPERF.replace("3.0", "0").replace("0.25", "0"), "nothing was read from or written to the storage tier"),
        (iostat_log([iostat_row("sda", 1.0)]), "holds 1 reports; the first is since boot"),
        (IOSTAT.replace(" 99.00", "", 1), "has 22 columns; the header has 23"),
        (iostat_log([iostat_row("sda", 0.0)], [iostat_row("sda", 0.0)]), "no drive read or wrote anything"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(read: Any, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as error:
        read(text)
    assert "\n" not in str(error.value)


def test_fio_jobs_of_several_sizes_at_once_are_no_point(read: Any) -> None:
    other = job("b", read=(1e9, 1.0))
    other["read"]["iops"] = 1e9 / 4096
    with pytest.raises(MeasurementError, match="put stonewall between them"):
        read(fio(job("a", read=(1e9, 1.0)), other))


def test_an_option_that_a_format_does_not_have_is_refused(read: Any) -> None:
    with pytest.raises(InputError, match="has no parameter 'disk'"):
        read(GDSIO, disk="nvme0n1")


def test_without_a_latency_a_cell_has_that_of_littles_law() -> None:
    cell = Cell(label="x", io_bytes=1000, depth=4, read_bytes_per_s=1e6)
    assert cell.latency_s("read") == pytest.approx(4e-3)
