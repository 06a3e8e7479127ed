"""Chunk sizes, contexts and what drivers refuse (what they send: tests/property/test_runs.py)."""

import numpy as np
import pytest
from engine_kit import prepared, scenario, serve, table

from models.errors import ScenarioError
from sim.generators.chat import ChatGenerator
from sim.traces.record import TraceRecord
from sim.workload.contexts import ClosedLoop, Contexts, Wave
from sim.workload.open_loop import OpenLoop, blocks_per_chunk


@pytest.mark.parametrize(
    ("trace", "stack", "engine", "count"), [(512, 256, 16, 1), (256, 256, 16, 1), (16, 256, 16, 16), (64, 100, 64, 2)]
)
def test_a_chunk_is_the_smallest_multiple_of_the_traces_block(trace, stack, engine, count):
    assert blocks_per_chunk(trace, stack, engine, "trace x") == count


def test_a_chunk_must_be_whole_engine_blocks():
    with pytest.raises(
        ScenarioError, match=r"trace x: a chunk of 3 x 100 tokens is no multiple .* 16 tokens; set engine"
    ):
        blocks_per_chunk(100, 256, 16, "trace x")


def test_chunks_of_several_blocks_are_named_by_their_last():
    class Listed:
        name, block_tokens, has_prefixes = "listed", 16, True

        def records(self):
            # The second prompt differs in block 2 only: chunk (1, 2) is another one, and so is all behind it.
            return iter(
                [
                    TraceRecord(0.0, 80, 1, [1, 2, 3, 4, 5]),
                    TraceRecord(9.0, 80, 1, [1, 7, 8, 9, 10]),
                    TraceRecord(18.0, 80, 1, [1, 2, 3, 4, 5]),
                ]
            )

    done = table(serve(scenario(), OpenLoop(trace=Listed(), chunk_blocks=2)))
    assert done["hit_tokens_hbm"].tolist() == [0, 0, 64]


def test_an_empty_trace_is_refused():
    class Empty:
        name, block_tokens, has_prefixes = "empty", 16, True

        def records(self):
            return iter(())

    with pytest.raises(ScenarioError, match="empty: the trace holds no request"):
        serve(scenario(), OpenLoop(trace=Empty(), chunk_blocks=1))


def test_clients_of_one_replica_share_nothing_with_anothers():
    contexts = Contexts(prompt_tokens=65, output_tokens=1, chunk_tokens=32)
    loop = ClosedLoop(contexts=contexts, concurrency=1, requests=3, sessions=1, per_replica=True)
    done = table(serve(scenario(cluster={"replicas": 2}), loop))
    assert sorted(done["session_id"].tolist()) == [0, 0, 0, 1, 1, 1]
    assert sorted(done["hit_tokens_hbm"].tolist()) == [0, 0, 64, 64, 64, 64]


def test_fractions_done_end_at_one():
    contexts = Contexts(prompt_tokens=65, output_tokens=1, chunk_tokens=32)
    for driver in (
        ClosedLoop(contexts=contexts, concurrency=2, requests=5),
        Wave(contexts=contexts, requests=5, random=np.random.default_rng(0)),
        OpenLoop(trace=ChatGenerator(requests=9).trace(), chunk_blocks=1, expected=9, limit=5),
        OpenLoop(trace=ChatGenerator(requests=9).trace(), chunk_blocks=1, expected=9, limit=50),
    ):
        assert driver.fraction_done() == 0.0
        prepared(scenario(), driver).run()
        assert driver.fraction_done() == 1.0


def test_lengths_are_drawn_between_the_shortest_share_and_all_of_it() -> None:
    drawn: list[tuple[int, int]] = []

    class Cluster:
        replicas = (None,)

        def submit(self, *, prompt_tokens: int, output_tokens: int, **_: object) -> None:
            drawn.append((prompt_tokens, output_tokens))

    def lengths(shortest: float) -> list[tuple[int, int]]:
        drawn.clear()
        contexts = Contexts(
            prompt_tokens=1000,
            output_tokens=100,
            chunk_tokens=32,
            shortest=shortest,
            random=np.random.default_rng(0),
        )
        for session in range(400):
            contexts.submit(Cluster(), 0, session, None, lambda _: None)  # type: ignore[arg-type]
        return list(drawn)

    assert set(lengths(1.0)) == {(1000, 100)}
    prompts, outputs = zip(*lengths(0.8), strict=True)
    assert 800 <= min(prompts) < 810
    assert 990 < max(prompts) <= 1000
    assert (min(outputs), max(outputs)) == (80, 100)
    assert len(set(zip(prompts, outputs, strict=True))) > 300


def test_what_is_a_requests_own_is_shared_with_none() -> None:
    contexts = Contexts(prompt_tokens=130, output_tokens=1, chunk_tokens=32, own_tokens=40)
    done = table(serve(scenario(), ClosedLoop(contexts=contexts, concurrency=1, requests=3, sessions=1)))
    # 90 tokens are shared, two chunks of 32; the third chunk holds some of the request's own.
    assert done["hit_tokens_hbm"].tolist() == [0, 64, 64]
    alike = Contexts(prompt_tokens=130, output_tokens=1, chunk_tokens=32)
    done = table(serve(scenario(), ClosedLoop(contexts=alike, concurrency=1, requests=3, sessions=1)))
    assert done["hit_tokens_hbm"].tolist() == [0, 128, 128]


def test_what_is_a_requests_own_differs_between_phases() -> None:
    sent: list[list[int]] = []

    class Cluster:
        replicas = (None,)

        def submit(self, *, chunks: list[int], **_: object) -> None:
            sent.append(chunks)

    for phase in (0, 1):
        contexts = Contexts(prompt_tokens=96, output_tokens=1, chunk_tokens=32, own_tokens=32)
        contexts.submit(Cluster(), phase, 0, None, lambda _: None)  # type: ignore[arg-type]
    assert sent[0][:2] == sent[1][:2]
    assert sent[0][2] != sent[1][2]


def test_a_shuffled_loop_uses_each_context_as_often_as_in_turn() -> None:
    def order(random: np.random.Generator | None) -> list[int]:
        contexts = Contexts(prompt_tokens=65, output_tokens=1, chunk_tokens=32)
        loop = ClosedLoop(contexts=contexts, concurrency=1, requests=12, sessions=4, random=random)
        sessions: list[int] = table(serve(scenario(), loop))["session_id"].tolist()
        return sessions

    shuffled = order(np.random.default_rng(0))
    assert order(None) == [0, 1, 2, 3] * 3
    assert sorted(shuffled) == sorted(order(None))
    assert shuffled != order(None)
    assert order(np.random.default_rng(0)) == shuffled
