"""How fast kvtier is, against a yardstick of the same machine in the same minute: `pytest -m benchmark -s`.

The yardstick is bare SimPy timeouts a second, counted in two ways that bracket what SimPy can do:

- *one process*: one process that yields timeouts one after another, so that the event heap is all but empty;
- *100 processes*: a hundred such processes, so that each event goes through a heap of a hundred.

Engine and yardsticks take turns, so that a machine that slows down slows all of them; figures are medians of the turns.
Nothing here asserts a time: machines differ. It prints, and fails only where a run is wrong.
"""

import cProfile
import os
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import simpy

from scenarios.build import simulate
from scenarios.loader import load_scenario

pytestmark = pytest.mark.benchmark

TURNS = 5
TIMEOUTS = 200_000
SCENARIO = "mooncake-conversation"
SYNTHETIC_REQUESTS = [10_000, 100_000] + [1_000_000] * (os.environ.get("KVTIER_BENCHMARK_MILLION") == "1")

# What each module does, for the table of where the time goes; the longest beginning that fits wins.
PARTS = {
    "models/": "steps",
    "sim/": "steps",
    **dict.fromkeys(("sim/transfers", "sim/clock"), "flows"),
    **dict.fromkeys(("sim/tiers", "sim/policies"), "tiers"),
    **dict.fromkeys(("sim/traces", "sim/generators", "sim/workload"), "reading"),
    **dict.fromkeys(("sim/recording", "sim/results"), "recording"),
    "simpy/": "SimPy",
}

WHOLE_COMMAND = """
import resource, sys
from scenarios.cli import main
code = main(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
sys.stderr.write(f"PEAK {peak}\\n")
sys.exit(code)
"""


def timeouts_per_s(processes: int) -> float:
    """Count bare SimPy timeouts a second of wall time, shared among so many processes."""
    environment = simpy.Environment()

    def wait() -> Generator[simpy.Event, None, None]:
        for _ in range(TIMEOUTS // processes):
            yield environment.timeout(1)

    for _ in range(processes):
        environment.process(wait())
    began = time.perf_counter()
    environment.run()
    return TIMEOUTS / (time.perf_counter() - began)


def replay(trace: Path) -> dict[str, Any]:
    return simulate(load_scenario(SCENARIO, trace=str(trace))).summary()


def run_command(*arguments: str) -> tuple[float, float]:
    """Run `kvtier` in a process of its own; return its wall time [s] and its peak memory [MiB]."""
    code = f"import sys; sys.path[:] = {[path for path in sys.path if path]!r}\n{WHOLE_COMMAND}"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    return wall_s, int(done.stderr.rpartition("PEAK ")[2]) / 2**20


def test_requests_per_second_against_simpy_timeouts(conversation_trace: Path) -> None:
    one, hundred, engine = [], [], []
    for _ in range(TURNS):
        one.append(timeouts_per_s(1))
        hundred.append(timeouts_per_s(100))
        summary = replay(conversation_trace)
        engine.append(summary["engine"]["requests_per_wall_s"])
    assert summary["requests"]["completed"] == 12_031
    rate = statistics.median(engine)
    print(f"\n{SCENARIO} on {conversation_trace.name}, medians of {TURNS} turns")
    print(f"  engine                    {rate:12,.0f} requests/s")
    print(f"  events                    {summary['engine']['events'] / 12_031:12.2f} a request")
    for name, values in (("one process", one), ("100 processes", hundred)):
        yard = statistics.median(values)
        print(f"  timeouts, {name:<14}  {yard:12,.0f} a second; {rate / yard:.5f} requests a timeout")


def test_the_whole_command(conversation_trace: Path) -> None:
    runs = [run_command("run", SCENARIO, "--trace", str(conversation_trace), "--json") for _ in range(TURNS)]
    wall_s, peak_mib = (statistics.median(values) for values in zip(*runs, strict=True))
    print(f"\nkvtier run {SCENARIO} --trace {conversation_trace.name} --json: {wall_s:.2f} s, peak {peak_mib:.0f} MiB")


def test_where_the_time_goes(conversation_trace: Path) -> None:
    scenario = load_scenario(SCENARIO, trace=str(conversation_trace))
    profile = cProfile.Profile()
    profile.runcall(simulate, scenario)
    spent_s: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for entry in profile.getstats():
        part = part_of(entry.code)
        if part is not None:
            spent_s[part] += entry.inlinetime
            calls[part] += entry.callcount
        # A function in C, or of the standard library, is part of what its callers do.
        for called in entry.calls or ():
            if part_of(called.code) is None:
                spent_s[part or "other"] += called.inlinetime
                calls[part or "other"] += called.callcount
    total_s = sum(spent_s.values())
    print(f"\nwhere the time of {SCENARIO} goes (under cProfile, which makes small functions look dearer)")
    for part, part_s in sorted(spent_s.items(), key=lambda item: -item[1]):
        print(f"  {part:<10} {part_s / total_s:6.1%}  {calls[part] / 12_031:8.1f} calls a request")
    assert {"flows", "steps", "tiers", "reading"} <= set(spent_s)


def part_of(code: CodeType | str) -> str | None:
    """Return the part that a function belongs to; one in C has a name only, and belongs to none."""
    file = "" if isinstance(code, str) else code.co_filename.replace(os.sep, "/")
    fitting = [beginning for beginning in PARTS if f"/{beginning}" in file]
    return PARTS[max(fitting, key=len)] if fitting else None


def test_time_and_memory_of_longer_synthetic_runs() -> None:
    print(f"\nsynthetic chat through {SCENARIO}: the whole command")
    for requests in SYNTHETIC_REQUESTS:
        length = ("--set", f"workload.synthetic.requests={requests}", "--set", "workload.synthetic.duration=null")
        wall_s, peak_mib = run_command("run", SCENARIO, "--json", *length)
        rate = requests / wall_s
        print(f"  {requests:9,} requests  {wall_s:8.1f} s  {rate:7,.0f} requests/s  peak {peak_mib:6.0f} MiB")
