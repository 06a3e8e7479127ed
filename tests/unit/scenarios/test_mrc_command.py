"""`kvtier mrc`: what it prints, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios import cli
from scenarios.commands import progress

# Two turns of a conversation around another prompt; the second turn ends in a partial block.
ROWS = [(0, [1, 2, 3], 1536), (1000, [4, 5, 6], 1536), (2000, [1, 2, 3, 7], 2000), (3000, [4, 5, 6], 1536)]
OBJECTS = "time,obj_id,obj_size\n1,7,100\n2,8,1\n3,7,100\n4,9,1\n5,8,1\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = [{"timestamp": t, "input_length": n, "output_length": 1, "hash_ids": ids} for t, ids, n in ROWS]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def objects(tmp_path: Path) -> str:
    path = tmp_path / "objects.csv"
    path.write_text(OBJECTS)
    return str(path)


@pytest.fixture
def mrc(trace: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run `kvtier mrc TRACE ... --json`; return the document."""

    def run(*arguments: str, trace: str = trace) -> Any:
        assert cli.main(["mrc", trace, *arguments, "--json"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out)

    return run


def hits(document: Any) -> dict[tuple[str, int], tuple[int, int | None]]:
    return {(p["policy"], p["capacity_blocks"]): (p["hit_blocks"], p["hit_tokens"]) for p in document["curves"]}


def test_prefix_aware_by_hand(mrc: Callable[..., Any]) -> None:
    document = mrc("--policies", "lru,belady", "--capacities", "7,4", "--warmup", "0")
    # Room for 7: all that comes back hits. Room for 4: LRU lost what came back but the head; the optimum keeps three
    # blocks of one of the two, and the head of the other.
    assert hits(document) == {
        ("lru", 4): (1, 512),
        ("lru", 7): (6, 6 * 512),
        ("belady", 4): (4, 4 * 512),
        ("belady", 7): (6, 6 * 512),
    }
    assert document["mode"] == "prefix"
    assert (document["requests"], document["counted_requests"], document["block_references"]) == (4, 4, 13)
    assert [point["hit_ratio"] for point in document["curves"]] == [p["hit_ratio_tokens"] for p in document["curves"]]
    assert document["curves"][1]["hit_ratio"] == pytest.approx(1.0 - document["curves"][1]["miss_ratio"])


def test_half_of_the_requests_warm_unless_all_count(mrc: Callable[..., Any]) -> None:
    assert mrc("--capacities", "7")["counted_requests"] == 2
    assert mrc("--capacities", "7", "--plain")["counted_requests"] == 4
    assert mrc("--capacities", "7", "--plain", "--warmup", "0.75")["counted_requests"] == 1


def test_plain_counts_blocks_and_the_partial_one_too(mrc: Callable[..., Any]) -> None:
    document = mrc("--policies", "lru", "--capacities", "6", "--plain")
    assert document["curves"][0]["hit_ratio"] == 3 / 13
    assert document["curves"][0]["structure"] == "plain"
    full = mrc("--policies", "lru", "--capacities", "6", "--plain", "--full-blocks")
    assert full["curves"][0]["hit_ratio"] == 6 / 12
    assert (document["partial_blocks"], full["partial_blocks"]) == ("counted", "left out")


def test_structure(mrc: Callable[..., Any]) -> None:
    default = mrc("--policies", "fifo,lru", "--capacities", "4")
    assert [point["structure"] for point in default["curves"]] == ["hashmap", "leaf_constrained"]
    leaves = mrc("--policies", "fifo", "--capacities", "4", "--structure", "leaf_constrained", "--warmup", "0")
    assert (
        hits(leaves)["fifo", 4][0] > hits(mrc("--policies", "fifo", "--capacities", "4", "--warmup", "0"))["fifo", 4][0]
    )


def test_bytes_are_those_of_the_model(mrc: Callable[..., Any]) -> None:
    # 512 tokens of Llama 3.1 8B: 2 x 32 layers x 8 heads x 128 elements of 2 bytes, 67.1 MB.
    document = mrc("--llm", "llama-3.1-8b", "--capacities", "300 MB, 5,67108864 B")
    assert document["block_bytes"] == 512 * 131072
    assert [p["capacity_blocks"] for p in document["curves"][:3]] == [1, 4, 5]
    assert document["curves"][1]["capacity_bytes"] == 4 * document["block_bytes"]
    halved = mrc("--llm", "llama-3.1-8b", "--kv-dtype", "fp8", "--capacities", "300MB")
    assert halved["curves"][0]["capacity_blocks"] == 8


def test_capacities_go_up_to_the_whole_trace_unless_given(mrc: Callable[..., Any]) -> None:
    document = mrc("--policies", "lru,lru")
    assert [point["capacity_blocks"] for point in document["curves"]] == [1, 3, 7]


def test_block_traces(mrc: Callable[..., Any], objects: str) -> None:
    document = mrc("--policies", "lru,belady", "--capacities", "2", "--plain", trace=objects)
    assert hits(document) == {("lru", 2): (1, None), ("belady", 2): (2, None)}
    assert document["curves"][0]["hit_ratio_bytes"] == 100 / 203
    assert document["curves"][0]["hit_ratio"] == 1 / 5
    assert document["block_tokens"] is None


def test_the_table(trace: str, objects: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mrc", trace, "--llm", "llama-3.1-8b", "--capacities", "4,7"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("trace.jsonl: hit ratio [% of prompt tokens], 2 of 4 requests counted\n")
    assert [line.split()[:4] for line in out.splitlines() if line.strip().startswith(("4", "7"))] == [
        ["4", "268.4", "MB", "14.48"],
        ["7", "469.8", "MB", "86.88"],
    ]
    assert "leaf_constrained  lru, belady\nhashmap           fifo\n" in out
    assert cli.main(["mrc", objects, "--plain", "--capacities", "2"]) == 0
    assert capsys.readouterr().out.startswith("objects.csv: hit ratio [% of objects], 5 of 5 accesses counted\n")


@pytest.mark.parametrize("name", ["curves.png", "curves.svg"])
def test_the_plot(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = tmp_path / name
    assert cli.main(["mrc", trace, "--plot", str(file), "--llm", "llama-3.1-8b"]) == 0
    assert file.stat().st_size > 5000
    assert f"saved to {file}" in capsys.readouterr().err


def test_progress_goes_to_stderr(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    assert cli.main(["mrc", trace, "--policies", "lru,sieve", "--capacities", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert "replayed for 2 points: 8 requests, 100%\n" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--policies", "seive"], "unknown eviction policy 'seive'; did you mean 'sieve'?"),
        (["--policies", "lru,"], "--policies: 'lru,' has an empty entry"),
        (
            ["--policies", "gdsf-kv"],
            "'gdsf-kv' needs the time to compute a chunk (a timed run), which is not known here",
        ),
        (["--policies", "no.such:Class"], "cannot import no.such"),
        (["--capacities", "0"], "--capacities: '0' blocks; a cache must have at least 1"),
        (["--capacities", "-3"], "--capacities: '-3' blocks; a cache must have at least 1"),
        (["--capacities", "64GB"], "--capacities: '64GB' is in bytes; say with --llm of which model"),
        (["--capacities", "1.5"], "'1.5' is neither a whole number of blocks nor has it a unit"),
        (["--capacities", "many"], "'many' is not a quantity"),
        (["--capacities", "1MB", "--llm", "llama-3.1-8b"], "'1MB' holds no block (512 tokens, 67.11 MB)"),
        (["--llm", "llama-3.1-9b"], "unknown llm 'llama-3.1-9b'; did you mean 'llama-3.1-8b'?"),
        (["--llm", "llama-3.1-8b", "--kv-dtype", "fp9"], "unknown kv dtype 'fp9'"),
        (["--kv-dtype", "fp8"], "--kv-dtype: say with --llm of which model"),
        (["--structure", "hash"], "unknown --structure 'hash'; did you mean 'hashmap'?"),
        (["--structure", "hashmap", "--plain"], "--structure: prefixes play no part with --plain"),
        (["--warmup", "1"], "--warmup is 1; must be a share"),
        (["--plot", "curves.gif"], "--plot curves.gif: the name must end in .png, .svg, .pdf"),
        (["--plot", "no/folder.png"], "--plot no/folder.png: there is no folder no"),
        (["--format", "mooncak"], "unknown trace format 'mooncak'"),
    ],
)
def test_bad_input_is_one_line(trace: str, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert cli.main(["mrc", trace, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err
    assert err.count("\n") == 1


def test_traces_that_do_not_fit_the_question(objects: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    for arguments, line in (
        ([str(azure)], "azure.csv: does not say which blocks its prompts share, so nothing in it can hit"),
        ([objects], "objects.csv: is a block trace, which has no prefixes: add --plain"),
        ([objects, "--plain", "--llm", "llama-3.1-8b"], "leave --llm out"),
        ([str(tmp_path / "none.jsonl")], "none.jsonl"),
    ):
        assert cli.main(["mrc", *arguments]) == 2
        err = capsys.readouterr().err
        assert line in err
        assert err.count("\n") == 1
