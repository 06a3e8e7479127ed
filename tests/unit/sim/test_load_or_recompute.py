"""Load or recompute, and loads that overlap with the forward pass: times that one can work out by hand."""

from itertools import accumulate

import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario, serve, table

from models.errors import InvariantError
from models.llm import load_llm
from models.software import SoftwarePath
from scenarios.checks import check_names
from sim.clock import Clock
from sim.policies.loading import AlwaysLoad, AlwaysRecompute, Quicker
from sim.recording import LinkMeter
from sim.transfers.flows import READ, FlowNetwork, Hop, Link
from sim.transfers.legs import Leg
from sim.workload.phases import Phase

CHUNK_BYTES = CHUNK * load_llm("llama-3.1-8b").kv_bytes_per_token("bf16")
LAYERS = load_llm("llama-3.1-8b").layers
NVME = {"nvme": {"device": "nvme-gen4", "capacity": 4e9}}
# A quarter of a second a chunk, one after another, whatever else is on the way.
SLOW = {"reads_in_flight": 1, "read_software": 0.25}
# A quarter of a second a chunk on a link that all loads share.
NARROW = {"nvme": {"bandwidth": 4.0 * CHUNK_BYTES, "latency": 0.0, "delivered_fraction": 1.0}}


def about(seconds):
    return pytest.approx(seconds, rel=0.01, abs=1e-9)


def per_token(seconds):
    return made_up_cost(dense_compute_s_per_token=seconds)


def run(load, earlier, cost, *, transfer, tiers=NVME, **setup):
    """The load on a node whose lower tiers hold what the earlier rows left."""
    phases = [Phase(name="warm", driver=Rows(earlier)), Phase(name="run", driver=Rows(load), clear=("hbm",))]
    found = table(serve(scenario(tiers=tiers, transfer=transfer, **setup), phases, cost))
    picked = found["phase"] == 1
    return {name: values[picked] for name, values in found.items()}


# Load or recompute ---------------------------------------------------------------------------------------------------


class Offer:
    """Parts by tier with the load time of their chunks, and the time to compute each chunk of the prompt."""

    def __init__(self, *parts: tuple[int, float], compute: list[float], overlaps: bool = False) -> None:
        self.parts = [chunks for chunks, _ in parts]
        self.overlaps = overlaps
        self._load_s = [0.0, *accumulate(s for chunks, s in parts for _ in range(chunks))]
        self._compute = compute

    def load_s(self, chunks: int) -> float:
        return self._load_s[chunks]

    def compute_s(self, chunks: int) -> float:
        return sum(self._compute[chunks:])

    def time_s(self, chunks: int) -> float:
        both = (self.load_s(chunks), self.compute_s(chunks))
        return max(both) if self.overlaps else sum(both)


@pytest.mark.parametrize(
    ("parts", "compute", "loaded"),
    [
        ([(3, 1.0)], [2.0] * 4, 3),
        ([(3, 2.0)], [1.0] * 4, 0),
        ([(2, 0.1), (3, 2.0)], [1.0] * 5, 2),  # the fast tier is worth it, the slow one behind it is not
        ([(1, 2.0), (4, 0.1)], [1.0] * 5, 5),  # the slow one is the way to the fast one
        ([(1, 5.0), (2, 0.1)], [1.0] * 3, 0),
        ([(3, 1.0)], [1.0] * 4, 3),  # equal: load, the engine has better to do
    ],
)
def test_quicker_takes_the_best_cut(parts, compute, loaded) -> None:
    offer = Offer(*parts, compute=compute)
    assert Quicker().chunks(offer) == loaded
    assert offer.time_s(loaded) == min(offer.time_s(chunks) for chunks in range(sum(offer.parts) + 1))
    assert AlwaysLoad().chunks(offer) == sum(offer.parts)
    assert AlwaysRecompute().chunks(offer) == 0


def test_quicker_meets_in_the_middle_where_both_go_on_at_once() -> None:
    offer = Offer((8, 1.0), compute=[1.0] * 8, overlaps=True)
    assert Quicker().chunks(offer) == 4
    assert Quicker().chunks(Offer((8, 0.1), compute=[1.0] * 8, overlaps=True)) in {7, 8}
    assert Quicker().chunks(Offer((2, 9.0), compute=[1.0] * 2, overlaps=True)) == 0


LONE = [Row(0.0, 97, 1, [1, 2, 3])]
LONE_EARLIER = [Row(0.0, 96, 1, [1, 2, 3])]


@pytest.mark.parametrize(
    ("second_per_token", "choice", "ttft_s", "hit"),
    [
        (2.0**-10, "always-load", 0.75 + 2.0**-10, 96),
        (2.0**-10, "always-recompute", 97 * 2.0**-10, 0),
        (2.0**-10, "quicker", 97 * 2.0**-10, 0),
        (2.0**-6, "always-load", 0.75 + 2.0**-6, 96),
        (2.0**-6, "always-recompute", 97 * 2.0**-6, 0),
        (2.0**-6, "quicker", 0.75 + 2.0**-6, 96),
    ],
)
@pytest.mark.parametrize("load", ["sync", "async"])
def test_the_quicker_way_of_a_lone_prompt(load, second_per_token, choice, ttft_s, hit) -> None:
    """Always-load wins where computing is slow, always-recompute where loading is; quicker is the better of the two."""
    transfer = SLOW | {"load": load, "load_or_recompute": choice}
    done = run(LONE, LONE_EARLIER, per_token(second_per_token), transfer=transfer)
    assert done["ttft_s"][0] == about(ttft_s)
    assert done["hit_tokens_nvme"].tolist() == [hit]
    assert done["computed_prompt_tokens"].tolist() == [97 - hit]


def test_quicker_wins_where_one_prompt_is_sooner_loaded_and_another_computed() -> None:
    """Half a second for any load and a quarter a chunk, against 10 ms a token: 33 tokens are computed, 385 loaded."""
    prompts = [[1], list(range(10, 22))]
    earlier = [Row(0.0, 32 * len(own), 1, own) for own in prompts]
    load = [Row(20.0 * at, 32 * len(own) + 1, 1, own) for at, own in enumerate(prompts)]
    found = {}
    for choice in ("always-load", "always-recompute", "quicker"):
        transfer = SLOW | {"request_software": 0.5, "load_or_recompute": choice}
        found[choice] = run(load, earlier, per_token(0.01), transfer=transfer)["ttft_s"].tolist()
    assert found["always-load"] == about([0.75 + 0.01, 3.5 + 0.01])
    assert found["always-recompute"] == about([0.33, 3.85])
    assert found["quicker"] == about([0.33, 3.51])


def test_request_software_and_steps_count_in_the_choice() -> None:
    # 0.75 s of loading against 0.97 s of computing; half a second of software more turns it round.
    for software_s, hit in ((0.0, 96), (0.5, 0)):
        transfer = SLOW | {"load_or_recompute": "quicker", "request_software": software_s}
        done = run(LONE, LONE_EARLIER, per_token(0.01), transfer=transfer)
        assert done["hit_tokens_nvme"].tolist() == [hit]
    # Two seconds of loading: a prompt of 256 tokens takes one step of a second, or eight.
    prompt = range(8)
    for budget, hit in ((512, 0), (32, 256)):
        engine = {"max_num_batched_tokens": budget, "max_num_seqs": 4}
        transfer = SLOW | {"load_or_recompute": "quicker"}
        earlier, load = [Row(0.0, 256, 1, prompt)], [Row(0.0, 257, 1, prompt)]
        done = run(load, earlier, made_up_cost(fixed_s=1.0), transfer=transfer, engine=engine)
        assert done["hit_tokens_nvme"].tolist() == [hit]


def test_quicker_sees_what_is_under_way() -> None:
    """Two chunks take 0.5 s to load alone and 0.64 s to compute; beside a load of four they would take 1 s."""
    earlier = [Row(0.0, 128, 1, [1, 2, 3, 4]), Row(0.0, 64, 1, [11, 12])]
    second = Row(0.0, 65, 1, [11, 12])
    transfer = {"load_or_recompute": "quicker", "load": "async"}
    alone = run([second], earlier, per_token(0.01), transfer=transfer, links=NARROW)
    beside = run([Row(0.0, 129, 1, [1, 2, 3, 4]), second], earlier, per_token(0.01), transfer=transfer, links=NARROW)
    assert alone["hit_tokens_nvme"].tolist() == [64]
    assert alone["load_s"][0] == about(0.5)
    assert beside["hit_tokens_nvme"].tolist() == [128, 0]
    assert beside["load_s"].tolist() == about([1.0, 0.0])
    assert beside["ttft_s"][1] == about(0.65)


def test_quicker_loses_in_a_crowd() -> None:
    """Each of four prompts would be computed a little sooner than loaded, alone; together they wait for each other."""
    chunks = [range(10 * n, 10 * n + 4) for n in range(4)]
    earlier = [Row(0.0, 128, 1, own) for own in chunks]
    load = [Row(0.0, 129, 1, own) for own in chunks]
    found = {
        choice: run(load, earlier, per_token(0.9 / 129), transfer=SLOW | {"load_or_recompute": choice})["ttft_s"].mean()
        for choice in ("always-load", "quicker", "always-recompute")
    }
    assert found["quicker"] == found["always-recompute"] == about(3.6)
    assert found["always-load"] == about(1.0 + 4 * 0.9 / 129)


def test_nothing_is_read_where_all_is_recomputed() -> None:
    transfer = {"load_or_recompute": "always-recompute"}
    result = serve(
        scenario(tiers=NVME, transfer=transfer, hbm_blocks=10),
        Rows([*LONE_EARLIER, Row(1.0, 128, 1), Row(2.0, 97, 1, [1, 2, 3])]),
    )
    nvme = result.summary()["tiers"]["nvme"]
    assert (nvme["read_bytes"], nvme["hit_tokens"]) == (0.0, 0)
    assert nvme["write_bytes"] == 7 * CHUNK_BYTES


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_policy_that_loads_what_is_not_there_is_named(wrong, tmp_path, monkeypatch) -> None:
    module = f"greedy_{wrong + 1}"
    text = f"class Greedy:\n    def chunks(self, offer):\n        return {wrong}\n"
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvariantError, match=rf"'{module}:Greedy' breaks its contract: it loads {wrong} of 3 chunks"):
        run(LONE, LONE_EARLIER, per_token(0.01), transfer={"load_or_recompute": f"{module}:Greedy"})


@pytest.mark.parametrize("router", ["prefix-aware", "tier-aware"])
def test_routers_and_schedulers_see_what_would_be_loaded(router) -> None:
    """Replica 0 has the prompt on its drive; that counts only where it would be read."""
    tiers = {"nvme": {"device": "nvme-gen4", "capacity": 4e9, "scope": "replica"}}
    earlier = [Row(0.0, 96, 1, [1, 2, 3], replica=1), Row(0.0, 16, 1, replica=0)]
    for choice, replica in (("always-load", 1), ("always-recompute", 0)):
        cluster = {"replicas": 2, "router": router}
        transfer = {"load_or_recompute": choice}
        done = run(LONE, earlier, per_token(0.01), transfer=transfer, tiers=tiers, cluster=cluster)
        assert done["replica"].tolist() == [replica]


# Layer by layer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunks", "layer_s"), [(3, 1.0), (12, 3.0)])
def test_loads_overlap_with_the_forward_pass_layer_by_layer(chunks, layer_s) -> None:
    """l + (L - 1) max(c, l) + c: steps take a second, chunks a quarter each."""
    prompt = range(chunks)
    earlier, load = [Row(0.0, 32 * chunks, 1, prompt)], [Row(0.0, 32 * chunks + 1, 1, prompt)]
    cost = made_up_cost(fixed_s=1.0)
    plain, overlapping = (
        run(load, earlier, cost, transfer=SLOW | {"load": "sync", "layerwise": layerwise})
        for layerwise in (False, True)
    )
    load_s = float(plain["load_s"][0])
    assert load_s == about(chunks / 4)
    expected_s = (load_s + 1.0 + (LAYERS - 1) * max(load_s, 1.0)) / LAYERS
    assert overlapping["ttft_s"][0] == pytest.approx(expected_s, rel=1e-9)
    assert overlapping["ttft_s"][0] == about(layer_s + min(chunks / 4, 1.0) / LAYERS)
    assert overlapping["compute_s"][0] == pytest.approx(1.0, rel=1e-9)
    assert overlapping["load_s"][0] == pytest.approx(expected_s - 1.0, rel=1e-9)
    assert overlapping["load_nvme_s"][0] == pytest.approx(load_s, rel=1e-9)
    assert plain["ttft_s"][0] == pytest.approx(load_s + 1.0, rel=1e-9)


def test_layerwise_wins_the_ttft_of_synchronous_loads_and_loses_the_itl_of_asynchronous_ones() -> None:
    prompt = range(12)
    earlier = [Row(0.0, 384, 1, prompt)]
    load = [Row(0.0, 16, 12), Row(0.5, 385, 1, prompt)]
    cost = made_up_cost(fixed_s=1.0)
    sync, layerwise, later = (
        run(load, earlier, cost, transfer=SLOW | more)
        for more in ({"load": "sync"}, {"load": "sync", "layerwise": True}, {"load": "async"})
    )
    assert layerwise["ttft_s"][1] == about(0.5 + 3.0 + 1.0 / LAYERS)
    assert sync["ttft_s"][1] == about(0.5 + 3.0 + 1.0)
    assert [found["itl_max_s"][0] for found in (sync, layerwise, later)] == about([4.0, 3.0 + 1.0 / LAYERS, 1.0])


OBJECTS = {"load": "sync", "layerwise": True, "layer_objects": True}


def three_ways(transfer, **setup):
    """TTFT of a prompt of three chunks in a step of a second: plain, layer by layer, and with an object a layer."""
    ways = ({"load": "sync"}, {"load": "sync", "layerwise": True}, OBJECTS)
    cost = made_up_cost(fixed_s=1.0)
    return [run(LONE, LONE_EARLIER, cost, transfer=transfer | way, **setup)["ttft_s"][0] for way in ways]


def test_an_object_a_layer_wins_on_a_wide_link_and_loses_where_each_read_takes_time() -> None:
    # Bytes alone cost: 0.75 s, of which the step hides all but the first layer, however many objects they are.
    plain, layerwise, objects = three_ways({"read_software": 0.0}, links=NARROW)
    assert (plain, layerwise) == (about(1.75), about(1.0 + 0.75 / LAYERS))
    assert objects == pytest.approx(layerwise, rel=1e-3)
    assert objects < plain
    # A read takes 0.1 s, 32 at once: one round, or one for each layer, which is more than the step hides.
    slow = {"read_software": 0.1, "reads_in_flight": 32}
    plain, layerwise, objects = three_ways(slow)
    assert (plain, layerwise) == (about(1.1), about(1.0 + 0.1 / LAYERS))
    assert objects == about(LAYERS * 0.1 + 1.0 / LAYERS)
    assert objects > 2 * plain


def test_an_object_a_layer_loses_where_operations_are_scarce(tmp_path) -> None:
    """Four reads a second: three chunks take 0.75 s, their 96 layers 24 s."""
    device = tmp_path / "scarce.yaml"
    figure = "{value: %d IOPS, source: made up, status: assumed}"
    device.write_text(f"base: nvme-gen4\nfigures:\n  read_iops: {figure % 4}\n", encoding="utf-8")
    tiers = {"nvme": {"device": str(device), "capacity": 4e9}}
    plain, layerwise, objects = three_ways({}, tiers=tiers)
    assert (plain, layerwise) == (about(1.75), about(1.0 + 0.75 / LAYERS))
    assert objects == about(24.0 + 1.0 / LAYERS)


def test_the_law_of_reads_holds_for_each_layer() -> None:
    """Two rounds of software time and stream time for each of four layers; and one way over the path for each."""
    links = [Link("drive", 1e9, 1e9), Link("narrow", 100.0, 100.0)]
    network = FlowNetwork(Clock(), links, LinkMeter([link.name for link in links]))

    def took_s(layers, in_flight, stream_bytes_per_s, link="drive"):
        software = SoftwarePath(in_flight=in_flight, software_s=0.5, stream_bytes_per_s=stream_bytes_per_s)
        leg = Leg(network.path([Hop(link, READ)]), 100, software, 1.0, layers=layers)
        return 4 * 100 / leg.ceiling_bytes_per_s(4)

    # 4 chunks of 100 B, two at once, 50 B/s each: 2 (0.5 + 100 / 50) s, or 4 times 2 (0.5 + 25 / 50) s.
    assert took_s(1, 2, 50.0) == pytest.approx(5.0)
    assert took_s(4, 2, 50.0) == pytest.approx(8.0)
    # No stream limit and all at once: the software's time, once or for each layer.
    assert took_s(1, 4, None) == pytest.approx(0.5, rel=1e-5)
    assert took_s(4, 4, None) == pytest.approx(2.0, rel=1e-5)
    # 400 B at 100 B/s besides.
    assert took_s(1, 4, None, "narrow") == pytest.approx(4.5)
    assert took_s(4, 4, None, "narrow") == pytest.approx(6.0)


def test_writes_are_as_many_objects() -> None:
    finished = []
    for way in ({"layerwise": True}, OBJECTS):
        transfer = {"load": "sync", "write_software": 0.1, "writes_in_flight": 32} | way
        result = serve(scenario(tiers=NVME, transfer=transfer), Rows(LONE_EARLIER), made_up_cost(fixed_s=1.0))
        moved = result.table("transfers")
        finished.append(moved["finished_at_s"][0] - moved["started_at_s"][0])
    assert finished == pytest.approx([0.1, LAYERS * 0.1], rel=0.05)


def test_all_loads_of_a_step_overlap_as_one() -> None:
    earlier = [Row(0.0, 64, 1, [1, 2]), Row(0.0, 96, 1, [3, 4, 5])]
    load = [Row(0.0, 65, 1, [1, 2]), Row(0.0, 97, 1, [3, 4, 5])]
    transfer = SLOW | {"load": "sync", "layerwise": True}
    done = run(load, earlier, made_up_cost(fixed_s=1.0), transfer=transfer)
    assert done["ttft_s"].tolist() == about([1.25 + 1.0 / LAYERS] * 2)


def test_quicker_counts_on_the_overlap() -> None:
    """A load of 0.75 s is not worth it beside 0.5 s of computing, unless most of both go on at once."""
    for layerwise, hit in ((False, 0), (True, 32)):
        transfer = SLOW | {"load": "sync", "layerwise": layerwise, "load_or_recompute": "quicker"}
        done = run(LONE, LONE_EARLIER, per_token(0.5 / 96), transfer=transfer)
        assert done["hit_tokens_nvme"].tolist() == [hit]


@pytest.mark.parametrize(
    ("transfer", "problem"),
    [
        ({"load": "async", "layerwise": True}, "is for load: sync"),
        ({"load": "sync", "layerwise": True, "staging": "store-and-forward"}, "is for staging: pipelined"),
        ({"load": "sync", "layer_objects": True}, "is for layerwise: true"),
    ],
)
def test_what_cannot_overlap_is_refused(transfer, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        scenario(tiers=NVME, transfer=transfer)


# From both ends ------------------------------------------------------------------------------------------------------

SIX = range(6)
SIX_EARLIER = [Row(0.0, 192, 1, SIX)]
SIX_LOAD = [Row(0.0, 193, 1, SIX)]
HALF = per_token(2.0**-6)  # half a second a chunk


def test_two_ended_meets_where_both_sides_take_equally_long() -> None:
    """Two chunks computed in the second in which four are loaded: quicker than either way alone."""
    found = {
        choice: run(SIX_LOAD, SIX_EARLIER, HALF, transfer=SLOW | {"load": "async", "load_or_recompute": choice})
        for choice in ("two-ended", "always-load", "always-recompute", "quicker")
    }
    last_s = 2.0**-6
    ttft_s = {choice: done["ttft_s"][0] for choice, done in found.items()}
    assert ttft_s["two-ended"] == about(1.0 + last_s)
    assert ttft_s["always-load"] == ttft_s["quicker"] == about(1.5 + last_s)
    assert ttft_s["always-recompute"] == about(3.0 + last_s)
    both = found["two-ended"]
    assert both["hit_tokens_nvme"].tolist() == [128]
    assert both["computed_prompt_tokens"].tolist() == [65]
    assert both["compute_s"][0] == pytest.approx(1.0 + last_s)
    assert both["load_s"][0] < 0.03  # what the computing did not hide
    assert both["load_nvme_s"][0] == about(1.0)


def test_two_ended_loads_more_where_computing_gets_no_budget() -> None:
    """Steps of 16 tokens beside others that decode: the load goes on with what it did not count on."""
    engine = {"max_num_batched_tokens": 16, "max_num_seqs": 16}
    decoding = [Row(0.0, 1, 60)] * 12
    load = [*decoding, Row(20.5, 193, 1, SIX)]
    transfer = SLOW | {"load": "async", "load_or_recompute": "two-ended", "read_software": 2.0}
    done = run(load, SIX_EARLIER, made_up_cost(fixed_s=1.0), transfer=transfer, engine=engine)
    # Alone it would compute 16 tokens a second, a chunk in 2 s as the drive does: three each. It computes 4 a second.
    assert done["hit_tokens_nvme"][12] > 96
    assert done["hit_tokens_nvme"][12] + done["computed_prompt_tokens"][12] == 193


def test_two_ended_computes_all_where_no_chunk_is_worth_its_load() -> None:
    transfer = SLOW | {"load": "async", "load_or_recompute": "two-ended", "read_software": 10.0}
    done = run(SIX_LOAD, SIX_EARLIER, HALF, transfer=transfer)
    assert done["hit_tokens_nvme"].tolist() == [0]
    assert done["ttft_s"][0] == 193 * 2.0**-6


def test_two_ended_loses_what_it_takes_from_the_others() -> None:
    """Another prompt has the step to itself where the first one is only loaded."""
    load = [*SIX_LOAD, Row(0.0, 128, 1)]
    found = {
        choice: run(load, SIX_EARLIER, HALF, transfer=SLOW | {"load": "async", "load_or_recompute": choice})["ttft_s"]
        for choice in ("two-ended", "always-load")
    }
    assert found["always-load"][1] == about(2.0)
    assert found["two-ended"][1] == about(3.0)
    assert found["two-ended"].mean() > found["always-load"].mean()


@pytest.mark.parametrize("block", [16, 32])
def test_a_prompt_that_is_there_to_its_last_token_loads_what_counts(block) -> None:
    transfer = SLOW | {"load": "async", "load_or_recompute": "two-ended", "read_software": 0.0}
    earlier, load = [Row(0.0, 192, 1, SIX)], [Row(0.0, 192, 1, SIX)]
    done = run(load, earlier, HALF, transfer=transfer, engine={"block_tokens": block})
    assert done["hit_tokens_nvme"][0] + done["computed_prompt_tokens"][0] == 192
    assert done["hit_tokens_nvme"][0] >= 128


def test_two_ended_is_for_asynchronous_loads() -> None:
    setup = scenario(tiers=NVME, transfer={"load": "sync", "load_or_recompute": "two-ended"})
    assert any("is two-ended, which is for load: async" in problem for _, problem in check_names(setup))


@pytest.mark.parametrize("choice", ["always-recompute", "quicker", "two-ended"])
def test_nothing_is_left_to_compute_at_the_end(choice) -> None:
    prompts = [list(range(10 * n, 10 * n + 6)) for n in range(3)]
    load = [Row(0.1 * n, 193 - 16 * (n % 4), 30, prompts[n % 3]) for n in range(12)]
    transfer = SLOW | {"load": "async", "load_or_recompute": choice}
    setup = scenario(hbm_blocks=40, tiers=NVME, transfer=transfer, engine={"max_num_batched_tokens": 48})
    simulation = prepared(setup, Rows(load), HALF)
    simulation.run()
    (replica,) = simulation.cluster.replicas
    assert replica.waiting_prefill_tokens == replica.outstanding_tokens == replica.outstanding_requests == 0
