"""A sweep that is ended, however that comes about: nothing goes on behind it, nothing done is lost or done again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from process_kit import gone, in_group
from sweep_kit import counting, runs_of

from scenarios import cli, sweep
from scenarios.sweeping import SweepResult

ROOT = Path(cli.__file__).parents[1]
KIT = Path(__file__).parents[2] / "kit"
POINTS = 6


class Started:
    """A sweep of six points in a process of its own, of which two have ended and the others wait at a gate."""

    def __init__(self, small: str, folder: Path) -> None:
        self.runs, self.gate, self.out = folder / "runs", folder / "gate", folder / "k.parquet"
        self.runs.mkdir()
        rows = folder / "rows.json"
        rows.write_text(json.dumps(counting(self.runs, POINTS, gate=self.gate, waits_from=2)))
        self.arguments = [small, "--list", str(rows), "--out", str(self.out)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scenarios.cli", "sweep", *self.arguments, "--jobs", "2"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(KIT)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for_two(self) -> None:
        """Wait until two runs are in the journal and two more have begun."""
        journal = Path(f"{self.out}.journal")
        until_s = time.monotonic() + 60.0
        while not journal.exists() or journal.read_text().count('"key"') < 2 or len(runs_of(self.runs)) < 4:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until_s
            time.sleep(0.02)

    def resume(self, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
        """Open the gate, go on here, and return what is printed."""
        self.gate.touch()
        assert cli.main(["sweep", *self.arguments, "--resume", "--jobs", "1", "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found


@pytest.fixture
def started(small: str, tmp_path: Path) -> Iterator[Started]:
    with _ended(Started(small, tmp_path)) as one:
        one.wait_for_two()
        yield one


@contextmanager
def _ended(one: Started) -> Iterator[Started]:
    try:
        yield one
    finally:
        with suppress(ProcessLookupError):  # of the whole group, also where a test failed since some went on
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("way", ["kill all", "kill the parent alone", "interrupt"])
def test_an_ended_sweep_leaves_nothing_behind_and_goes_on(
    started: Started, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = in_group(started.process.pid)
    assert len(group) >= 3
    if way == "kill the parent alone":
        started.process.kill()
    else:
        os.killpg(started.process.pid, signal.SIGKILL if way == "kill all" else signal.SIGINT)
    started.process.wait(timeout=20)
    assert gone(group)
    out, err = started.process.communicate(timeout=20)
    assert started.process.returncode == (130 if way == "interrupt" else -signal.SIGKILL)
    assert out == ""
    assert "Traceback" not in err
    assert ("kvtier: 2 of 6 runs are kept, and --resume takes them over\nkvtier: interrupted\n" in err) == (
        way == "interrupt"
    )
    assert not started.out.exists()

    found = started.resume(capsys)
    assert (found["points"], found["ok"], found["taken_over"]) == (6, 6, 2)
    # Nothing is repeated but the two that were under way.
    assert runs_of(started.runs) == [0, 1, 2, 2, 3, 3, 4, 5]
    resumed = started.out.read_bytes()
    assert cli.main(["sweep", *started.arguments, "--jobs", "1"]) == 0  # all afresh
    assert len(runs_of(started.runs)) == 8 + POINTS
    assert started.out.read_bytes() == resumed


def test_without_resume_what_was_done_is_not_thrown_away(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    os.killpg(started.process.pid, signal.SIGKILL)
    started.process.communicate()
    started.gate.touch()
    assert cli.main(["sweep", *started.arguments]) == 2
    _, err = capsys.readouterr()
    assert "holds 2 runs of a sweep that did not get through; --resume takes them over" in err
    assert started.resume(capsys)["taken_over"] == 2


def test_a_sweep_that_is_under_way_is_left_alone(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", *started.arguments, "--resume"]) == 2
    assert "another sweep is writing it" in capsys.readouterr().err
    started.gate.touch()
    started.process.communicate(timeout=60)
    assert started.process.returncode == 0
    assert SweepResult.load(started.out).failed == 0


@pytest.mark.parametrize(("deaths", "failed"), [(1, 0), (2, 1)])
def test_a_worker_that_is_lost_costs_no_run(small: str, tmp_path: Path, deaths: int, failed: int) -> None:
    deadly, runs = tmp_path / "deaths", tmp_path / "runs"
    deadly.mkdir()
    runs.mkdir()
    rows = [{"cluster.router": {"sweep_kit:Deadly": {"folder": str(deadly), "deaths": deaths}}}, *counting(runs, 3)]
    out = tmp_path / "s.parquet"
    found = sweep(small, rows=rows, out=out, jobs=2)
    assert len(list(deadly.iterdir())) == deaths
    assert runs_of(runs) == [0, 1, 2]
    assert found.failed == failed
    if failed:
        assert str(found.column("error")[0]).startswith("its process died (signal 9")
        again = sweep(small, rows=rows, out=out, jobs=2, resume=True)  # another try, and that one only
        assert (again.failed, again.taken_over) == (0, 3)
        assert runs_of(runs) == [0, 1, 2]
