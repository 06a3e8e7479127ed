"""How fast sweeps are: `pytest -m benchmark -s`. Nothing here asserts a time: machines differ, and may be shared.

It prints what two processes gain over one, and what a point costs beyond its own time: loading and checking it, the
way to a process and back, the journal and the table. Processor time is printed too, since that hardly depends on what
else the machine does: two processes cannot gain more than the cores that are free.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scenarios import cli
from scenarios.build import simulate
from scenarios.schema import Scenario
from scenarios.sweeping import load_points, run_points
from sim.results.result import SimulationResult
from sim.simulation import Progress

pytestmark = pytest.mark.benchmark

POINTS = 200
TURNS = 3
GRID = ["tiers.dram.capacity=" + ",".join(f"{20 + 5 * step}GB" for step in range(POINTS))]


def sweep_command(jobs: int, folder: Path) -> tuple[float, float]:
    """Run the sweep as a command; return its wall time and the processor time of all its processes [s]."""
    out = folder / f"{jobs}-{time.monotonic_ns()}.parquet"
    command = [sys.executable, "-m", "scenarios.cli", "sweep", "quickstart", "--grid", *GRID, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    before, began_s = os.times(), time.perf_counter()
    done = subprocess.run(
        [*command, "--jobs", str(jobs), "--out", str(out)], env=environment, capture_output=True, text=True, check=False
    )
    wall_s, after = time.perf_counter() - began_s, os.times()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] == POINTS
    used = [getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system")]
    return wall_s, sum(used)


def test_two_processes_against_one(tmp_path: Path) -> None:
    print(f"\nkvtier sweep quickstart, {POINTS} points")
    for _ in range(TURNS):
        # One, two, one: a machine that slows down meanwhile slows both.
        first, two, second = (sweep_command(jobs, tmp_path) for jobs in (1, 2, 1))
        one_s = (first[0] + second[0]) / 2.0
        print(f"  one process {one_s:6.1f} s, two {two[0]:6.1f} s: {one_s / two[0]:.2f} times as fast;", end=" ")
        print(f"processor time {(first[1] + second[1]) / 2.0:.1f} s and {two[1]:.1f} s")


def test_what_a_point_costs_beyond_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ["tiers.dram.capacity=" + ",".join(f"{50 + 10 * step}GB" for step in range(10))]
    own_s = 0.0

    def timed(scenario: Scenario, *, progress: Progress | None = None) -> SimulationResult:
        nonlocal own_s
        began_s = time.process_time()
        result = simulate(scenario, progress=progress)
        own_s += time.process_time() - began_s
        return result

    run_points(load_points("quickstart", grid=["run.seed=0"]), jobs=1, out=tmp_path / "first.parquet")  # imports
    monkeypatch.setattr("scenarios.build.simulate", timed)
    began_s = time.process_time()
    for turn in range(TURNS):
        run_points(load_points("quickstart", grid=grid), jobs=1, out=tmp_path / f"{turn}.parquet")
    beyond_s = time.process_time() - began_s - own_s
    number = 10 * TURNS
    print(f"\na point of quickstart: {own_s / number * 1e3:.0f} ms of its own,", end=" ")
    print(f"{beyond_s / number * 1e3:.1f} ms beyond ({beyond_s / own_s:.1%})")
