"""How fast `kvtier mrc` is, against kvcache-simulator (Apache-2.0, PyPI) in the same minute: `pytest -m benchmark -s`.

The same question for both: LRU, FIFO and the optimum at the 14 capacities for which kvcache-simulator gives figures on
the Mooncake conversation trace, as whole commands. It is asked only if it is installed (`kvtier[bench]`); the answers
must be equal. Nothing here asserts a time: machines differ.
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.mrc.curves import Curves
from sim.mrc.segments import read_requests
from sim.traces import open_trace

pytestmark = pytest.mark.benchmark

TURNS = 3
MODEL = "llama-3.1-70b"
GIB = [2**power for power in range(14)]
CAPACITIES = ",".join(f"{gib}GiB" for gib in GIB)
PEER_NAMES = {"lru": "lru", "fifo": "fifo", "optimal": "belady"}
OURS = "import sys; sys.path[:] = {path!r}; from scenarios.cli import main; sys.exit(main(sys.argv[1:]))"


def timed(*command: str) -> tuple[float, Any]:
    """Run a command; return its wall time [s] and the JSON that it printed."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    return wall_s, json.loads(done.stdout)


def ours(trace: Path) -> tuple[float, Any]:
    code = OURS.format(path=[path for path in sys.path if path])
    return timed(sys.executable, "-c", code, "mrc", str(trace), "--capacities", CAPACITIES, "--llm", MODEL, "--json")


def peer(trace: Path, backend: str) -> tuple[float, Any]:
    options = ("--model", MODEL, "--block-size", "512", "--budgets-gib", ",".join(map(str, GIB)), "--format", "json")
    run = (sys.executable, "-m", "kvcache_sim", "run", "--trace", str(trace), "--no-progress", *options)
    return timed(*run, "--backend", backend)


def test_mrc_against_kvcache_simulator(conversation_trace: Path) -> None:
    walls: dict[str, list[float]] = {"kvtier mrc": []}
    runs: dict[str, Callable[[], tuple[float, Any]]] = {"kvtier mrc": lambda: ours(conversation_trace)}
    if importlib.util.find_spec("kvcache_sim") is not None:
        peer(conversation_trace, "cpp")  # compiles at its first run
        runs["its C++"] = lambda: peer(conversation_trace, "cpp")
        runs["its Python"] = lambda: peer(conversation_trace, "python")
    counted: dict[str, Any] = {}
    for turn in range(TURNS):
        for name, run in runs.items():
            if name == "its Python" and turn:
                continue  # it takes as long as all the others together
            wall_s, answer = run()
            walls.setdefault(name, []).append(wall_s)
            counted[name] = hits(answer)
    print(f"\n14 capacities x (LRU, FIFO, optimum) on {conversation_trace.name}, medians of {TURNS} turns")
    for name, values in walls.items():
        assert counted[name] == counted["kvtier mrc"]
        wall_s = statistics.median(values)
        print(f"  {name:<12} {wall_s:6.2f} s  {wall_s / statistics.median(walls['kvtier mrc']):5.1f} times kvtier mrc")
    if len(runs) == 1:
        print("  kvcache-simulator is not installed: pip install 'kvtier[bench]'")


def hits(answer: Any) -> dict[tuple[str, int], int]:
    if "curves" in answer:
        return {(point["policy"], point["capacity_blocks"]): point["hit_tokens"] for point in answer["curves"]}
    return {
        (PEER_NAMES[name], point["cacheBlocks"]): result["hitTokens"]
        for point in answer["points"]
        for name, result in point["results"].items()
    }


def test_where_the_time_of_mrc_goes(conversation_trace: Path) -> None:
    began = time.perf_counter()
    visits = read_requests(open_trace(conversation_trace))
    print(f"\n{'read':<28} {time.perf_counter() - began:6.3f} s")
    for plain in (True, False):
        for policy in ("lru", "fifo", "belady"):
            curves = Curves(visits, plain=plain)
            walls = []
            for capacity in (1_000, 10_000, 50_000, 100_000):
                began = time.perf_counter()
                assert curves.point(policy, capacity).hit_blocks > 0
                walls.append(time.perf_counter() - began)
            mode = "plain" if plain else "prefix-aware"
            first, others = walls[0], statistics.mean(walls[1:])
            print(f"{policy + ', ' + mode:<28} {first:6.3f} s the first capacity, {others:6.3f} s each other")
