"""A sweep on a real Dask cluster on this machine: the same bytes, and no run lost with a worker or the scheduler."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sweep_kit import counting, runs_of

from models.errors import KvTierError
from scenarios import cli, sweep
from scenarios.sweeping import dask_tasks

pytest.importorskip("distributed", reason="comes with kvtier[dask]")

ROOT = Path(cli.__file__).parents[1]
KIT = Path(__file__).parents[2] / "kit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A scheduler and two workers, each a process of its own in another folder than the test."""

    address: str
    scheduler: subprocess.Popen[str]
    workers: list[subprocess.Popen[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    started: list[subprocess.Popen[str]] = []

    def start(module: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(KIT)])}
        # A task may see two workers die; Dask's own number is 4.
        environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "1"
        with (folder / f"{len(started)}.log").open("w") as log:
            command = [sys.executable, "-m", module, "--scheduler-file", "scheduler.json", "--no-dashboard", *arguments]
            started.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, text=True))
        return started[-1]

    try:
        scheduler = start("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        workers = [
            start("distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1") for _ in "12"
        ]
        yield Cluster(address=_address(folder / "scheduler.json", scheduler), scheduler=scheduler, workers=workers)
    finally:
        for process in started:
            process.kill()
            process.wait()


def _address(file: Path, scheduler: subprocess.Popen[str]) -> str:
    until_s = time.monotonic() + 60.0
    while True:
        assert scheduler.poll() is None
        assert time.monotonic() < until_s
        try:
            return str(json.loads(file.read_text())["address"])
        except (OSError, ValueError):
            time.sleep(0.05)


def test_a_cluster_gives_the_same_bytes(
    cluster: Cluster, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.jsonl").write_text('{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n')
    # A trace that is named from this folder, and points that fail.
    options = [
        Path(small).name,
        "--trace",
        "t.jsonl",
        "--grid",
        "engine.max_model_len=1,null",
        "--grid",
        "run.seed=1,2,3",
    ]
    assert cli.main(["sweep", *options, "--dask", cluster.address, "--out", "d.parquet", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["points"], found["failed"], found["taken_over"]) == (6, 3, 0)
    assert cli.main(["sweep", *options, "--jobs", "1", "--out", "l.parquet"]) == 1
    assert Path("d.parquet").read_bytes() == Path("l.parquet").read_bytes()

    monkeypatch.setattr(dask_tasks, "code_fingerprint", lambda: "another")
    assert cli.main(["sweep", *options, "--dask", cluster.address, "--out", "e.parquet"]) == 1
    assert "a worker has another version of kvtier" in capsys.readouterr().err


def test_a_lost_worker_costs_no_run_and_a_lost_scheduler_keeps_what_was_done(
    cluster: Cluster, small: str, tmp_path: Path
) -> None:
    deadly, runs, out = tmp_path / "deaths", tmp_path / "runs", tmp_path / "s.parquet"
    deadly.mkdir()
    runs.mkdir()
    rows = [*counting(runs, 20), {"cluster.router": {"sweep_kit:Deadly": {"folder": str(deadly), "deaths": 1}}}]
    found = sweep(small, rows=rows, out=out, dask=cluster.address)
    assert found.failed == 0
    # What it had done is not done again, but for what was still on its way here.
    assert sorted(set(runs_of(runs))) == list(range(20))
    assert len(runs_of(runs)) <= 22
    dead = [worker for worker in cluster.workers if worker.poll() is not None]
    assert [worker.returncode for worker in dead] == [-signal.SIGKILL]
    local = sweep(small, rows=rows, jobs=1)
    assert local.table.equals(found.table, check_metadata=True)

    # Two have ended; the third is held until the scheduler is gone.
    def end_the_scheduler(_fraction: float | None, ended: int) -> None:
        if ended == 2:
            cluster.scheduler.kill()

    rows = counting(runs, 4, gate=tmp_path / "never", waits_from=2)
    rows = [{**row, "run.seed": 7} for row in rows]
    with pytest.raises(KvTierError, match="the scheduler is lost"):
        sweep(small, rows=rows, out=out, dask=cluster.address, progress=end_the_scheduler)
    (tmp_path / "never").touch()
    again = sweep(small, rows=rows, out=out, jobs=1, resume=True)
    assert (again.failed, again.taken_over) == (0, 2)


def test_a_task_that_ends_its_workers_is_a_row(cluster: Cluster, small: str, tmp_path: Path) -> None:
    deadly = tmp_path / "deaths"
    deadly.mkdir()
    rows = [{"cluster.router": {"sweep_kit:Deadly": {"folder": str(deadly), "deaths": 2}}}]
    found = sweep(small, rows=rows, dask=cluster.address)
    assert found.column("error") == ["2 workers died, one after another"]


def test_an_address_where_nothing_answers_is_bad_input(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dask_tasks, "_ANSWERS_WITHIN_S", 0.5)
    options = [small, "--grid", "run.seed=1", "--out", str(tmp_path / "s.parquet")]
    nobody, nowhere = "no Dask scheduler answers there", "must be the address of a Dask scheduler"
    addresses = {"tcp://127.0.0.1:9": nobody, "foo.invalid:8786": nobody, "nonsense://x:1": nowhere, "foo": nowhere}
    for address, said in addresses.items():
        assert cli.main(["sweep", *options, "--dask", address]) == 2
        err = capsys.readouterr().err
        assert f"--dask {address}: {said}" in err
        assert err.count("\n") == 1
        assert not list(tmp_path.glob("s.parquet*"))


def test_what_has_been_run_needs_no_scheduler(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["sweep", small, "--grid", "run.seed=1", "--out", str(tmp_path / "s.parquet"), "--json"]
    assert cli.main(options) == 0
    capsys.readouterr()
    assert cli.main([*options, "--resume", "--dask", "tcp://127.0.0.1:9"]) == 0
    assert json.loads(capsys.readouterr().out)["taken_over"] == 1
