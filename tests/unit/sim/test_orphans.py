"""Chunks behind a gap in their chain: counted by tier, whatever holds what is before them."""

import pytest
from hierarchy_kit import pool
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.build import simulate
from scenarios.loader import load_scenario
from sim.prefix_tree import KEY_BITS, PrefixTree
from sim.tiers.orphans import orphaned_chunks
from sim.tiers.tier import Tier


def holding(name: str, index: int, *keys: int) -> Tier:
    return pool(name, index, 99, keys)


def tree(*prompts: list[int]) -> tuple[PrefixTree, dict[int, int]]:
    """The tree of some prompts, and the key that each id has got."""
    prefixes = PrefixTree()
    keys: dict[int, int] = {}
    for ids in prompts:
        keys |= dict(zip(ids, prefixes.chain(ids), strict=True))
    return prefixes, keys


def test_what_follows_a_gap_is_orphaned_also_in_a_fork() -> None:
    prefixes, k = tree([1, 2, 3, 4], [1, 2, 8, 9])
    dram = holding("dram", 1, k[1], k[3], k[4], k[8], k[9])
    assert orphaned_chunks({"dram": [dram]}, prefixes) == {"dram": 4}
    drive = holding("drive", 2, k[2])  # closes the gap
    assert orphaned_chunks({"dram": [dram], "drive": [drive]}, prefixes) == {"dram": 0, "drive": 0}
    headless = holding("drive", 2, k[2], k[9])
    assert orphaned_chunks({"drive": [headless]}, prefixes) == {"drive": 2}


def test_views_of_replicas_are_chunks_all_the_same() -> None:
    prefixes, k = tree([1, 2, 3])
    view = 5 << KEY_BITS
    drive = holding("drive", 2, k[1] + view, k[3] + view)
    assert orphaned_chunks({"drive": [drive]}, prefixes) == {"drive": 1}
    assert orphaned_chunks({"dram": [holding("dram", 1, k[2])], "drive": [drive]}, prefixes)["drive"] == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=6),
    st.data(),
)
def test_orphans_are_those_with_an_ancestor_that_nobody_has(words: list[list[int]], data: st.DataObject) -> None:
    # Prompts over an alphabet of three: an id is its whole prefix, written as a number.
    prompts = [[int("".join(map(str, word[: n + 1]))) for n in range(len(word))] for word in words]
    prefixes, k = tree(*prompts)
    ids = sorted(k)
    upper = data.draw(st.sets(st.sampled_from(ids)))
    lower = data.draw(st.sets(st.sampled_from(ids)))
    tiers = {
        "dram": [holding("dram", 1, *(k[i] for i in upper))],
        "drive": [holding("drive", 2, *(k[i] for i in lower))],
    }

    def is_orphan(number: int) -> bool:
        before = str(number)[:-1]
        return bool(before) and (int(before) not in upper | lower or is_orphan(int(before)))

    expected = {"dram": sum(map(is_orphan, upper)), "drive": sum(map(is_orphan, lower))}
    assert orphaned_chunks(tiers, prefixes) == expected


@pytest.mark.parametrize(("structure", "orphans"), [("hashmap", True), ("leaf_constrained", False)])
def test_a_tree_leaves_no_orphans_where_a_map_does(structure: str, orphans: bool) -> None:
    # A queue forgets the heads of chains first. With one tier below an HBM that holds little, nothing else has them.
    dram = f"{{device: ddr5, capacity: 20 GB, eviction: fifo, structure: {structure}}}"
    tiers = f"tiers={{hbm: {{capacity: 4 GB}}, dram: {dram}}}"
    scenario = load_scenario("quickstart", overrides=[tiers, "workload.synthetic.requests=300"])
    orphaned_bytes = simulate(scenario).summary()["tiers"]["dram"]["orphaned_bytes"]
    assert (orphaned_bytes > 0.0) is orphans
