"""Drives, ports and boxes that are lost: shares, times and counts worked out by hand."""

from itertools import combinations

import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario, table

from scenarios.events import Event
from sim.events.layout import Layout
from sim.workload.phases import Phase

CHUNK_BYTES = CHUNK * 131_072
PER_TOKEN = made_up_cost(dense_compute_s_per_token=2.0**-10)
N = 400
TOKENS = N * CHUNK + 1
PROMPT = list(range(1, N + 1))
CAPACITY = 1000 * CHUNK_BYTES


def about(value, rel=0.01):
    return pytest.approx(value, rel=rel)


def nvme(**more):
    return {"nvme": {"device": "nvme-gen4", "count": 4, "capacity": CAPACITY} | more}


def array(**more):
    return {"fabric": {"device": "fx100", "ports": 2, "drives": 8, "capacity": CAPACITY} | more}


def run(events, rows=((100.0, PROMPT),), *, tiers=None, policy="recompute", **setup):
    """Write a prompt, lose what is in HBM, let events happen and send rows (time, chunks) on the clock."""
    engine = {"kv_load_failure_policy": policy} | setup.pop("engine", {})
    setup = scenario(tiers=tiers or nvme(), engine=engine, **setup)
    if events:
        setup = setup.model_copy(update={"events": tuple(Event.model_validate(event) for event in events)})
    load = Rows([Row(at_s, TOKENS, 1, chunks) for at_s, chunks in rows], begin_s=0.0)
    phases = [
        Phase(name="warm", driver=Rows([Row(0.0, TOKENS, 1, PROMPT)])),
        Phase(name="run", driver=load, clear=("hbm",)),
    ]
    simulation = prepared(setup, phases, PER_TOKEN)
    result = simulation.run()
    found = table(result)
    picked = found["phase"] == 1
    return result.summary(), {name: values[picked] for name, values in found.items()}, simulation


def drive(at=50.0, **more):
    tier = more.pop("tier", "nvme")
    return {"at": at, "kind": "drive", "tier": tier} | more


# Where chunks lie -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "parity", "lost", "share"),
    [
        (1, 0, [0], 1 / 4),
        (1, 0, [0, 1], 2 / 4),
        (4, 0, [2], 1),
        (2, 0, [3], 2 / 4),
        (1, 1, [1], 0),
        (1, 1, [0, 1], 1 / 4),
        (1, 1, [0, 2], 0),
        (3, 1, [0, 2], 1),
        (2, 1, [0, 1, 2], 1),
    ],
)
def test_which_share_of_chunks_a_loss_takes(data, parity, lost, share) -> None:
    layout = Layout(data=data, parity=parity, drives=4)
    dead = list(layout.dead([range(5, 405)], set(lost), set(lost)))
    assert sum(map(len, dead)) == share * 400
    assert len({key for run in dead for key in run}) == share * 400


def test_chunks_that_survived_one_loss_fall_to_the_next_where_both_took_their_pieces() -> None:
    layout = Layout(data=2, parity=1, drives=6)
    for first, second in combinations(range(6), 2):
        dead = {key for run in layout.dead([range(600)], {first, second}, {second}) for key in run}
        both = [start for start in range(6) if all((d - start) % 6 < 3 for d in (first, second))]
        assert dead == {key for key in range(600) if key % 6 in both}


# Drives ---------------------------------------------------------------------------------------------------------------


def test_without_redundancy_a_drive_takes_its_share_of_chunks_room_and_bandwidth() -> None:
    summary, done, simulation = run([drive()])
    event = summary["events"][0]
    assert event["lost_bytes"] == N // 4 * CHUNK_BYTES
    assert event["rebuild_s"] is None
    pool = simulation.cluster.tiers["nvme"][0]
    assert pool.capacity_units == 750
    # The prefix ends at the first chunk that is gone: at most 3 of 400 are found.
    assert done["hit_tokens_nvme"][0] <= 3 * CHUNK
    assert done["computed_prompt_tokens"][0] >= (N - 3) * CHUNK
    healthy, before, _ = run([])
    assert "events" not in healthy
    assert before["hit_tokens_nvme"].tolist() == [N * CHUNK]


def test_a_stripe_loses_everything_and_copies_nothing() -> None:
    stripe, _, _ = run([drive()], tiers=nvme(layout={"data": 4}))
    assert stripe["events"][0]["lost_bytes"] == N * CHUNK_BYTES
    copies, done, _ = run([drive()], tiers=nvme(layout={"parity": 1}))
    assert copies["events"][0]["lost_bytes"] == 0
    assert done["hit_tokens_nvme"].tolist() == [N * CHUNK]


def test_what_is_left_of_the_drives_is_what_a_load_gets() -> None:
    tiers = nvme(layout={"parity": 1})
    times_s = {lost: run([drive(number=lost)] if lost else [], tiers=tiers)[1]["load_s"][0] for lost in (0, 1, 2)}
    assert times_s[1] == about(times_s[0] * 4 / 3)
    # Two that stand side by side take both copies of a quarter of the chunks.
    assert times_s[2] < times_s[0] * 0.1


def test_a_replaced_drive_gives_room_and_bandwidth_back_but_not_its_chunks() -> None:
    hbm = {"hbm_blocks": N * 2 + 2}  # the prompt only, so that other prompts displace it
    other = list(range(5001, 5001 + N))
    rows = [(100.0, PROMPT), (150.0, other), (200.0, PROMPT)]
    summary, done, simulation = run([drive(lasts=20.0)], rows, **hbm)
    assert simulation.cluster.tiers["nvme"][0].capacity_units == 1000
    event = summary["events"][0]
    assert event["over_s"] == 70.0
    assert event["lost_bytes"] == N // 4 * CHUNK_BYTES
    assert done["hit_tokens_nvme"][0] < N // 4 * CHUNK
    assert done["hit_tokens_nvme"][2] == N * CHUNK  # written again in the meantime
    whole = run([], rows, **hbm)[1]
    assert done["load_s"][2] == about(whole["load_s"][2])


@pytest.mark.parametrize(
    ("data", "parity", "number", "bytes_per_s"),
    [
        (1, 1, 1, 4.24e9),  # what the new drive writes
        (3, 1, 1, 4.24e9),
        (2, 2, 2, 1 / (2 / (4 * 6.8e9) + 1 / (4 * 4.24e9))),  # what all four read and write for two new ones
    ],
)
def test_a_rebuild_takes_the_time_of_its_bytes(data, parity, number, bytes_per_s) -> None:
    tiers = nvme(layout={"data": data, "parity": parity})
    event = run([drive(lasts=10.0, number=number)], tiers=tiers)[0]["events"][0]
    n_bytes = N * CHUNK_BYTES * (data + parity) / data * number / 4
    assert event["rebuild_bytes"] == about(n_bytes, 1e-12)
    assert event["rebuild_s"] == about(n_bytes / bytes_per_s, 1e-6)
    assert event["over_s"] == about(60.0 + event["rebuild_s"], 1e-9)
    limited = run([drive(lasts=10.0, number=number, rebuild_bandwidth=1e7)], tiers=tiers)[0]["events"][0]
    assert limited["rebuild_s"] == about(n_bytes / 1e7, 1e-6)


def test_a_rebuild_holds_up_loads_and_a_limit_spares_them() -> None:
    tiers = nvme(layout={"data": 3, "parity": 1})
    rows = [(100.0, PROMPT)]
    quiet = run([], rows, tiers=tiers)[1]["load_s"][0]
    at_once = run([drive(lasts=50.0)], rows, tiers=tiers)[1]["load_s"][0]
    slowly = run([drive(lasts=50.0, rebuild_bandwidth="50 MB/s")], rows, tiers=tiers)[1]["load_s"][0]
    assert quiet < slowly < 1.05 * quiet < 1.3 * quiet < at_once


def test_a_second_loss_before_the_rebuild_has_ended_takes_chunks() -> None:
    tiers = nvme(layout={"parity": 1})
    twice = [drive(lasts=10.0, rebuild_bandwidth=1e7), drive(61.0)]
    assert run(twice, tiers=tiers)[0]["events"][1]["lost_bytes"] == N // 4 * CHUNK_BYTES
    filled = [drive(lasts=10.0), drive(65.0)]
    assert run(filled, tiers=tiers)[0]["events"][1]["lost_bytes"] == 0
    both = [drive(lasts=100.0), drive(51.0)]
    assert run(both, tiers=tiers)[0]["events"][1]["lost_bytes"] == N // 4 * CHUNK_BYTES


def test_parity_costs_writes_and_room_of_the_device() -> None:
    plain, _, _ = run([])
    parity, _, _ = run([], tiers=nvme(layout={"data": 3, "parity": 1}))
    assert parity["links"]["nvme"]["write_bytes"] == about(plain["links"]["nvme"]["write_bytes"] * 4 / 3, 1e-9)
    assert parity["tiers"]["nvme"]["write_bytes"] == plain["tiers"]["nvme"]["write_bytes"]
    whole, less = (
        run([], tiers={"nvme": {"device": "fx100"} | layout})[0]["tiers"]["nvme"]["capacity_bytes"]
        for layout in ({}, {"layout": {"parity": 1}})
    )
    assert less == about(whole / 2, 1e-4)


# Loads under way ------------------------------------------------------------------------------------------------------

SLOW = {"reads_in_flight": 1, "read_software": 0.25}  # a quarter of a second a chunk: the load takes 100 s


@pytest.mark.parametrize("load", ["sync", "async"])
def test_a_load_that_hits_lost_chunks_fails_and_its_tokens_are_computed(load) -> None:
    summary, done, _ = run([drive(150.0)], transfer=SLOW | {"load": load})
    event = summary["events"][0]
    assert (event["failed_loads"], summary["tiers"]["nvme"]["failed_loads"]) == (1, 1)
    assert event["lost_bytes"] == N // 4 * CHUNK_BYTES
    assert done["hit_tokens_nvme"].tolist() == [0]
    assert done["computed_prompt_tokens"].tolist() == [TOKENS]
    assert done["load_s"][0] == about(100.0)
    assert done["compute_s"][0] == about(TOKENS * 2.0**-10)


def test_by_the_other_policy_the_request_fails_and_with_copies_nothing_does() -> None:
    summary, _, _ = run([drive(150.0)], transfer=SLOW, policy="fail")
    assert summary["requests"]["failed"] == 1
    assert summary["events"][0]["windows"]["before"]["failed"] == 1
    copies, done, _ = run([drive(150.0)], transfer=SLOW, policy="fail", tiers=nvme(layout={"parity": 1}))
    assert copies["requests"]["failed"] == copies["events"][0]["failed_loads"] == 0
    assert done["hit_tokens_nvme"].tolist() == [N * CHUNK]


def test_a_load_that_began_after_the_loss_does_not_fail() -> None:
    summary, _, _ = run([drive(99.0)], transfer=SLOW)
    assert summary["events"][0]["failed_loads"] == 0


def test_chunks_on_their_way_to_a_lost_drive_never_arrive() -> None:
    slow_writes = {"writes_in_flight": 1, "write_software": 0.25}
    # The other prompt is computed in 12.5 s and written in 100 s; the stripe breaks in between.
    other = list(range(5001, 5001 + N))
    rows = [(200.0, other), (500.0, other)]
    tiers = nvme(layout={"data": 4})
    _, done, _ = run([drive(250.0, lasts=1.0)], rows, tiers=tiers, transfer=slow_writes, hbm_blocks=N * 2 + 2)
    assert done["hit_tokens_nvme"].tolist() == [0, 0] or done["hit_tokens_hbm"][1] > 0
    rows = [(200.0, other), (400.0, PROMPT), (900.0, other)]
    setup = {"tiers": tiers, "transfer": slow_writes, "hbm_blocks": N * 2 + 2}
    assert run([drive(250.0, lasts=1.0)], rows, **setup)[1]["hit_tokens_nvme"][2] == 0
    assert run([], rows, **setup)[1]["hit_tokens_nvme"][2] == N * CHUNK


# Ports and boxes ------------------------------------------------------------------------------------------------------


def test_one_port_of_two_halves_what_the_array_delivers() -> None:
    # Eight drives read 24 GB/s: two ports are the limit, and so is one.
    port = {"at": 50.0, "kind": "port", "tier": "fabric"}
    two = run([], tiers=array(drives=24), cluster={"nic": None})[1]
    one = run([port], tiers=array(drives=24), cluster={"nic": None})[1]
    assert one["load_s"][0] == about(2 * two["load_s"][0])
    assert one["hit_tokens_fabric"].tolist() == [N * CHUNK]


def test_with_all_ports_gone_chunks_are_out_of_reach_and_come_back() -> None:
    ports = {"at": 50.0, "kind": "port", "tier": "fabric", "number": 2, "lasts": 100.0}
    rows = [(100.0, PROMPT), (200.0, list(range(5001, 5001 + N))), (300.0, PROMPT)]
    summary, done, simulation = run([ports], rows, tiers=array(), hbm_blocks=N * 2 + 2)
    event = summary["events"][0]
    assert (event["lost_bytes"], event["unreachable_bytes"]) == (0, N * CHUNK_BYTES)
    assert event["returned_bytes"] == N * CHUNK_BYTES
    assert done["hit_tokens_fabric"].tolist() == [0, 0, N * CHUNK]
    assert simulation.cluster.tiers["fabric"][0].refused_chunks == N  # nothing could be written meanwhile


def test_a_box_hides_its_chunks_until_it_is_back() -> None:
    target = {"at": 50.0, "kind": "target", "tier": "fabric", "lasts": 100.0}
    tiers = {"fabric": {"device": "fx100", "count": 2, "drives": 4, "capacity": CAPACITY}}
    summary, _, simulation = run([target], [(100.0, list(range(5001, 5001 + N))), (200.0, PROMPT)], tiers=tiers)
    event = summary["events"][0]
    assert event["unreachable_bytes"] == event["returned_bytes"] == N // 2 * CHUNK_BYTES
    assert simulation.cluster.tiers["fabric"][0].capacity_units == 1000
    spread = run([target], tiers={"fabric": tiers["fabric"] | {"layout": {"data": 4, "parity": 4}}})[0]
    assert spread["events"][0]["unreachable_bytes"] == 0


def test_an_event_after_the_last_request_neither_happens_nor_prolongs_the_run() -> None:
    late, _, simulation = run([drive(1e6)])
    assert late["events"] == []
    assert simulation.clock.now_s < 1000.0
    without, _, _ = run([])
    for summary in (late, without):
        for key in ("events", "engine"):
            summary.pop(key, None)
    said = set(late.pop("warnings")) - set(without.pop("warnings"))
    assert said == {"event drive, nvme at 11.57 d did not happen: all requests had ended"}
    assert late == without
