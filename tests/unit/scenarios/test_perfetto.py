"""A run as a trace: well-formed by the Trace Event Format, and its slices are what the run found."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios import cli
from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.reporting.perfetto import trace_of, write_trace
from sim.results.result import SimulationResult

SMALL = ["workload.synthetic.requests=150", "workload.synthetic.length_scale=0.5", "tiers.hbm.capacity=8 GB"]
# What each phase must have (Trace Event Format, "Event Descriptions"), beside ph, pid and tid.
FIELDS = {
    "X": {"name", "cat", "ts", "dur"},
    "C": {"name", "ts", "args"},
    "i": {"name", "ts", "s"},
    "M": {"name", "args"},
}


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate(load_scenario("quickstart", overrides=[*SMALL, "tiers.dram.capacity=4 GB"]))


@pytest.fixture(scope="module")
def events(result: SimulationResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trace_of(result)["traceEvents"]
    return found


def whole(event: dict[str, Any]) -> tuple[int, int]:
    """Start and end in whole nanoseconds."""
    start = round(event["ts"] * 1e3)
    return start, start + round(event["dur"] * 1e3)


def test_events_are_of_the_format(events: list[dict[str, Any]]) -> None:
    json.dumps(events, allow_nan=False)
    for event in events:
        assert FIELDS[event["ph"]] <= event.keys()
        assert event["pid"] > 0, "0 is the idle process"
        assert event.get("ts", 0.0) >= 0.0
        assert event.get("dur", 0.0) >= 0.0
        if event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
    rows = {(event["pid"], event["tid"]) for event in events if event["ph"] in {"X", "i"}}
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert rows == named
    assert {event["pid"] for event in events} == {e["pid"] for e in events if e["name"] == "process_name"}


def test_slices_of_a_row_are_nested_or_apart(events: list[dict[str, Any]]) -> None:
    rows: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(whole(event))
    assert len(rows) > 3
    for spans in rows.values():
        open_until: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_parts_meet_and_add_up_to_the_ttft(result: SimulationResult, events: list[dict[str, Any]]) -> None:
    table = result.table("requests")
    place = {int(number): row for row, number in enumerate(table["request_id"])}
    requests = [event for event in events if event.get("cat") == "request"]
    parts = [event for event in events if event.get("cat") in {"ttft", "decode"}]
    assert len(requests) == int((table["state"] == 0).sum()) == 150
    for request in requests:
        row = place[int(request["name"].split()[1])]
        start, end = whole(request)
        own = [
            part
            for part in parts
            if (part["pid"], part["tid"]) == (request["pid"], request["tid"]) and start <= whole(part)[0] < end
        ]
        own.sort(key=whole)
        assert all(whole(one)[1] == whole(two)[0] for one, two in pairwise(own))
        assert (whole(own[0])[0], whole(own[-1])[1]) == (start, end)
        # An answer of one token ends with its first.
        assert (own[-1]["name"] == "decode") == (table["output_tokens"][row] > 1)
        parts_of_ttft = [part for part in own if part["cat"] == "ttft"]
        ttft = sum(whole(part)[1] - whole(part)[0] for part in parts_of_ttft)
        assert ttft == pytest.approx(table["ttft_s"][row] * 1e9, abs=1.5)
        for part in parts_of_ttft:
            assert part["dur"] / 1e6 == pytest.approx(table[f"{part['name']}_s"][row], abs=3e-9)


def test_transfers_stand_at_their_times(result: SimulationResult, events: list[dict[str, Any]]) -> None:
    table = result.table("transfers")
    drawn = sorted((*whole(e), e["args"]["bytes"]) for e in events if e.get("cat") in {"read", "write"})
    starts, ends = (np.rint(table[name] * 1e9).astype(int).tolist() for name in ("started_at_s", "finished_at_s"))
    wanted = sorted(zip(starts, ends, table["n_bytes"].tolist(), strict=True))
    assert len(drawn) == len(wanted) > 100
    assert all(abs(a - b) <= 1 for one, two in zip(drawn, wanted, strict=True) for a, b in zip(one, two, strict=True))


def test_counters_carry_all_bytes_of_the_links(result: SimulationResult, events: list[dict[str, Any]]) -> None:
    for name, link in result.summary()["links"].items():
        counter = [event for event in events if event["name"] == f"{name} [GB/s]"]
        assert [event["ts"] for event in counter] == sorted(event["ts"] for event in counter)
        assert counter[-1]["args"] == {"read": 0.0, "write": 0.0}
        for way in ("read", "write"):
            moved = sum(1e9 * one["args"][way] * (two["ts"] - one["ts"]) / 1e6 for one, two in pairwise(counter))
            assert moved == pytest.approx(link[f"{way}_bytes"], rel=1e-6)
    peak = max(event["args"]["used"] for event in events if event["name"] == "dram [GB used]")
    assert peak == pytest.approx(result.summary()["tiers"]["dram"]["peak_used_bytes"] / 1e9, rel=0.02)


def test_a_limit_takes_the_first_to_arrive_and_says_so(result: SimulationResult) -> None:
    trace = trace_of(result, limit=20)
    table = result.table("requests")
    first = {f"request {number}" for number in table["request_id"][np.argsort(table["arrived_at_s"])[:20]]}
    assert {event["name"] for event in trace["traceEvents"] if event.get("cat") == "request"} == first
    moved = [event for event in trace["traceEvents"] if event.get("cat") in {"read", "write"}]
    assert moved
    assert all(f"request {event['name'].split()[-1]}" in first for event in moved)
    assert trace["otherData"]["requests"] == "the first 20 of 150"
    with pytest.raises(ValueError, match="limit is 0"):
        trace_of(result, limit=0)


def test_requests_that_do_not_complete_are_there() -> None:
    tight = simulate(
        load_scenario("quickstart", overrides=["workload.synthetic.requests=60", "tiers.hbm.capacity=8 GB"])
    )
    assert tight.summary()["requests"]["rejected"] == 1
    events = trace_of(tight)["traceEvents"]
    rejected = [event for event in events if event["name"].endswith("rejected")]
    assert [event["ph"] for event in rejected] == ["i"]


def test_files_are_the_same_bytes_each_time_and_gzipped_by_name(result: SimulationResult, tmp_path: Path) -> None:
    plain, packed = tmp_path / "run.json", tmp_path / "run.json.gz"
    write_trace(result, plain)
    write_trace(result, packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    before = packed.read_bytes()
    write_trace(result, packed)
    assert packed.read_bytes() == before


def test_the_command_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    settings = [word for text in SMALL for word in ("--set", text)]
    assert cli.main(["run", "quickstart", *settings, "--perfetto", str(file), "--perfetto-limit", "10"]) == 0
    assert "of the first 10 of 150 requests" in capsys.readouterr().err
    assert json.loads(file.read_text(encoding="utf-8"))["otherData"]["scenario"] == "quickstart"
    assert cli.main(["run", "quickstart", *settings, "--perfetto", str(tmp_path / "run.txt")]) == 2
    assert "must end in .json" in capsys.readouterr().err
