"""Engines that compute prompts first, and that look at their queue now and then only."""

import pytest
from engine_kit import Row, Rows, made_up_cost, scenario, serve, table

STEP_S = 2.0**-7
EVEN = made_up_cost(fixed_s=STEP_S)


def served(load: list[Row], **engine: object):
    return table(serve(scenario(engine=engine), Rows(load), EVEN))


def test_nobody_decodes_while_prompts_are_computed_first() -> None:
    # The second prompt takes three steps of 64 tokens; the first request needs 20 decode steps and stands still then.
    load = [Row(0.0, 16, 21), Row(3.5 * STEP_S, 192, 2)]
    mixed = served(load, max_num_batched_tokens=65, max_num_seqs=8)
    first = served(load, max_num_batched_tokens=64, max_num_seqs=8, mixed_steps=False)
    assert mixed["finished_at_s"][0] == 21 * STEP_S
    assert first["finished_at_s"][0] == (21 + 3) * STEP_S
    # Whoever stands still waits that much longer for the next token.
    assert (mixed["itl_max_s"][0], first["itl_max_s"][0]) == (STEP_S, 4 * STEP_S)
    assert first["first_token_at_s"][1] == mixed["first_token_at_s"][1] == 7 * STEP_S


def test_prompts_that_come_first_have_the_whole_budget_and_cost_nothing_for_the_batch() -> None:
    dear = made_up_cost(fixed_s=STEP_S, collective_s_per_token=2.0**-10)
    load = [Row(0.0, 16, 200), Row(1.0, 64, 2)]
    found = table(serve(scenario(engine={"max_num_batched_tokens": 64, "mixed_steps": False}), Rows(load), dear))
    assert found["first_token_at_s"][1] - found["admitted_at_s"][1] == STEP_S + 64 * 2.0**-10


@pytest.mark.parametrize(("arrives", "seen"), [(2.5, 8), (7.5, 8), (8.0, 8), (8.5, 16), (15.0, 16)])
def test_who_arrives_while_others_decode_is_seen_at_the_next_look(arrives: float, seen: int) -> None:
    # The prompt's step ends at 1 STEP_S; from then on the engine looks every eighth step.
    found = served([Row(0.0, 16, 100), Row((1 + arrives) * STEP_S, 16, 2)], receive_interval=8)
    assert found["admitted_at_s"][1] == (1 + seen) * STEP_S
    assert found["queue_s"][1] == 0.0 or found["queue_s"][1] < STEP_S


def test_the_engine_looks_after_every_prompt_and_when_nobody_decodes() -> None:
    load = [Row(0.0, 16, 100), Row(3.5 * STEP_S, 16, 2), Row(9.5 * STEP_S, 16, 2), Row(3.0, 16, 2)]
    found = served(load, receive_interval=8)
    # The second is seen at step 9 and computed until 10; the third arrives meanwhile and is seen at 10, not at 17.
    assert found["admitted_at_s"].tolist()[:3] == [0.0, 9 * STEP_S, 10 * STEP_S]
    assert found["admitted_at_s"][3] == 3.0


def test_the_end_of_a_request_does_not_move_the_next_look() -> None:
    # Both prompts are in at 1 STEP_S; the second ends after three more steps, and the engine looks at the eighth.
    found = served([Row(0.0, 16, 100), Row(0.0, 16, 4), Row(5.5 * STEP_S, 16, 2)], receive_interval=8)
    assert found["finished_at_s"][1] == 4 * STEP_S
    assert found["admitted_at_s"][2] == 9 * STEP_S
