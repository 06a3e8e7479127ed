"""Traces of every format written in Mooncake's, and read back."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from row_trace_samples import ROW_SAMPLES
from trace_samples import SAMPLES

from models.errors import InputError, TraceError
from sim.traces import NO_ID, READERS, Trace, TraceRecord, open_trace
from sim.traces.convert import MooncakeLines
from sim.traces.sample import sampled
from sim.traces.sessions import Session, SessionTrace, Stream
from sim.traces.statistics import trace_statistics

ALL_SAMPLES = {**SAMPLES, **ROW_SAMPLES}


@dataclass
class ListTrace:
    rows: list[TraceRecord]
    name: str = "list"
    block_tokens: int = 10
    has_prefixes: bool = True

    def records(self) -> Iterator[TraceRecord]:
        return iter(self.rows)


def read_back(lines: MooncakeLines, folder: Path, **options: object) -> Trace:
    path = folder / "converted.jsonl"
    path.write_bytes(b"".join(lines))
    return open_trace(path, "mooncake", **options)


def by_stream(trace: Trace) -> list[tuple[int, TraceRecord]]:
    """Return the records by arrival; streams are numbered as they appear, and a sub-agent is one of its own."""
    if not isinstance(trace, SessionTrace):
        return [(record.session_id, record) for record in trace.records()]
    rows = []
    for session in trace.sessions():
        for number, stream in enumerate(session.streams):
            for record in stream.turns():
                record.arrived_at_s += session.starts_at_s or 0.0
                rows.append((session.session_id * 1000 + number, record))
    return sorted(rows, key=lambda row: row[1].arrived_at_s)


def renumbered(numbers: list[int]) -> list[int]:
    seen: dict[int, int] = {}
    return [number if number == NO_ID else seen.setdefault(number, len(seen)) for number in numbers]


def test_every_format_has_a_sample():
    assert sorted(ALL_SAMPLES) == READERS.names()


@pytest.mark.parametrize("format", ALL_SAMPLES)
def test_what_is_converted_reads_back_the_same(tmp_path, format):
    source = tmp_path / "source"
    source.write_text(ALL_SAMPLES[format])
    trace = open_trace(source, format)
    lines = MooncakeLines(trace=trace)
    back = read_back(lines, tmp_path, block_tokens=trace.block_tokens if trace.has_prefixes else None)
    wanted, found = by_stream(trace), by_stream(back)
    assert back.has_prefixes == trace.has_prefixes
    assert renumbered([number for number, _ in found]) == renumbered([number for number, _ in wanted])
    assert len(found) == len(wanted) == lines.losses.requests
    pauses = unnamed = 0
    named = {block for _, record in wanted for block in (*record.block_ids, record.partial_block_id)}
    begun: set[int] = set()
    for (number, before), (_, after) in zip(wanted, found, strict=True):
        assert after.arrived_at_s == pytest.approx(before.arrived_at_s, abs=1e-9)
        assert (after.prompt_tokens, after.output_tokens) == (before.prompt_tokens, before.output_tokens)
        full = len(before.block_ids)
        assert after.block_ids[:full] == before.block_ids
        if before.partial_block_id != NO_ID:
            assert after.partial_block_id == before.partial_block_id
        elif trace.has_prefixes:
            # What the trace does not name is no block of anybody.
            added = {*after.block_ids[full:], after.partial_block_id} - {NO_ID}
            assert not added & named
            named |= added
            unnamed += len(added)
        if math.isnan(before.think_s) or number == NO_ID or number not in begun:
            assert math.isnan(after.think_s)
            pauses += not math.isnan(before.think_s)
        else:
            assert after.think_s == pytest.approx(before.think_s, abs=1e-9)
        begun.add(number)
    assert (lines.losses.lone_pauses, lines.losses.unnamed_blocks) == (pauses, unnamed)


def test_what_cannot_be_kept_is_named(tmp_path):
    source = tmp_path / "source"
    source.write_text(SAMPLES["kv-cache-tester-delta"])
    lines = MooncakeLines(trace=open_trace(source))
    rows = [json.loads(line) for line in lines]
    said = "; ".join(lines.losses.sentences())
    assert "no sub-agents: 1 became" in said
    assert "does not say when its sessions start" in said
    assert "blocks are of 64 tokens" in said
    assert [row["session_id"] for row in rows] == [0, 1, "0/1", "0/1", 0]
    mooncake = MooncakeLines(trace=ListTrace([TraceRecord(0.0, 512, 1, [3])], block_tokens=512))
    assert list(mooncake) == [b'{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [3]}\n']
    assert list(mooncake.losses.sentences()) == []


def test_blocks_merge_into_larger_ones(tmp_path):
    rows = [
        TraceRecord(0.0, 45, 1, [1, 2, 3, 4], NO_ID, 5),  # 20 + 20 + 5
        TraceRecord(1.0, 50, 1, [1, 2, 3, 4, 6]),  # the last 10 of 20 tokens: partial, and known
        TraceRecord(2.0, 55, 1, [1, 2, 3, 4, 6], NO_ID, 7),
        TraceRecord(3.0, 55, 1, [1, 2, 3, 4, 6]),  # the last 5 tokens have no name
        TraceRecord(4.0, 40, 1, [1, 2, 3, 4]),
    ]
    lines = MooncakeLines(trace=ListTrace(rows), block_tokens=20)
    records = list(read_back(lines, tmp_path, block_tokens=20).records())
    assert [record.block_ids for record in records] == [[2, 4]] * 5
    partial = [record.partial_block_id for record in records]
    assert partial == [5, 6, 7, 2**62 - 1, NO_ID]
    assert lines.losses.unnamed_blocks == 1


@pytest.mark.parametrize("block_tokens", [5, 15, 9])
def test_blocks_that_do_not_merge_are_refused(block_tokens):
    with pytest.raises(InputError, match=f"block_tokens is {block_tokens}; must be a multiple of the trace's 10"):
        MooncakeLines(trace=ListTrace([]), block_tokens=block_tokens)


def test_ids_that_leave_no_room_are_refused():
    rows = [TraceRecord(0.0, 15, 1, [1]), TraceRecord(1.0, 10, 1, [2**62 - 1])]
    with pytest.raises(TraceError, match="leaves too few"):
        list(MooncakeLines(trace=ListTrace(rows)))


def test_times_are_written_as_short_as_they_read_back():
    times_s = (0.0, 3.0, 0.1, 0.0001, 1234.567, 1e-7, 1234.567891, 0.1 + 0.2)
    rows = [TraceRecord(time_s, 10, 1, [1]) for time_s in times_s]
    stamps = [json.loads(line)["timestamp"] for line in MooncakeLines(trace=ListTrace(rows))]
    assert stamps[:5] == [0, 3000, 100, 0.1, 1234567]
    assert [type(stamp) for stamp in stamps[:5]] == [int, int, int, float, int]
    assert [stamp / 1000 for stamp in stamps] == list(times_s)


class Agents:
    """Sessions of ten requests over their own blocks; session 3 has a sub-agent."""

    name = "agents"
    block_tokens = 10
    has_prefixes = True
    starts_known = False

    def sessions(self) -> Iterator[Session]:
        for number in range(40):
            made = [Stream(session_id=number, turns=self.turns(number))]
            if number == 3:
                made.append(Stream(session_id=number, turns=self.turns(100), after_turn=0))
            yield Session(session_id=number, starts_at_s=None, streams=tuple(made), requests=10 * len(made))

    def records(self) -> Iterator[TraceRecord]:
        raise AssertionError("sessions are asked for")

    @staticmethod
    def turns(number: int) -> Callable[[], Iterator[TraceRecord]]:
        first = number * 100
        return lambda: (TraceRecord(step, 10 * step + 10, 1, [*range(first, first + step + 1)]) for step in range(10))


def test_samples_are_whole_sessions():
    part, taken = sampled(Agents(), np.random.default_rng(0), sessions=7)
    assert (taken.sessions, taken.of_sessions, taken.of_requests) == (7, 40, 410)
    sessions = list(part.sessions())
    assert len(sessions) == 7
    assert taken.requests == sum(session.requests for session in sessions)
    assert [session.session_id for session in part.sessions()] == [session.session_id for session in sessions]
    other, _ = sampled(Agents(), np.random.default_rng(1), sessions=7)
    assert [session.session_id for session in other.sessions()] != [session.session_id for session in sessions]
    whole, taken = sampled(Agents(), np.random.default_rng(0), share=1.0)
    assert (len(list(whole.sessions())), taken.requests) == (40, 410)


@pytest.mark.parametrize("wanted", [{"sessions": 41}, {"share": 0.001}])
def test_samples_of_nothing_or_too_much_are_refused(wanted):
    with pytest.raises(InputError, match="must be from 1 to the 40"):
        sampled(Agents(), np.random.default_rng(0), **wanted)


def test_a_sample_of_rows_keeps_what_they_say():
    rows = [TraceRecord(float(step), 20, 1, [step % 5, 5 + step % 5], step % 5 + 7, NO_ID) for step in range(50)]
    part, _ = sampled(ListTrace(rows), np.random.default_rng(0), share=0.4)
    records = list(part.records())
    assert len(records) == 20
    assert len({record.session_id for record in records}) == 2
    assert all(record is rows[int(record.arrived_at_s)] for record in records)
    assert all(math.isnan(record.think_s) for record in records)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_of_sessions_keeps_the_hit_ratio(conversation_trace, seed):
    trace = open_trace(conversation_trace)
    part, taken = sampled(trace, np.random.default_rng(seed), share=0.3)
    figures = trace_statistics(part)
    assert taken.sessions == 2212
    # .3734 of the whole. Over ten other seeds the mean is .373 and the standard deviation .009; a third of the rows,
    # drawn one by one, has .19.
    assert figures["full_blocks_only"]["infinite_cache_hit_ratio_tokens"] == pytest.approx(0.3734, abs=0.027)
    assert figures["rate_requests_per_s"] == pytest.approx(3.40 * taken.requests / 12_031, rel=0.01)
    assert figures["session_figures"]["turns"]["mean"] == pytest.approx(1.63, abs=0.1)
