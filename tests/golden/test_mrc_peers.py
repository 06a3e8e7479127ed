"""`kvtier mrc` against the hit ratios of libcachesim and kvcache-simulator, as a user would ask for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.cli import main

TRACES = {"conversation": "conv", "synthetic": "synth"}  # our name: kvcache-simulator's
LIBCACHESIM = {"LRU": "lru", "FIFO": "fifo", "Belady": "belady", "SIEVE": "sieve"}
KVCACHE_SIMULATOR = {"lru": "lru", "fifo": "fifo", "optimal": "belady"}


@pytest.fixture(scope="module")
def shared(conversation_trace: Path) -> Path:
    folder = conversation_trace.parents[2]
    if not (folder / "measured" / "peer_hit_ratios.json").is_file():
        pytest.skip("no measured/peer_hit_ratios.json: set KVTIER_SHARED")
    return folder


@pytest.fixture(scope="module")
def peers(shared: Path) -> Any:
    return json.loads((shared / "measured" / "peer_hit_ratios.json").read_text())


def curves(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[tuple[str, int], Any]:
    assert main(["mrc", *map(str, arguments), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return {(point["policy"], point["capacity_blocks"]): point for point in document["curves"]}


@pytest.mark.parametrize("trace", TRACES)
def test_plain_equals_libcachesim(trace: str, shared: Path, peers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = {
        (LIBCACHESIM[point["policy"]], point["size"]): point["hit_ratio"]
        for point in peers["libcachesim"][trace]
        if point["policy"] in LIBCACHESIM
    }
    file = shared / "traces" / "mooncake" / f"{trace}_trace.jsonl.gz"
    sizes = "1000,10000,50000,100000"
    ours = curves(capsys, file, "--policies", ",".join(LIBCACHESIM.values()), "--capacities", sizes, "--plain")
    assert len(theirs) == 4 * len(LIBCACHESIM)
    assert {point: round(ours[point]["hit_ratio"], 6) for point in ours} == theirs


@pytest.mark.parametrize("trace", TRACES)
def test_prefix_mode_equals_kvcache_simulator(
    trace: str, shared: Path, peers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = peers["kvcache_simulator"][TRACES[trace]]
    theirs = {
        (KVCACHE_SIMULATOR[name], result["cacheBlocks"]): (result["hitTokens"], result["hitRate"])
        for point in peer["points"]
        for name, result in point["results"].items()
    }
    assert len(theirs) >= 3 * 13
    file = shared / "traces" / "mooncake" / f"{trace}_trace.jsonl.gz"
    # As many GiB as the peer was asked for, of the model that it was asked for.
    sizes = ",".join(f"{point['gib']:g}GiB" for point in peer["points"])
    ours = curves(capsys, file, "--capacities", sizes, "--llm", peer["metadata"]["modelId"])
    assert {point: (ours[point]["hit_tokens"], ours[point]["hit_ratio"]) for point in ours} == theirs
