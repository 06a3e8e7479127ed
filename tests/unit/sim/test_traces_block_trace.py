"""Block traces: what stands in them, what they refuse, and that nobody takes them for request traces."""

import os
from pathlib import Path

import pytest

from models.errors import TraceError
from sim.traces import open_trace
from sim.traces.bad_lines import BadLines
from sim.traces.block_trace import BlockAccess, open_block_trace

SHARED = (Path(__file__).parents[3] / os.environ.get("KVTIER_SHARED", "../shared")).resolve()


def write(tmp_path, *lines):
    path = tmp_path / "blocks.csv"
    path.write_text("\n".join(lines))
    return path


def test_accesses_come_in_the_order_of_the_file(tmp_path):
    trace = open_block_trace(write(tmp_path, "version,time,op,size,lbn", "1,20,2a,512,42932745", "1,10,28,1024,7"))
    expected = [
        BlockAccess(at_s=20.0, key=42932745, size_bytes=512, op="2a"),
        BlockAccess(at_s=10.0, key=7, size_bytes=1024, op="28"),
    ]
    assert list(trace.accesses()) == expected
    assert list(trace.accesses()) == expected
    assert trace.name == "blocks.csv"


def test_other_names_and_no_operation(tmp_path):
    trace = open_block_trace(write(tmp_path, "obj_id,obj_size,timestamp", "3,4096,0.5"))
    assert list(trace.accesses()) == [BlockAccess(at_s=0.5, key=3, size_bytes=4096, op="")]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("x,1,2", "time is 'x'; must be a number of seconds"),
        ("1,-1,2", "size is '-1'; must be a whole number from 0 to 2**63 - 1"),
        ("1,1,2.5", "key is '2.5'"),
        (f"1,1,{2**63}", f"key is '{2**63}'"),
        ("1,1", "has 2 fields"),
    ],
)
def test_malformed_accesses(tmp_path, row, problem):
    path = write(tmp_path, "time,size,lbn", "1,1,1", row)
    with pytest.raises(TraceError) as caught:
        list(open_block_trace(path).accesses())
    assert str(caught.value).startswith(f"{path}:3: {problem}")
    bad_lines = BadLines(skip=True)
    assert len(list(open_block_trace(path, bad_lines=bad_lines).accesses())) == 1
    assert bad_lines.count == 1


def test_a_trace_without_accesses(tmp_path):
    with pytest.raises(TraceError, match="the file holds no accesses"):
        list(open_block_trace(write(tmp_path, "time,size,lbn")).accesses())


def test_requests_and_accesses_are_not_confused(tmp_path):
    path = write(tmp_path, "version,time,op,size,lbn", "1,20,2a,512,42932745")
    with pytest.raises(
        TraceError, match=r"is a block trace, which holds accesses to a cache and no requests: `kvtier mrc"
    ):
        open_trace(path)
    requests = write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03,4808,10")
    with pytest.raises(TraceError, match=":1: not a block trace; it is a CSV with a header and columns for time or"):
        open_block_trace(requests)


def test_the_cloud_physics_trace_reads_whole():
    path = SHARED / "traces" / "libcachesim" / "cloudPhysicsIO.csv.gz"
    if not path.is_file():
        pytest.skip("no libCacheSim trace: set KVTIER_SHARED")
    accesses = list(open_block_trace(path).accesses())
    assert (len(accesses), len({access.key for access in accesses})) == (113_872, 48_974)
    assert accesses[-1].at_s - accesses[0].at_s == 7200
