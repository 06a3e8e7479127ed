"""Decode jumps take the same steps as one event a step, to the last bit, and their edges are sums of step times."""

import math
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pytest
from engine_kit import BLOCK, CHUNK, Formula, Row, Rows, made_up_cost, prepared, scenario, serve, table
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.operator_tables import OperatorTables
from models.step_times import StepTimes
from sim.engine.decode import DecodeRun
from sim.policies.base import SCHEDULING

NOT_COMPARED = {"itl_max_s"}  # a difference of two edges one way, a step's own length the other: equal to rounding

# A step of 2**-7 s and no slope: edges are exact in binary, so that many things happen at the very same instant.
EXACT = made_up_cost(fixed_s=2.0**-7)
# Attention is bound by compute, on windowed layers too.
COMPUTE_BOUND = made_up_cost(
    fixed_s=1e-4,
    dense_compute_s_per_token=1e-6,
    compute_s_per_pair=2.3e-6,
    memory_s_per_context_token=1.1e-7,
    dense_weights_s=1.7e-3,
    compute_s_per_window_pair=3e-7,
    memory_s_per_window_token=5e-8,
)
# Attention is bound by reading the KV cache.
MEMORY_BOUND = made_up_cost(
    fixed_s=1e-4, dense_compute_s_per_token=1e-4, memory_s_per_context_token=3.7e-7, dense_weights_s=1e-5
)

coefficient = st.one_of(st.just(0.0), st.floats(1e-9, 1e-4))
costs = st.one_of(
    st.sampled_from([EXACT, COMPUTE_BOUND, MEMORY_BOUND]),
    st.builds(
        lambda fixed, token, pair, window_pair, context, window, weights: made_up_cost(
            fixed_s=fixed,
            dense_compute_s_per_token=token,
            compute_s_per_pair=pair,
            compute_s_per_window_pair=window_pair,
            memory_s_per_context_token=context,
            memory_s_per_window_token=window,
            dense_weights_s=weights,
        ),
        st.floats(1e-5, 1e-2),
        *[coefficient] * 5,
        st.floats(0.0, 1e-2),
    ),
)
# Arrivals on a grid of the exact step (so often on an edge), or anywhere.
instants = st.one_of(st.integers(0, 400).map(lambda n: n * 2.0**-7), st.floats(0.0, 3.0))
prompts = st.sampled_from([[100 * family + i for i in range(8)] for family in range(3)] + [None])
rows = st.lists(
    st.builds(Row, instants, st.integers(1, 200), st.integers(0, 120), prompts, st.none(), st.none()),
    min_size=1,
    max_size=12,
)


AGING = {"aging_tokens_per_s": 50.0}
# What is first in the queue may change with what HBM loses while others decode, and with time.
SCHEDULERS = [*SCHEDULING.names(), {"shortest-prefill-first": AGING}, {"cache-aware": AGING}]

LOADINGS = {"sync": ["always-load", "always-recompute", "quicker"]}
LOADINGS["async"] = [*LOADINGS["sync"], "two-ended"]


@st.composite
def prefetches(draw, tiers: dict):
    """A prefetch, where there is memory."""
    if "dram" not in tiers:
        return "none"
    limit = {"under_way_bytes": 10**12} if draw(st.booleans()) else {}
    late = draw(st.sampled_from([0.0, 2.0**-7, 0.3]))
    policy = draw(st.sampled_from(["none", "at-enqueue", "look-ahead", "next-turn"]))
    more = {"look-ahead": {"requests": draw(st.integers(1, 3))}, "next-turn": {"after_s": late}}
    return {policy: limit | more.get(policy, {})}


@st.composite
def setups(draw):
    """Engine, memory tiers and model of a small cluster."""
    tiers = {}
    memory = draw(st.sampled_from(["none", "write-through", "write-back"]))
    llm = draw(st.sampled_from(["llama-3.1-8b", "gpt-oss-20b"]))
    load = draw(st.sampled_from(["sync", "async"]))
    if memory != "none":
        tiers["dram"] = {"device": "ddr5", "capacity": draw(st.sampled_from([4e7, 1e9])), "placement": memory}
    if draw(st.booleans()):
        tiers["nvme"] = {"device": "nvme-gen4", "capacity": 1e9}
    return {
        "llm": llm,
        "hbm_blocks": draw(st.integers(24, 70)),
        "tiers": tiers,
        "hbm": {"structure": draw(st.sampled_from(["hashmap", "leaf_constrained"]))},
        "transfer": {
            "load": load,
            "layerwise": load == "sync" and draw(st.booleans()),
            "prefetch": draw(prefetches(tiers)),
            "load_or_recompute": draw(st.sampled_from(LOADINGS[load])),
            "store": draw(st.sampled_from(["sync", "async"])),
            "read_software": draw(st.sampled_from([0.0, 2.0**-7, 1e-3])),
            "write_software": draw(st.sampled_from([0.0, 1e-3])),
        },
        "cluster": draw(
            st.sampled_from([{}, {"replicas": 2, "router": "least-loaded"}, {"replicas": 2, "router": "prefix-aware"}])
        ),
        "engine": {
            "max_num_seqs": draw(st.integers(1, 8)),
            "max_num_batched_tokens": draw(st.sampled_from([16, 64, 512])),
            "prefix_caching": draw(st.booleans()),
            "scheduling": draw(st.sampled_from(SCHEDULERS)),
        },
    }


def both_ways(setup: dict, load: list[Row], cost: StepTimes, begin_s: float = 0.0):
    """The requests with jumps and with single steps, and how many events each way took."""
    results = []
    for jumps in (True, False):
        engine = setup.get("engine", {}) | {"decode_jumps": jumps}
        results.append(serve(scenario(**setup | {"engine": engine}), Rows(load, begin_s), cost))
    return results


def assert_same(setup: dict, load: list[Row], cost: StepTimes, begin_s: float = 0.0) -> dict:
    jumped, stepped = (table(result) for result in both_ways(setup, load, cost, begin_s))
    for name, values in jumped.items():
        if name not in NOT_COMPARED:
            assert np.array_equal(values, stepped[name], equal_nan=values.dtype.kind == "f"), name
    np.testing.assert_allclose(jumped["itl_max_s"], stepped["itl_max_s"], rtol=1e-6, atol=1e-7)
    return jumped


@given(setup=setups(), load=rows, cost=costs, begin_s=st.sampled_from([0.0, 1e8]))
@settings(max_examples=150)
def test_jumps_equal_single_steps(setup, load, cost, begin_s):
    assert_same(setup, load, cost, begin_s)


FAMILY = list(range(8))


@given(setup=setups(), load=rows, cost=costs)
@settings(max_examples=60)
# A load that ends in the step that preempts: the request joins the very next step, which so must not be in a jump.
@example(
    setup={
        "hbm_blocks": 24,
        "tiers": {"dram": {"device": "ddr5", "capacity": 4e7}},
        "transfer": {"load": "async", "store": "sync"},
        "engine": {"max_num_seqs": 4, "max_num_batched_tokens": 64, "prefix_caching": False},
    },
    load=[
        *[Row(0.0, 1, 0)] * 4,
        Row(1.109375, 1, 65),
        Row(1.1484375, 5, 107),
        Row(1.1015625, 133, 98, FAMILY),
        Row(1.7265625, 33, 1, FAMILY),
        Row(0.0078125, 2, 0),
    ],
    cost=made_up_cost(fixed_s=0.005859375, dense_weights_s=0.00390625),
)
def test_arrivals_exactly_when_others_end(setup, load, cost):
    """Closed loops make these: the first run says when requests end, the second has arrivals at those very instants."""
    first = table(serve(scenario(**setup), Rows(load), cost))
    ends = [float(t) for t in first["finished_at_s"] if t == t]
    assert_same(setup, load + [Row(t, 50, 20, None) for t in ends], cost)


@pytest.mark.parametrize("name", SCHEDULING.names())
@pytest.mark.parametrize("seed", range(8))
def test_who_is_first_may_change_while_others_decode(name, seed):
    """Growth takes the cached prefix of the first of the queue, another one comes first, and that one fits."""
    random = Random(seed)
    families = [[100 * family + i for i in range(8)] for family in range(3)]
    load = [
        Row(random.uniform(0, 1.5), random.choice((40, 200)), random.choice((1, 60, 120)), random.choice(families))
        for _ in range(8)
    ]
    engine = {"max_num_seqs": 6, "max_num_batched_tokens": 512, "scheduling": name}
    for blocks in (24, 28, 32):
        assert_same({"hbm_blocks": blocks, "engine": engine}, load, EXACT)


@pytest.mark.parametrize("steps", [1, 2, 37, 199, 200])
@pytest.mark.parametrize("begin_s", [0.0, 1e8 + 0.3])
def test_an_arrival_on_an_edge_joins_the_step_that_begins_there(steps, begin_s):
    setup = {"hbm_blocks": 100}
    alone = table(serve(scenario(**setup), Rows([Row(0.0, 64, 300)], begin_s), COMPUTE_BOUND))
    cost, slope_s = COMPUTE_BOUND, COMPUTE_BOUND.decode_s_per_context_token
    run = DecodeRun(float(alone["first_token_at_s"][0]), cost.beside_attention_s(1, 1) + slope_s * 65, slope_s)
    edge_s = run.edge_s(steps)
    jumped, stepped = (
        table(serve(scenario(**setup, engine={"decode_jumps": jumps}), edge_driver(begin_s, edge_s), COMPUTE_BOUND))
        for jumps in (True, False)
    )
    assert jumped["admitted_at_s"][1] == stepped["admitted_at_s"][1] == edge_s
    assert jumped["admitted_at_s"][2] == stepped["admitted_at_s"][2] > math.nextafter(edge_s, math.inf)


def edge_driver(begin_s: float, edge_s: float) -> Rows:
    later = math.nextafter(edge_s, math.inf)
    # Times count from zero: begin + (edge - begin) would round.
    return Rows([Row(begin_s, 64, 300), Row(edge_s, 40, 5), Row(later, 40, 5)])


def test_exhausted_blocks_preempt_at_the_same_step():
    load = [Row(0.0, 60, 100), Row(0.01, 60, 100), Row(0.02, 60, 100)]
    jumped = assert_same({"hbm_blocks": 24}, load, COMPUTE_BOUND)
    assert jumped["preemptions"].sum() > 0


def test_two_replicas_whose_steps_end_together():
    setup = {"hbm_blocks": 60, "cluster": {"replicas": 2, "router": "least-loaded"}}
    load = [Row(0.0, 32, 64, replica=0), Row(0.0, 32, 64, replica=1)]
    load += [Row(n * 2.0**-7, 40, 30) for n in range(1, 60, 7)]
    assert_same(setup, load, EXACT)


def test_the_order_of_replicas_does_not_depend_on_who_planned_first():
    # Replica 1 plans its long jump before replica 0 plans its last short one, and both end at the same instant.
    setup = {"hbm_blocks": 60, "cluster": {"replicas": 2}}
    load = [Row(0.0, 32, 65, replica=1), Row(2.0**-7, 32, 64, replica=0)]
    for jumps in (True, False):
        driver = Rows(load)
        serve(scenario(**setup, engine={"decode_jumps": jumps}), driver, EXACT)
        assert driver.ended == [1, 0]


def test_a_prefix_router_sees_the_blocks_that_a_jump_has_taken():
    # Replica 0 decodes into the room of what it had cached; the router asks once, in the midst of that jump.
    setup = {"hbm_blocks": 24, "cluster": {"replicas": 2, "router": "prefix-aware"}}
    load = [
        Row(0.0, 256, 1, range(8), replica=0),
        Row(0.0, 128, 1, range(4), replica=1),
        Row(1.0, 32, 250, [900], replica=0),
        Row(1.0 + 245 * 2.0**-7, 256, 1, range(8)),
    ]
    asked = assert_same(setup, load, EXACT)
    assert asked["replica"][3] == 1


def test_jumps_take_fewer_events():
    jumped, stepped = both_ways({"hbm_blocks": 100}, [Row(0.0, 64, 1000)], COMPUTE_BOUND)
    assert jumped.provenance["events"] < 10 < 1000 < stepped.provenance["events"]


slopes = st.one_of(st.just(0.0), st.floats(1e-12, 1e-2))


@given(
    anchor_s=st.sampled_from([0.0, 3.7, 1e5]),
    first_s=st.floats(1e-6, 1.0),
    slope_s=slopes,
    steps=st.integers(1, 3000),
)
@example(anchor_s=0.0, first_s=1e-3, slope_s=0.0, steps=1)
def test_edges_are_the_sum_of_independent_steps(anchor_s, first_s, slope_s, steps):
    run = DecodeRun(anchor_s, first_s, slope_s)
    parts = [first_s + i * slope_s for i in range(steps)]
    assert [run.step_s(i) for i in range(steps)] == parts
    assert run.edge_s(steps) == pytest.approx(math.fsum([anchor_s, *parts]), rel=1e-12)


@given(
    anchor_s=st.sampled_from([0.0, 3.7, 1e8]),
    first_s=st.floats(1e-4, 1.0),
    slope_s=slopes,
    steps=st.integers(1, 10**6),
    nudge=st.sampled_from([-1, 0, 1]),
)
def test_steps_until_finds_the_first_edge_not_before(anchor_s, first_s, slope_s, steps, nudge):
    run = DecodeRun(anchor_s, first_s, slope_s)
    when_s = run.edge_s(steps)
    if nudge:
        when_s = math.nextafter(when_s, math.inf * nudge)
    found = run.steps_until(when_s)
    assert run.edge_s(found) >= when_s > run.edge_s(found - 1)
    assert run.steps_until(anchor_s) == 0


@given(
    anchor_s=st.sampled_from([0.0, 3.7, 1e8]),
    first_s=st.floats(1e-3, 1.0),
    slope_s=slopes,
    steps=st.integers(1, 1000),
    late=st.booleans(),
)
def test_steps_until_stops_where_the_line_does(anchor_s, first_s, slope_s, steps, late):
    run = DecodeRun(anchor_s, first_s, slope_s, steps)
    end_s = run.edge_s(steps)
    assert run.steps_until(end_s + 100.0 if late else math.nextafter(end_s, math.inf)) == steps


def test_windows_end_the_lines_where_a_context_reaches_them():
    # gpt-oss-20b looks back 128 tokens: costs of windowed layers rise until a context is that long, then stand still.
    cost = made_up_cost(fixed_s=1e-3, memory_s_per_window_token=1e-5)
    done = table(serve(scenario(llm="gpt-oss-20b", hbm_blocks=60), Rows([Row(0.0, 100, 60)]), cost))
    steps = [1e-3 + 1e-5 * min(101 + i, 128) for i in range(59)]
    assert done["finished_at_s"][0] - done["first_token_at_s"][0] == pytest.approx(math.fsum(steps), rel=1e-12)
    assert_same({"llm": "gpt-oss-20b", "hbm_blocks": 60}, [Row(0.0, 100, 60), Row(0.011, 90, 60)], cost)


def test_step_tables_change_slope_at_their_grid_lines(tmp_path: Path):
    path = tmp_path / "steps.csv"
    grid = {(1, 0): 1e-3, (1, 90): 2e-3, (1, 130): 4e-3, (1, 900): 5e-3}
    grid |= {(64, c): t + 1e-3 for (_, c), t in grid.items()}
    lines = ["tokens,context_tokens,step_s", *(f"{n},{c},{t}" for (n, c), t in grid.items())]
    path.write_text("\n".join(lines), encoding="utf-8")

    def times(jumps: bool):
        engine = {"step_times": str(path), "decode_jumps": jumps, "max_num_batched_tokens": 64, "max_num_seqs": 4}
        return table(serve(scenario(hbm_blocks=80, engine=engine), Rows([Row(0.0, 64, 150), Row(0.2, 30, 50)])))

    jumped, stepped = times(jumps=True), times(jumps=False)
    assert jumped["finished_at_s"].tolist() == stepped["finished_at_s"].tolist()
    alone = [np.interp(65 + i, [0, 90, 130, 900], [1e-3, 2e-3, 4e-3, 5e-3]) for i in count_until(0.2, jumped)]
    assert len(alone) > 60  # past two grid lines before the other one comes


@given(setup=setups(), load=rows, begin_s=st.sampled_from([0.0, 1e8]))
@settings(max_examples=60)
def test_measured_operators_take_the_same_steps_both_ways(setup, load, begin_s):
    assert_same(setup, load, OperatorTables(where="t", passes=Formula()), begin_s)


def test_measured_operators_change_slope_at_their_lines_of_context():
    def decode_ms(context: int) -> float:  # with a bend at 128
        return 5.0 + 0.01 * max(context - 128, 0)

    class Bent(Formula):
        def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
            return decode_ms(isl)

    cost = OperatorTables(where="t", passes=Bent())
    done = table(serve(scenario(hbm_blocks=80), Rows([Row(0.0, 100, 200), Row(0.0, 100, 200)]), cost))
    steps_s = [decode_ms(101 + i) / 1e3 for i in range(199)]
    assert done["finished_at_s"][0] - done["first_token_at_s"][0] == pytest.approx(math.fsum(steps_s), rel=1e-12)


def count_until(when_s: float, done) -> range:
    steps = count()
    at_s = float(done["first_token_at_s"][0])
    contexts = ([0, 90, 130, 900], [1e-3, 2e-3, 4e-3, 5e-3])
    taken = 0
    while at_s < when_s:
        at_s += float(np.interp(65 + next(steps), *contexts))
        taken += 1
    assert done["admitted_at_s"][1] == pytest.approx(at_s, rel=1e-9)
    return range(taken)


def test_blocks_of_a_jump_are_given_back():
    simulation = prepared(scenario(hbm_blocks=30), Rows([Row(0.0, 60, 200), Row(0.1, 60, 100)]), EXACT)
    simulation.run()
    (hbm,) = simulation.cluster.tiers["hbm"]
    assert hbm.used_units == len(hbm.ready) * (CHUNK // BLOCK)
    assert hbm.peak_units <= hbm.capacity_units


@pytest.mark.parametrize("interval", [1, 7, 30])
@pytest.mark.parametrize("seed", range(6))
def test_engines_that_take_prompts_first_and_look_now_and_then(interval, seed):
    random = Random(seed)
    load = [Row(random.choice((random.uniform(0, 2), 2.0**-7 * random.randrange(200))), random.choice((5, 90)),
                random.choice((1, 30, 90))) for _ in range(25)]  # fmt: skip
    engine = {"mixed_steps": False, "receive_interval": interval, "max_num_batched_tokens": 64, "max_num_seqs": 6}
    for blocks in (24, 60):
        assert_same({"hbm_blocks": blocks, "engine": engine}, load, EXACT)
