import math
import os
from pathlib import Path

import pytest
from trace_samples import HASH64C, lines

from models.errors import TraceError
from sim.traces import BadLines, open_trace
from sim.traces.statistics import trace_statistics

SHARED = Path(os.environ.get("KVTIER_SHARED", Path(__file__).parents[3].parent / "shared"))


def write(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "hash64c.jsonl"
    path.write_text(lines((HASH64C[0], *rows)))
    return path


def row(t: float, keep: int, new: list[list[int]], session: int = 0, **changes: object) -> dict[str, object]:
    blocks = keep + sum(run[1] for run in new)
    tokens = {"in_tokens_est": 16 * blocks + 3, "out_tokens_est": 9}
    return {"session": session, "t": t, **tokens, "new": new, "keep": keep, "nb": blocks, **changes}


def test_sessions_of_the_sample_by_hand(tmp_path):
    trace = open_trace(write(tmp_path, *HASH64C[1:]))
    assert (trace.block_tokens, trace.has_prefixes, trace.starts_known) == (16, True, True)
    assert [(session.session_id, session.starts_at_s, session.requests) for session in trace.sessions()] == [
        (1, 0.0, 1),
        (0, 20.0, 2),
    ]
    records = list(trace.records())
    assert [(record.arrived_at_s, record.block_ids) for record in records] == [
        (0.0, [0]),
        (20.0, [0, 1]),
        (22.5, [0, 1, 2, 3]),
    ]
    assert records[2].think_s == 2.5
    assert math.isnan(records[1].think_s)
    assert [record.output_tokens for record in records] == [3, 7, 0]


def test_provider_counts_and_blocks_that_a_prompt_has_no_room_for(tmp_path):
    # 40 tokens in 3 blocks of 64 characters: the third has no room for its 16 tokens.
    counts = {"in_tokens": 40, "out_tokens": 5}
    dense = {"session": 0, "t": 1, "keep": 0, "new": [[0, 3]], "nb": 3, **counts}
    path = write(tmp_path, dense, {**dense, "t": 2, "keep": 3, "new": [], "in_tokens": 49})
    assert [record.block_ids for record in open_trace(path).records()] == [[0, 1], [0, 1, 2]]
    trace = open_trace(path, block_tokens=13)
    assert trace.block_tokens == 13
    assert [len(record.block_ids) for record in trace.records()] == [3, 3]


def test_rows_by_length_are_read_where_a_session_is_one_chain(tmp_path):
    # Encoded as 2, 6, 4, 7 blocks; sorted by length the row of 4 keeps more than the one before it has.
    rows = [row(1, 0, [[0, 2]]), row(2, 4, []), row(3, 2, [[2, 4]]), row(4, 4, [[4, 3]])]
    records = list(open_trace(write(tmp_path, *rows)).records())
    assert [record.block_ids for record in records] == [list(range(count)) for count in (2, 4, 6, 7)]


def test_rows_out_of_order_are_malformed_where_a_session_branches(tmp_path):
    rows = [row(1, 0, [[0, 2]]), row(2, 4, []), row(3, 2, [[2, 4]]), row(4, 1, [[8, 1]])]
    path = write(tmp_path, *rows, row(5, 0, [[0, 1]], session=1))
    with pytest.raises(TraceError, match=r":3: keep is 4, but the request before it has 2 blocks"):
        list(open_trace(path).records())
    bad_lines = BadLines(skip=True)
    records = list(open_trace(path, bad_lines=bad_lines).records())
    assert [record.session_id for record in records] == [0, 1]
    assert bad_lines.count == 3
    assert "follows a malformed line" in str(bad_lines.first[1])


def test_a_branching_session_in_order(tmp_path):
    rows = [row(1, 0, [[0, 3]]), row(2, 1, [[3, 2]]), row(3, 1, [[1, 2]]), row(4, 2, [[9, 1]])]
    records = list(open_trace(write(tmp_path, *rows)).records())
    assert [record.block_ids for record in records] == [[0, 1, 2], [0, 3, 4], [0, 1, 2], [0, 1, 9]]


def test_a_malformed_line_breaks_a_branching_session_but_no_chain(tmp_path):
    bad = {"session": "x"}
    chain = [row(1, 0, [[0, 2]]), bad, row(3, 2, [[2, 1]])]
    bad_lines = BadLines(skip=True)
    assert len(list(open_trace(write(tmp_path, *chain), bad_lines=bad_lines).records())) == 2
    assert bad_lines.count == 1
    branch = [row(1, 0, [[0, 2]]), row(2, 1, [[7, 1]]), bad, row(3, 2, [[2, 1]])]
    bad_lines = BadLines(skip=True)
    assert len(list(open_trace(write(tmp_path, *branch), bad_lines=bad_lines).records())) == 2
    assert bad_lines.count == 2


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (row(3, 0, [[0, 1]], session=-1), "session is -1; must be at least 0"),
        (row(-3, 0, [[0, 1]]), "t is -3; must be from 0"),
        (row(3, 0, [[0, 1]], in_tokens_est=0), "in_tokens_est is 0; must be at least 1"),
        (row(3, 0, [[0, 9]], in_tokens_est=8), "9 blocks of 64 characters are more than the 8 tokens"),
        (row(3, 0, [[0, 1]], out_tokens_est=None), "out_tokens_est is null"),
        (row(3, 0, [[0, 1]], nb=2), "nb is 2, but keep and new make 1 blocks"),
        ({"session": 0, "keep": 0, "new": []}, "key 'in_tokens_est' is missing"),
    ],
)
def test_malformed_rows(tmp_path, bad, problem):
    path = write(tmp_path, row(1, 0, [[0, 1]]), bad)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path).records())
    assert str(caught.value).startswith(f"{path}:3: ")
    assert problem in str(caught.value)


def test_a_session_of_malformed_rows_alone_is_left_out(tmp_path):
    path = write(tmp_path, row(1, 0, [[0, 1]]), row(2, 0, [[0, 1]], session=1, in_tokens_est=0))
    assert [found.session_id for found in open_trace(path, bad_lines=BadLines(skip=True)).sessions()] == [0]


def test_a_file_without_requests(tmp_path):
    with pytest.raises(TraceError, match="the file holds no requests"):
        list(open_trace(write(tmp_path)).records())


def test_the_staged_miniswe_sessions_have_the_published_figures():
    path = SHARED / "traces" / "lmcache-agent-trace" / "miniswe_hash64c.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no miniswe trace under {SHARED}; set KVTIER_SHARED")
    trace = open_trace(path)
    figures = trace_statistics(trace)
    assert (figures["requests"], figures["sessions"]) == (402, 20)
    assert figures["infinite_cache_hit_ratio_blocks"] == pytest.approx(0.937, abs=0.0005)
    assert [figures["prompt_tokens"][which] for which in ("p50", "p90")] == pytest.approx([3792, 12298], abs=1)
    assert [figures["output_tokens"][which] for which in ("p50", "p90")] == pytest.approx([98, 191], abs=1)
    assert max(session.requests for session in trace.sessions()) == 30
