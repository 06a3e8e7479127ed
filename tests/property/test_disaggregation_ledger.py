"""Random small disaggregated clusters: what is computed arrives once, everybody ends once, jumps change nothing."""

import numpy as np
from engine_kit import BLOCK, Row, Rows, made_up_cost, prepared, scenario, serve, table
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm import load_llm
from sim.recording.transfers import HANDOVER

NOT_COMPARED = {"itl_max_s"}  # a difference of two edges one way, a step's own length the other: equal to rounding
EXACT = made_up_cost(fixed_s=2.0**-7)
MIXED = made_up_cost(
    fixed_s=1e-4, dense_compute_s_per_token=1e-4, memory_s_per_context_token=3.7e-7, dense_weights_s=1e-5
)

instants = st.one_of(st.integers(0, 200).map(lambda n: n * 2.0**-7), st.floats(0.0, 2.0))
prompts = st.sampled_from([[100 * family + i for i in range(8)] for family in range(3)] + [None])
rows = st.lists(
    st.builds(Row, instants, st.integers(1, 200), st.integers(0, 120), prompts, st.none(), st.none()),
    min_size=1,
    max_size=10,
)


@st.composite
def setups(draw):
    """Pools of one or two replicas, some on the same nodes, with tiers of several kinds below those that prefill."""
    tiers = {}
    for name, device in (("dram", "ddr5"), ("nvme", "nvme-gen4"), ("store", "object-store")):
        placement = draw(st.sampled_from([None, "write-through", "write-back"]))
        if placement is not None:
            tiers[name] = {"device": device, "capacity": draw(st.sampled_from([4e7, 1e9])), "placement": placement}
    load = draw(st.sampled_from(["sync", "async"]))
    decode = {
        "replicas": draw(st.integers(1, 2)),
        "nodes": draw(st.sampled_from(["own", "shared"])),
        "tensor_parallel": draw(st.sampled_from([1, 2])),
        "handover_software": draw(st.sampled_from([0.0, 2.0**-7])),
    }
    return {
        "hbm_blocks": draw(st.integers(24, 60)),
        "tiers": tiers,
        "links": {"nic": {"bandwidth": draw(st.sampled_from([1e8, 5e10]))}},
        "transfer": {
            "load": load,
            "layerwise": load == "sync" and draw(st.booleans()),
            "load_or_recompute": draw(st.sampled_from(["always-load", "quicker"] + ["two-ended"] * (load == "async"))),
            "prefetch": draw(st.sampled_from(["none", "at-enqueue", "look-ahead"])) if "dram" in tiers else "none",
            "store": draw(st.sampled_from(["sync", "async"])),
            "write_software": draw(st.sampled_from([0.0, 1e-3])),
        },
        "cluster": {"replicas": draw(st.integers(1, 2)), "decode": decode},
        "engine": {
            "max_num_seqs": draw(st.integers(1, 8)),
            "max_num_batched_tokens": draw(st.sampled_from([16, 64, 512])),
            "prefix_caching": draw(st.booleans()),
            "scheduling": draw(st.sampled_from(["fcfs", "shortest-prefill-first", "cache-aware"])),
        },
    }


@given(setup=setups(), load=rows, cost=st.sampled_from([EXACT, MIXED]))
@settings(max_examples=60, deadline=None)
def test_every_prompt_arrives_once_and_everybody_ends_once(setup, load, cost):
    simulation = prepared(scenario(**setup), Rows(load), cost)
    result = simulation.run()  # tiers, links and requests are checked at its end
    done = table(result)
    assert done["request_id"].tolist() == list(range(len(load)))
    moved = (done["state"] == 0) & (done["output_tokens"] > 0)
    assert ((done["decode_replica"] >= 0) == moved).all()
    block_bytes = BLOCK * load_llm("llama-3.1-8b").kv_bytes_per_token("bf16")
    blocks = -(-done["handover_tokens"] // BLOCK)
    assert (done["handover_bytes"] == blocks * block_bytes).all()
    if not setup["engine"]["prefix_caching"]:
        assert (done["handover_tokens"][moved] == done["prompt_tokens"][moved]).all()
    transfers = result.table("transfers")
    arrived = transfers["kind"] == HANDOVER
    assert sorted(transfers["request_id"][arrived]) == done["request_id"][moved].tolist()
    assert transfers["n_bytes"][arrived].sum() == done["handover_bytes"].sum()
    assert all(tier.used_units == len(tier.ready) * tier.units_per_chunk for tier in simulation.cluster.tiers["hbm"])
    parts = sum(done[f"{part}_s"] for part in ("queue", "load", "compute", "handover", "other"))
    np.testing.assert_allclose(parts, done["ttft_s"], rtol=1e-9)


@given(setup=setups(), load=rows, cost=st.sampled_from([EXACT, MIXED]))
@settings(max_examples=60, deadline=None)
def test_decode_jumps_equal_single_steps(setup, load, cost):
    jumped, stepped = (
        table(serve(scenario(**setup | {"engine": setup["engine"] | {"decode_jumps": jumps}}), Rows(load), cost))
        for jumps in (True, False)
    )
    for name, values in jumped.items():
        if name not in NOT_COMPARED:
            assert np.array_equal(values, stepped[name], equal_nan=values.dtype.kind == "f"), name
    np.testing.assert_allclose(jumped["itl_max_s"], stepped["itl_max_s"], rtol=1e-6, atol=1e-7)
