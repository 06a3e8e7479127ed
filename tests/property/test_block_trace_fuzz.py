"""Whatever stands in a block trace, reading it ends with accesses or with one TraceError of one line."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from damage import mutated
from hypothesis import given

from models.errors import TraceError
from sim.traces.block_trace import open_block_trace

BLOCKS = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,512,42932746\n"


def check(content: bytes, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        try:
            read(path)
        except TraceError as error:
            text = str(error)
            assert text.startswith(str(path))
            assert "\n" not in text


@given(mutated(BLOCKS))
def test_mutated_block_traces(content):
    check(content, lambda path: list(open_block_trace(path).accesses()))
