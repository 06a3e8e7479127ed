"""What answers add to the caches, where the next turn of a session says which chunks that is; by hand.

A chunk is 32 tokens. The first prompt has 65 tokens and its answer 96, of which all but the last are computed: 160
tokens or five chunks are there when it ends. The next prompt is both and 31 tokens more, six chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import pytest
from engine_kit import made_up_cost, scenario, serve, table

from sim.results.result import SimulationResult
from sim.traces.record import TraceRecord
from sim.traces.sessions import Session, Stream, merged
from sim.workload.sessions import SessionLoop

CHUNK = 32
COST = made_up_cost(fixed_s=0.001, dense_compute_s_per_token=0.001)
Turn = tuple[int, int, list[int]]
TURNS: list[Turn] = [(65, 96, [0, 1]), (192, 1, [0, 1, 2, 3, 4, 5])]
SWAP = {"cluster": {"replicas": 2, "replicas_per_node": 2}}
"""Two replicas, which serve the turns in turn, so that HBM hits nothing."""


@dataclass
class Turns:
    """Sessions of one stream each, by default half a minute apart; turns come a second after the answer before."""

    sessions_of_turns: Sequence[Sequence[Turn]]
    apart_s: float = 30.0
    name = "turns"
    block_tokens = CHUNK
    has_prefixes = True
    starts_known = True

    def sessions(self):
        for number, turns in enumerate(self.sessions_of_turns):

            def records(number=number, turns=turns):
                for prompt_tokens, output_tokens, blocks in turns:
                    own = [(number << 20) + block for block in blocks]
                    yield TraceRecord(nan, prompt_tokens, output_tokens, own, number, think_s=1.0)

            stream = Stream(session_id=number, turns=records)
            yield Session(session_id=number, starts_at_s=self.apart_s * number, streams=(stream,), requests=len(turns))

    def records(self):
        return merged(self.sessions())


def run(
    turns: Sequence[Sequence[Turn]],
    *answers_in: str,
    hbm_blocks: int = 200,
    apart_s: float = 30.0,
    **sections: Any,
) -> SimulationResult:
    setup = scenario(hbm_blocks=hbm_blocks, **sections)
    # Set here, for a file with a load that knows nothing of answers may not say so.
    stores = {name: "prompt+output" if name in answers_in else "prompt" for name in setup.tiers}
    tiers = {name: tier.model_copy(update={"stores": stores[name]}) for name, tier in setup.tiers.items()}
    setup = setup.model_copy(update={"tiers": tiers})
    return serve(setup, SessionLoop(trace=Turns(turns, apart_s), chunk_blocks=1, knows_answers=True), COST)


def hits(result: SimulationResult, tier: str) -> list[int]:
    return [int(tokens) for tokens in table(result)[f"hit_tokens_{tier}"]]


DRIVE = {"nvme": {"device": "nvme-gen4", "capacity": "1 GB"}}
MEMORY = {"dram": {"device": "ddr5", "capacity": "1 GB"}}
CHUNK_BYTES = CHUNK * 131_072


def written(result: SimulationResult) -> int:
    """Chunks on the drive."""
    return int(result.summary()["tiers"]["nvme"]["write_bytes"] / CHUNK_BYTES)


def test_hbm_finds_what_an_answer_has_filled() -> None:
    assert hits(run([TURNS], "hbm"), "hbm") == [0, 160]
    assert hits(run([TURNS]), "hbm") == [0, 64]


@pytest.mark.parametrize(("output_tokens", "found"), [(95, 128), (96, 160), (1, 64), (0, 64)])
def test_the_last_token_of_an_answer_is_not_computed(output_tokens: int, found: int) -> None:
    turns: list[Turn] = [(65, output_tokens, [0, 1]), TURNS[1]]
    assert hits(run([turns], "hbm"), "hbm") == [0, found]


def test_a_prompt_that_does_not_go_on_where_the_last_one_ended_says_nothing_of_the_answer() -> None:
    turns: list[Turn] = [TURNS[0], (192, 1, [0, 9, 2, 3, 4, 5]), (192, 1, [0, 1, 2, 3, 4, 5])]
    assert hits(run([turns], "hbm"), "hbm") == [0, 32, 64]


def test_without_prefix_caching_nothing_is_found() -> None:
    assert hits(run([TURNS], "hbm", engine={"prefix_caching": False}), "hbm") == [0, 0]


def test_a_drive_gets_answers_when_their_request_ends() -> None:
    result = run([TURNS], "nvme", tiers=DRIVE, **SWAP)
    assert hits(result, "nvme") == [0, 160]
    moved = result.table("transfers")
    stored = moved["kind"] == 1
    by_start = sorted(zip(moved["started_at_s"][stored], moved["n_bytes"][stored], strict=True))
    assert [n_bytes // CHUNK_BYTES for _, n_bytes in by_start] == [2, 3, 1]  # prompt, answer, next prompt
    assert by_start[1][0] == table(result)["finished_at_s"][0]
    assert hits(run([TURNS], tiers=DRIVE, **SWAP), "nvme") == [0, 64]


def test_where_others_decode_their_hbm_alone_has_the_answers() -> None:
    apart = {"cluster": {"decode": {"replicas": 1}}}
    result = run([TURNS], "hbm", tiers=DRIVE, **apart)
    assert hits(result, "hbm") == [0, 64]
    assert hits(result, "nvme") == [0, 0]
    assert table(result)["handover_tokens"].tolist() == [65, 192 - 160]
    assert table(run([TURNS], **apart))["handover_tokens"].tolist() == [65, 192 - 64]


def test_a_tier_below_hbm_cannot_have_answers_where_others_decode() -> None:
    drive = {"nvme": DRIVE["nvme"] | {"stores": "prompt+output"}}
    with pytest.raises(ValueError, match="replicas that decode have no tiers below HBM"):
        scenario(cluster={"decode": {"replicas": 1}}, tiers=drive)


def test_a_drive_below_memory_gets_what_memory_has() -> None:
    last: Turn = (33, 1, [0])
    turns: list[Turn] = [TURNS[0], (161, 1, [0, 1, 2, 3, 4])]
    for answers_in, chunks in ((("dram", "nvme"), 5), (("dram",), 2), (("nvme",), 2), ((), 2)):
        result = run([turns, [last]], *answers_in, tiers=MEMORY | DRIVE)
        ended_s = table(result)["finished_at_s"][0]
        moved = result.table("transfers")
        early = (moved["kind"] == 1) & (moved["tier"] == 2) & (moved["started_at_s"] <= ended_s + 0.5)
        assert moved["n_bytes"][early].sum() == chunks * CHUNK_BYTES, answers_in


def test_blocks_stay_until_the_answer_has_left_hbm() -> None:
    # Eleven blocks are one request's; the other one, which needs nine, waits until the drive has that one's answer.
    slow = {"nvme": {"bandwidth": "10 MB/s"}}
    turns = [TURNS, [(129, 1, [0, 1, 2, 3])]]
    times = []
    for answers_in in ((), ("nvme",)):
        result = run(turns, *answers_in, hbm_blocks=12, apart_s=0.05, tiers=DRIVE, links=slow)
        times.append(float(table(result)["first_token_at_s"][1]))
    assert times[0] < times[1]


def test_answers_win_where_sessions_go_on() -> None:
    on = [TURNS] * 3
    kept, lost = (run(on, *answers_in, tiers=DRIVE, **SWAP).summary() for answers_in in (("nvme",), ()))
    assert kept["ttft_s"]["mean"] < lost["ttft_s"]["mean"] * 0.9


def test_answers_lose_where_they_push_out_what_is_needed_sooner() -> None:
    # The drive has room for seven chunks: four of one session, and of another two of its prompt or all five. The first
    # goes on at once, on a replica that has nothing; the other's next turn finds its prompt in HBM anyway.
    soon: list[Turn] = [(129, 1, [0, 1, 2, 3]), (161, 1, [0, 1, 2, 3, 4])]
    small = {"nvme": DRIVE["nvme"] | {"capacity": 7 * CHUNK_BYTES}}
    three = {"cluster": {"replicas": 3, "replicas_per_node": 3}}
    kept, lost = (run([soon, TURNS], *answers_in, apart_s=0.3, tiers=small, **three) for answers_in in (("nvme",), ()))
    assert hits(kept, "nvme")[2] < hits(lost, "nvme")[2] == 128
    assert kept.summary()["ttft_s"]["mean"] > lost.summary()["ttft_s"]["mean"]
