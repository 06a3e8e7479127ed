"""Random events on random small clusters: every request ends once, and no byte, pin or reservation is left over.

The books of a run check tiers and links; what they find is an InvariantError.
"""

from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.events import Event
from scenarios.timeline import event_problems

CHUNK_BYTES = CHUNK * 131_072
COST = made_up_cost(dense_compute_s_per_token=2.0**-10, fixed_s=2.0**-6)
TIMES = st.integers(0, 40).map(lambda half_seconds: half_seconds / 2)
LASTS = st.sampled_from([None, 0.0, 0.5, 3.0, 1000.0])


def event(**keys):
    return st.fixed_dictionaries({"at": TIMES} | keys)


EVENTS = st.one_of(
    event(
        kind=st.just("drive"),
        tier=st.just("fabric"),
        number=st.integers(1, 3),
        lasts=LASTS,
    ),
    event(kind=st.just("port"), tier=st.just("fabric"), number=st.integers(1, 2), lasts=LASTS),
    event(kind=st.just("target"), tier=st.just("fabric"), number=st.integers(1, 2), lasts=LASTS),
    event(kind=st.just("drive"), tier=st.just("nvme"), instance=st.integers(0, 1), lasts=LASTS),
    event(kind=st.just("restart"), replica=st.integers(0, 2), lasts=st.sampled_from([0.0, 1.0, 7.0])),
    event(kind=st.just("restart"), node=st.integers(0, 1), lasts=st.sampled_from([0.0, 1.0, 7.0])),
    event(kind=st.just("drain"), replica=st.integers(0, 1)),
    event(kind=st.just("add"), replica=st.just(2), lasts=st.sampled_from([0.0, 4.0])),
)

NEIGHBOUR = st.fixed_dictionaries(
    {
        "tier": st.just("fabric"),
        "direction": st.sampled_from(["read", "write"]),
        "rate": st.sampled_from(["1 MB/s", "30 GB/s"]),
        "senders": st.integers(1, 3),
        "weight": st.sampled_from([0.1, 2.0]),
        "reserved": st.sampled_from([None, 0.5]),
    }
)


def row(at_s, head, more, output_tokens):
    """A prompt that shares its head with others, and its tail with those that have the same head."""
    tail = range(1000 * head + 100 * more, 1000 * head + 101 * more)
    return Row(at_s, (head + more + 1) * CHUNK, output_tokens, [*range(1, head + 1), *tail])


ROWS = st.lists(
    st.builds(row, TIMES, st.integers(0, 8), st.integers(0, 3), st.integers(1, 60)), min_size=1, max_size=14
)
TIERS = st.fixed_dictionaries(
    {
        "placement": st.sampled_from(["write-through", "write-back"]),
        "structure": st.sampled_from(["hashmap", "leaf_constrained"]),
        "on_full": st.sampled_from(["drop", "wait"]),
        "eviction": st.sampled_from(["lru", "arc", "lirs", "s3fifo"]),
        "layout": st.sampled_from([None, {"data": 4, "parity": 0}, {"data": 1, "parity": 1}, {"data": 2, "parity": 2}]),
        "index": st.sampled_from(["filesystem", "process"]),
    }
)


def cluster_of(below, dram, transfer, engine, chunks, neighbours):
    common = {key: value for key, value in below.items() if value is not None}
    nvme = {key: value for key, value in common.items() if key not in {"layout", "index"}}
    tiers = {"dram": {"device": "ddr5", "capacity": 6 * CHUNK_BYTES, "index": "process"}} if dram else {}
    tiers |= {
        "nvme": {"device": "nvme-gen4", "capacity": chunks * CHUNK_BYTES} | nvme,
        "fabric": {"device": "fx100", "count": 2, "drives": 4, "capacity": 3 * chunks * CHUNK_BYTES} | common,
    }
    return scenario(
        hbm_blocks=48,
        tiers=tiers,
        transfer=transfer,
        engine=engine,
        neighbours=neighbours,
        cluster={"replicas": 3, "replicas_per_node": 2},
    )


@settings(max_examples=150, deadline=None)
@given(
    rows=ROWS,
    events=st.lists(EVENTS, max_size=5),
    below=TIERS,
    dram=st.booleans(),
    transfer=st.fixed_dictionaries(
        {"load": st.sampled_from(["sync", "async"]), "read_software": st.sampled_from([0.0, 0.5])}
    ),
    engine=st.fixed_dictionaries(
        {
            "kv_load_failure_policy": st.sampled_from(["fail", "recompute"]),
            "mixed_steps": st.booleans(),
            "receive_interval": st.sampled_from([1, 3, 30]),
        }
    ),
    neighbours=st.dictionaries(st.just("tenant"), NEIGHBOUR),
    chunks=st.integers(2, 12),
)
def test_every_request_ends_once_and_the_books_balance(
    rows, events, below, dram, transfer, engine, neighbours, chunks
) -> None:
    setup = cluster_of(below, dram, transfer, engine, chunks, neighbours)
    setup = setup.model_copy(update={"events": tuple(Event.model_validate(event) for event in events)})
    assert not list(event_problems(setup))
    simulation = prepared(setup, Rows(rows), COST)
    nominal = {name: [pool.capacity_units for pool in pools] for name, pools in simulation.cluster.tiers.items()}
    summary = simulation.run().summary()
    requests = summary["requests"]
    assert requests["completed"] + requests["failed"] + requests["rejected"] == requests["submitted"] == len(rows)
    if engine["kv_load_failure_policy"] == "recompute":
        assert not requests["failed"]
    for engine in simulation.cluster.engines:
        assert engine.outstanding_requests == engine.outstanding_tokens == engine.waiting_prefill_tokens == 0
    for happened in summary.get("events", ()):
        windows = happened["windows"].values()
        assert sum(part["requests"] for part in windows) == len(rows)
        assert sum(part["failed"] for part in windows) == requests["failed"]
        assert happened.get("returned_bytes", 0) <= happened.get("unreachable_bytes", 0)
        if happened["over_s"] is not None:
            assert happened["over_s"] >= happened["at_s"]
    for name, pools in simulation.cluster.tiers.items():
        for pool, units in zip(pools, nominal[name], strict=True):
            assert pool.capacity_units <= units
