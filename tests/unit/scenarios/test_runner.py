"""Tasks in processes: the same results from any number, each failure its own, and nothing left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process_kit import gone, in_group
from runner_kit import dies, fails_in, forever, half_known, odd_one_out, pid, squared

from models.errors import LostTaskError, UnknownNameError
from scenarios import cli
from scenarios.runner import available_cores, run_tasks

ROOT = Path(cli.__file__).parents[1]


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_results_do_not_depend_on_the_number_of_processes(jobs: int) -> None:
    found = dict(run_tasks(squared, [3, 1, 2], jobs=jobs))
    assert [found[place].value for place in range(3)] == [9, 1, 4]
    assert all(outcome.error is None for outcome in found.values())
    assert not multiprocessing.active_children()


def test_tasks_share_processes_and_one_job_is_this_process() -> None:
    assert {outcome.value for _, outcome in run_tasks(pid, range(2), jobs=1)} == {os.getpid()}
    workers = {outcome.value for _, outcome in run_tasks(pid, range(6), jobs=2)}
    assert len(workers) == 2
    assert os.getpid() not in workers
    assert list(run_tasks(pid, [])) == []
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


def test_each_failure_is_the_outcome_of_its_task_alone() -> None:
    found = dict(run_tasks(odd_one_out, range(6), jobs=2))
    assert type(found[0].error) is UnknownNameError
    assert "did you mean 'dram'" in str(found[0].error)
    assert "IndexError: list index out of range" in str(found[1].error)
    assert "runner_kit.py:" in str(found[1].error)
    assert [type(found[place].error) for place in (1, 2, 3)] == [LostTaskError] * 3
    assert "its process died (signal 9; where memory ran out, fewer --jobs need less)" in str(found[2].error)
    assert "its process died (exit code 7)" in str(found[3].error)
    assert [found[place].value for place in (4, 5)] == [4, 5]


def test_a_task_whose_process_died_gets_another_one(tmp_path: Path) -> None:
    tasks = [(str(tmp_path / name), deaths) for name, deaths in (("a", 1), ("b", 0), ("c", 9))]
    found = dict(run_tasks(dies, tasks, jobs=2, attempts=2))
    assert [found[place].value for place in (0, 1)] == [2, 1]
    assert type(found[2].error) is LostTaskError
    assert (tmp_path / "c").read_text() == "xx"  # no more than two processes died under it
    assert not multiprocessing.active_children()


def test_a_process_goes_on_after_a_foreseen_error_and_not_after_another(tmp_path: Path) -> None:
    def processes(errors: list[str]) -> list[int]:
        tasks = [(error, str(tmp_path)) for error in [*errors, ""]]
        list(run_tasks(fails_in, [*tasks, *tasks], jobs=2))
        seen = [int(path.name) for path in tmp_path.iterdir()]
        for path in tmp_path.iterdir():
            path.unlink()
        return seen

    assert len(processes(["foreseen", "foreseen"])) == 2
    assert len(processes(["another", "another"])) > 2


def test_one_process_tells_errors_apart_too() -> None:
    found = dict(run_tasks(odd_one_out, [0, 1, 4], jobs=1))
    assert type(found[0].error) is UnknownNameError
    assert "IndexError" in str(found[1].error)
    assert found[2].value == 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_goes_from_nothing_to_all(jobs: int) -> None:
    seen: list[tuple[float | None, int]] = []
    list(run_tasks(squared, range(4), jobs=jobs, progress=lambda fraction, ended: seen.append((fraction, ended))))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fraction for fraction in fractions if fraction is not None)
    assert seen[-1] == (1.0, 4)
    assert (0.125, 0) in seen  # half of one of four


def test_a_task_of_unknown_length_is_measured_by_one_that_has_ended() -> None:
    seen: list[float | None] = []
    list(run_tasks(half_known, range(2), jobs=1, progress=lambda fraction, _: seen.append(fraction)))
    assert seen == [None, None, 0.5, 0.75, 0.995, 1.0]


def test_leaving_the_iteration_ends_the_processes() -> None:
    seen: list[int] = []
    running = run_tasks(odd_one_out, [4, 5, 6, 7], jobs=2)
    next(running)
    seen = [child.pid or 0 for child in multiprocessing.active_children()]
    assert seen
    running.close()
    assert not multiprocessing.active_children()
    assert gone(seen)


BUSY = """
from scenarios.runner import run_tasks
from process_kit import gone, in_group
from runner_kit import forever
if __name__ == "__main__":
    try:
        list(run_tasks(forever, range(4), jobs=2, progress=lambda *_: print("busy", flush=True)))
    except KeyboardInterrupt:
        raise SystemExit(130)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("way", "code"), [("interrupt", 130), ("kill the parent alone", -signal.SIGKILL)])
def test_no_process_outlives_its_parent(tmp_path: Path, way: str, code: int) -> None:
    assert forever.__module__ == "runner_kit"
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parents[2] / "kit")])
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    assert [parent.stdout.readline() for _ in range(2)] == ["busy\n"] * 2  # a line from each worker
    group = in_group(parent.pid)
    assert len(group) >= 3
    if way == "interrupt":
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of them
    else:
        parent.kill()
    _, err = parent.communicate(timeout=20)
    assert parent.returncode == code
    assert "Traceback" not in err
    assert gone(group)
