"""Each way to place, promote, admit, hold back and encode KV: a run that it must win, and one that it must lose.

A chunk is 32 tokens and takes 32 ms to compute; HBM holds one prompt of four chunks unless a run says otherwise. The
drive moves a chunk in 21 ms at 200 MB/s. What counts is the mean time to first token, or what was written to the drive.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from engine_kit import Row, Rows, made_up_cost, scenario, serve

from sim.policies.base import ADMISSION, PLACEMENT

CHUNK_BYTES = 32 * 131_072
COST = made_up_cost(fixed_s=0.001, dense_compute_s_per_token=0.001)
TWO = {"cluster": {"replicas": 2, "replicas_per_node": 2}}

Summary = dict[str, Any]


def prompt(at_s: float, first: int, chunks: int = 4, replica: int = 0) -> Row:
    return Row(at_s, 32 * chunks + 16, 1, range(first, first + chunks), replica)


def in_turn(contexts: int, times: int, begin_s: float = 0.0) -> list[Row]:
    """So many contexts, each prompted so often, one after another, a second apart."""
    return [prompt(begin_s + i, 1000 * (i % contexts)) for i in range(contexts * times)]


def hot_among_cold(colds: int, chunks: int = 4) -> list[Row]:
    """One context again and again, and after each time a context that is never seen again."""
    pairs = ([prompt(2 * i, 0, chunks), prompt(2 * i + 1, 1000 * (i + 1))] for i in range(colds))
    return [row for pair in pairs for row in pair]


def drive(chunks: int = 99, **keys: Any) -> dict[str, Any]:
    return {"nvme": {"device": "nvme-gen4", "capacity": chunks * CHUNK_BYTES} | keys}


def memory(chunks: int, **keys: Any) -> dict[str, Any]:
    return {"dram": {"device": "ddr5", "capacity": chunks * CHUNK_BYTES} | keys}


def run(
    rows: Sequence[Row], tiers: dict[str, Any], *, hbm_chunks: int = 5, mb_per_s: float = 200.0, **sections: Any
) -> Summary:
    if "nvme" in tiers:
        sections["links"] = {"nvme": {"bandwidth": mb_per_s * 1e6}}
    setup = scenario(hbm_blocks=2 * hbm_chunks + 2, tiers=tiers, **sections)
    return serve(setup, Rows(rows), COST).summary()


def ttft_s(summary: Summary) -> float:
    return float(summary["ttft_s"]["mean"])


def written(summary: Summary) -> float:
    """Chunks written to the drive."""
    return float(summary["tiers"]["nvme"]["write_bytes"]) / CHUNK_BYTES


class Choice(NamedTuple):
    """A run of the same rows with a choice and without it."""

    rows: list[Row]
    chosen: dict[str, Any]
    otherwise: dict[str, Any]
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def both(self) -> tuple[Summary, Summary]:
        return run(self.rows, self.chosen, **self.more), run(self.rows, self.otherwise, **self.more)


SELECTIVE = drive(6, placement="write-through-selective"), drive(6)
TINY_FOR = {"admission": "tinylfu"}
MIN_200 = {"admission": {"min-prefix": {"min_tokens": 200}}}
OLD_FAVOURITES = in_turn(2, 6) + [row._replace(chunks=[k + 9000 for k in row.chunks]) for row in in_turn(2, 6, 20.0)]
SHORT_AND_LONG = [
    row
    for i in range(8)
    for row in (prompt(3 * i, 0, 8), prompt(3 * i + 1, 1000 * i + 1000, 3), prompt(3 * i + 2, 1000 * i + 1500, 3))
]
ONE_READ_EACH = [prompt(i, 1000 * i) for i in range(1, 13)] + [
    row
    for i in range(6)
    for row in (
        prompt(20 + 3 * i, 0),
        prompt(21 + 3 * i, 1000 * (2 * i + 1)),
        prompt(22 + 3 * i, 1000 * (2 * i + 2)),
    )
]
"""A context that is read again and again, and between two of its reads two others, which are read once."""
BURST = [prompt(10, 1000 * i) for i in range(1, 7)]
WAITED_FOR = [prompt(0, 0), prompt(0, 1000), prompt(20, 1000, replica=1)]


def encoded(kind: str, mb_per_s: float, **keys: Any) -> dict[str, Any]:
    rate = mb_per_s * 1e6
    return drive(encoding={"format": kind, "encode_bandwidth": rate, "decode_bandwidth": rate} | keys)


def promoted(how: str, chunks: int) -> dict[str, Any]:
    return memory(chunks, placement="none", promotion=how) | drive()


def stored_and_promoted(how: str) -> dict[str, Any]:
    return memory(8, placement="write-through", promotion=how) | drive()


def exclusive(tier: str) -> tuple[dict[str, Any], dict[str, Any]]:
    make = {"dram": lambda **keys: memory(8, promotion="never", **keys), "nvme": lambda **keys: drive(20, **keys)}[tier]
    return make(placement="write-back", inclusion="exclusive"), make(placement="write-back")


QUICKER = {
    "selective placement keeps what is used once out": Choice(hot_among_cold(12), *SELECTIVE),
    "write-through does not let HBM wait": Choice(
        [prompt(i, 1000 * i) for i in range(12)], drive(), drive(placement="write-back"), {"mb_per_s": 40}
    ),
    "write-through is there at the second use": Choice(in_turn(6, 2), drive(), SELECTIVE[0]),
    "no placement spares a synchronous store": Choice(
        in_turn(12, 1), drive(placement="none"), drive(), {"transfer": {"store": "sync"}, "mb_per_s": 40}
    ),
    "write-through serves what comes again": Choice(in_turn(3, 4), drive(), drive(placement="none")),
    "write-back serves what comes again": Choice(in_turn(3, 4), drive(placement="write-back"), drive(placement="none")),
    "promotion serves the third use from memory": Choice(in_turn(4, 3), promoted("always", 40), promoted("never", 40)),
    "promotion at once is sooner than at the second touch": Choice(
        in_turn(4, 3), promoted("always", 40), promoted("second-touch", 40)
    ),
    "promotion at the second touch is better than none": Choice(
        in_turn(4, 5), promoted("second-touch", 40), promoted("never", 40)
    ),
    "promotion at the second touch keeps single reads out": Choice(
        ONE_READ_EACH, promoted("second-touch", 8), promoted("always", 8)
    ),
    "no promotion leaves memory to what was stored there": Choice(
        ONE_READ_EACH, stored_and_promoted("never"), stored_and_promoted("always")
    ),
    "exclusive tiers hold more together": Choice(in_turn(3, 5), *exclusive("dram")),
    "inclusive tiers do not write back again": Choice(in_turn(3, 5), *reversed(exclusive("nvme"))),
    "the frequency filter keeps what is used once out": Choice(
        hot_among_cold(12), drive(6, admission="frequency"), drive(6)
    ),
    "no frequency filter is there at the second use": Choice(in_turn(6, 2), drive(), drive(admission="frequency")),
    "a longer window remembers": Choice(
        hot_among_cold(12), drive(6, admission="frequency"), drive(6, admission={"frequency": {"window_s": 1.0}})
    ),
    "tinylfu keeps a part of a loop": Choice(in_turn(4, 6), drive(10, **TINY_FOR), drive(10)),
    "no tinylfu takes to new favourites at once": Choice(OLD_FAVOURITES, drive(8), drive(8, **TINY_FOR)),
    "tinylfu that ages takes to new favourites": Choice(
        OLD_FAVOURITES, drive(8, admission={"tinylfu": {"samples_per_chunk": 2}}), drive(8, **TINY_FOR)
    ),
    "a minimum prefix keeps room for long ones": Choice(
        SHORT_AND_LONG, drive(9, **MIN_200), drive(9), {"hbm_chunks": 9}
    ),
    "no minimum prefix serves short ones": Choice(in_turn(3, 4), drive(), drive(**MIN_200)),
    "break-even stays away from a slow drive": Choice(
        in_turn(3, 4), drive(admission="break-even"), drive(), {"mb_per_s": 80}
    ),
    # The drive is a little slower than the GPU alone, but here the GPU has others to serve.
    "no break-even spares a busy GPU": Choice(
        [prompt(0, 0), *(row._replace(replica=1) for row in BURST), prompt(10, 0, replica=1)],
        drive(),
        drive(admission="break-even"),
        {"mb_per_s": 110, "hbm_chunks": 60} | TWO,
    ),
    "a limit on stores leaves the drive to a load": Choice(
        [prompt(0, 0), *BURST, prompt(11.2, 0, replica=1)],
        drive(max_store_backlog=5 * CHUNK_BYTES),
        drive(),
        {"mb_per_s": 40, "hbm_chunks": 60} | TWO,
    ),
    "no limit on stores serves what comes again": Choice(
        BURST + [row._replace(at_s=30.0 + i, replica=1) for i, row in enumerate(BURST)],
        drive(),
        drive(max_store_backlog=5 * CHUNK_BYTES),
        {"hbm_chunks": 60} | TWO,
    ),
    "a store that waits serves what comes again": Choice(
        WAITED_FOR, drive(4, on_full="wait"), drive(4), {"hbm_chunks": 12} | TWO
    ),
    "a store that is dropped lets go of HBM": Choice(
        [prompt(0.15 * i, 1000 * i) for i in range(8)],
        drive(4),
        drive(4, on_full="wait"),
        {"hbm_chunks": 9, "mb_per_s": 40},
    ),
    "fp8 is read sooner": Choice(in_turn(3, 4), encoded("fp8", 10_000), drive()),
    "int4 is read sooner than fp8": Choice(in_turn(3, 4), encoded("int4", 10_000), encoded("fp8", 10_000)),
    "compressed KV is read sooner than int4": Choice(
        in_turn(3, 4), encoded("compressed", 10_000, ratio=0.13), encoded("int4", 10_000)
    ),
    "no encoding waits for no decoder": Choice(in_turn(3, 4), drive(), encoded("compressed", 60, ratio=0.13)),
    "no encoding waits for no fp8": Choice(in_turn(3, 4), drive(), encoded("fp8", 100)),
    "no encoding waits for no int4": Choice(in_turn(3, 4), drive(), encoded("int4", 100)),
}
LESS_WRITTEN = {
    "selective placement": Choice(hot_among_cold(12), *SELECTIVE),
    "write-back of what HBM keeps": Choice(in_turn(2, 6), drive(placement="write-back"), drive(), {"hbm_chunks": 10}),
    "the frequency filter": Choice(hot_among_cold(12), drive(6, admission="frequency"), drive(6)),
    "tinylfu": Choice(in_turn(4, 6), drive(10, **TINY_FOR), drive(10)),
    "inclusive": Choice(in_turn(3, 5), *reversed(exclusive("nvme"))),
    "fp8": Choice(in_turn(3, 4), encoded("fp8", 10_000), drive()),
    "a limit on stores": Choice(BURST, drive(max_store_backlog=5 * CHUNK_BYTES), drive(), {"hbm_chunks": 60}),
}


@pytest.mark.parametrize("choice", QUICKER.values(), ids=list(QUICKER))
def test_a_choice_is_quicker_where_it_must_be(choice: Choice) -> None:
    chosen, otherwise = choice.both()
    assert ttft_s(chosen) < ttft_s(otherwise) * 0.99


@pytest.mark.parametrize("choice", LESS_WRITTEN.values(), ids=list(LESS_WRITTEN))
def test_a_choice_writes_less_where_it_must(choice: Choice) -> None:
    chosen, otherwise = choice.both()
    assert written(chosen) < written(otherwise)


def named(tiers: dict[str, Any], key: str, default: str) -> set[str]:
    found = [tier.get(key, default) for tier in tiers.values()]
    return {said if isinstance(said, str) else next(iter(said)) for said in found}


@pytest.mark.parametrize(
    ("key", "names", "default"),
    [
        ("placement", PLACEMENT.names(), "write-through"),
        ("admission", ADMISSION.names(), ""),
        ("promotion", ["always", "never", "second-touch"], ""),
    ],
)
def test_each_choice_wins_somewhere_and_loses_somewhere(key: str, names: list[str], default: str) -> None:
    wins, losses = set(), set()
    for choice in QUICKER.values():
        chosen, otherwise = (named(tiers, key, default) for tiers in (choice.chosen, choice.otherwise))
        wins |= chosen - otherwise
        losses |= otherwise - chosen
    assert wins >= set(names)
    assert losses >= set(names)


# By hand -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("uses", "chunks"), [(1, 4), (2, 4), (3, 4), (4, 0)])
def test_selective_placement_writes_at_the_use_that_it_says(uses: int, chunks: int) -> None:
    choice = {"write-through-selective": {"uses": uses}}
    assert written(run(in_turn(1, 3), drive(placement=choice), hbm_chunks=9)) == chunks
    before = run(in_turn(1, uses - 1), drive(placement=choice), hbm_chunks=9) if uses > 1 else None
    assert before is None or written(before) == 0


def test_a_recomputation_after_preemption_is_no_use() -> None:
    # Two requests of nine blocks and a long answer in twenty blocks: one of them is preempted and computed again.
    rows = [Row(0.0, 144, 60, range(4)), Row(0.0, 144, 60, range(100, 104))]
    setup = scenario(hbm_blocks=20, tiers=drive(placement="write-through-selective"))
    summary = serve(setup, Rows(rows), COST).summary()
    assert summary["preemptions"] > 0
    assert written(summary) == 0


def test_selective_placement_below_memory_counts_what_memory_serves() -> None:
    # The second use is served by memory, which feeds the drive then.
    tiers = memory(40) | drive(placement="write-through-selective")
    summary = run([prompt(0, 0), prompt(1, 1000), prompt(2, 0)], tiers)
    assert summary["tiers"]["dram"]["hit_tokens"] == 96  # the fourth chunk went from HBM last
    assert written(summary) == 4


def test_a_frequency_window_ends() -> None:
    rows = [prompt(0, 0), prompt(5, 0), prompt(11, 0)]
    for window_s, chunks in ((4.0, 0), (6.5, 4)):
        admission = {"frequency": {"window_s": window_s, "uses": 2}}
        assert written(run(rows[:2], drive(admission=admission), hbm_chunks=9)) == (chunks if window_s > 5 else 0)
        assert written(run(rows, drive(admission=admission), hbm_chunks=9)) == chunks
    assert written(run(rows, drive(admission={"frequency": {"window_s": 6.5, "uses": 3}}), hbm_chunks=9)) == 0


@pytest.mark.parametrize(("min_tokens", "chunks"), [(128, 4), (129, 0)])
def test_a_minimum_prefix_counts_full_chunks(min_tokens: int, chunks: int) -> None:
    admission = {"min-prefix": {"min_tokens": min_tokens}}
    assert written(run([prompt(0, 0)], drive(admission=admission))) == chunks


def test_break_even_takes_long_prompts_only_where_a_short_load_has_a_fixed_cost() -> None:
    # 0.1 s of latency and 21 ms a chunk against 32 ms a chunk: from nine chunks on a load is quicker.
    for chunks, stored in ((8, 0), (9, 9)):
        tiers = drive(admission="break-even")
        links = {"nvme": {"bandwidth": 200e6, "latency": 0.1}}
        setup = scenario(hbm_blocks=60, tiers=tiers, links=links)
        assert written(serve(setup, Rows([prompt(0, 0, chunks)]), COST).summary()) == stored


def test_filters_stand_before_write_backs_and_promotions_too() -> None:
    backed = drive(placement="write-back", admission={"min-prefix": {"min_tokens": 200}})
    assert written(run(in_turn(3, 4), backed)) == 0
    tiers = memory(40, placement="none", admission={"min-prefix": {"min_tokens": 200}}) | drive()
    assert run(in_turn(3, 4), tiers)["tiers"]["dram"]["write_bytes"] == 0


def test_what_a_limit_on_stores_left_out_is_said() -> None:
    summary = run(BURST, drive(max_store_backlog=5 * CHUNK_BYTES), hbm_chunks=60)
    assert "16 chunks were not stored in nvme: too much was being written to it" in summary["warnings"]


def test_an_exclusive_tier_takes_back_what_it_gave() -> None:
    # Two prompts take turns in HBM: each write-back finds its place in the drive empty, for it left with the load.
    summary = run(in_turn(2, 4), drive(placement="write-back", inclusion="exclusive"))
    inclusive = run(in_turn(2, 4), drive(placement="write-back"))
    assert summary["tiers"]["nvme"]["hit_tokens"] == inclusive["tiers"]["nvme"]["hit_tokens"] > 0
    assert written(inclusive) < 8 < written(summary)


@pytest.mark.parametrize(
    ("keys", "share"),
    [({"kind": "fp8"}, 1 / 2), ({"kind": "int4"}, 0.3125), ({"kind": "compressed", "ratio": 0.2}, 0.2)],
)
def test_an_encoding_is_in_every_book(keys: dict[str, Any], share: float) -> None:
    summary, plain = run(in_turn(3, 4), encoded(mb_per_s=10_000, **keys)), run(in_turn(3, 4), drive())
    for figure in ("read_bytes", "write_bytes", "peak_used_bytes"):
        assert summary["tiers"]["nvme"][figure] == pytest.approx(share * plain["tiers"]["nvme"][figure], rel=1e-6)
    for link in ("nvme", "host-link"):
        for figure in ("read_bytes", "write_bytes"):
            expected = share * plain["links"][link][figure]
            assert summary["links"][link][figure] == pytest.approx(expected, rel=1e-6)
    # The codec sees all of it as the engine holds it.
    for figure in ("read_bytes", "write_bytes"):
        assert summary["links"]["nvme.codec"][figure] == pytest.approx(plain["links"]["nvme"][figure], rel=1e-6)
    assert summary["tiers"]["nvme"]["hit_tokens"] == plain["tiers"]["nvme"]["hit_tokens"]


def test_an_encoding_makes_room() -> None:
    rows = in_turn(3, 4)
    half, plain = encoded("fp8", 10_000), drive(6)
    half["nvme"]["capacity"] = plain["nvme"]["capacity"]
    assert run(rows, plain)["tiers"]["nvme"]["hit_tokens"] == 0  # twelve chunks take turns in room for six
    assert run(rows, half)["tiers"]["nvme"]["hit_tokens"] > 0
