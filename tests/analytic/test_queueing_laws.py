"""Where theory has an answer, the simulator gives it: by hand, M/M/1, M/D/1, processor sharing, Little's law."""

from collections.abc import Callable

import numpy as np
import pytest
from engine_kit import Row, Rows, made_up_cost, prepared, scenario, serve, table

from models.accelerator import load_accelerator
from models.llm import load_llm
from sim.clock import ARRIVAL, Clock
from sim.recording import LinkMeter
from sim.transfers.flows import READ, FlowNetwork, Hop, Link

RUNS = 10
STUDENT_T = 3.250  # its 99.5 % quantile with RUNS - 1 degrees of freedom
CUSTOMERS = 3000
WARMUP = 300
RATE_PER_S, SERVICE_S = 0.6, 1.0
TOKEN_S = 1e-4  # a prompt of 10,000 tokens is served in a second, so that rounding to tokens is nothing
ONE_AT_A_TIME = {"max_num_seqs": 1, "max_num_batched_tokens": 1 << 20, "prefix_caching": False}


def assert_mean(samples: list[float], expected: float) -> None:
    """The mean of independent runs agrees with theory at 99 %, and the interval is narrow enough to say something."""
    mean, spread = np.mean(samples), np.std(samples, ddof=1) / np.sqrt(len(samples))
    assert len(samples) == RUNS
    half = STUDENT_T * spread
    assert half < 0.15 * expected
    assert abs(mean - expected) < half, f"{mean} +- {half}, expected {expected}"


def mean_wait_s(seed: int, services_s: Callable[[np.random.Generator], np.ndarray]) -> float:
    random = np.random.default_rng(seed)
    arrivals_s = np.cumsum(random.exponential(1.0 / RATE_PER_S, CUSTOMERS))
    tokens = np.maximum(1, np.rint(services_s(random) / TOKEN_S)).astype(int)
    rows = [Row(float(a), int(n), 1, []) for a, n in zip(arrivals_s, tokens, strict=True)]
    done = table(serve(scenario(engine=ONE_AT_A_TIME), Rows(rows), made_up_cost(dense_compute_s_per_token=TOKEN_S)))
    return float(done["queue_s"][WARMUP:].mean())


def test_mm1_mean_wait():
    rho = RATE_PER_S * SERVICE_S
    waits = [mean_wait_s(seed, lambda random: random.exponential(SERVICE_S, CUSTOMERS)) for seed in range(RUNS)]
    assert_mean(waits, rho / (1.0 / SERVICE_S - RATE_PER_S))


def test_md1_mean_wait():
    # Pollaczek-Khinchine: half the wait of exponential services.
    rho = RATE_PER_S * SERVICE_S
    waits = [mean_wait_s(seed, lambda _: np.full(CUSTOMERS, SERVICE_S)) for seed in range(RUNS)]
    assert_mean(waits, rho / (2.0 * (1.0 / SERVICE_S - RATE_PER_S)))


def test_processor_sharing_mean_time():
    # M/M/1-PS: the mean time in the system is 1 / (mu - lambda), and insensitive to how sizes are spread.
    means: dict[str, list[float]] = {"exponential": [], "two sizes": []}
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        sizes = {
            "exponential": random.exponential(1e9, CUSTOMERS),
            "two sizes": np.where(random.random(CUSTOMERS) < 0.2, 3e9, 0.5e9),
        }
        for name, n_bytes in sizes.items():
            means[name].append(mean_transfer_s(np.cumsum(random.exponential(1.0 / RATE_PER_S, CUSTOMERS)), n_bytes))
    for samples in means.values():
        assert_mean(samples, 1.0 / (1.0 / SERVICE_S - RATE_PER_S))


def mean_transfer_s(arrivals_s: np.ndarray, n_bytes: np.ndarray) -> float:
    clock = Clock()
    links = [Link("pipe", 1e9, 1e9)]
    network = FlowNetwork(clock, links, LinkMeter([link.name for link in links]))
    path = network.path([Hop("pipe", READ)])
    times_s = np.zeros(len(arrivals_s))

    def begin(index: int):
        def ended() -> None:
            times_s[index] = clock.now_s - arrivals_s[index]

        return lambda _: network.start(path, float(n_bytes[index]), ended)

    for index, at_s in enumerate(arrivals_s):
        clock.at(float(at_s), ARRIVAL, begin(index))
    clock.run()
    return float(times_s[WARMUP:].mean())


# By hand -------------------------------------------------------------------------------------------------------------


def test_an_unloaded_miss_takes_its_roofline():
    """Llama 3.1 8B, 4,096 tokens on one H100: FLOPs by hand over the catalogue's delivered rate."""
    llm = load_llm("llama-3.1-8b")
    setup = scenario()
    simulation = prepared(setup, Rows([Row(0.0, 4096, 1)]))
    done = table(simulation.run())
    gpu = load_accelerator("h100-sxm")
    # 32 layers: q, k, v, o and three MLP matrices, and the output head for each token of the step.
    weights = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)
    head = 4096 * 128256
    attention = 32 * 4 * 4096 * 4096 * 4097 / 2  # 4 x heads x head size FLOPs a (query, key) pair and layer
    flops_per_s = gpu.delivered_flops_per_s("bf16")
    fixed_s = gpu.step_fixed_s + llm.layers * gpu.layer_fixed_s
    low_s = fixed_s + (4096 * 2 * weights + attention) / flops_per_s
    high_s = fixed_s + (4096 * 2 * (weights + head) + attention) / flops_per_s
    assert low_s * 0.999 <= done["ttft_s"][0] <= high_s * 1.001


def test_a_dram_hit_takes_its_bytes_over_the_link_and_a_latency():
    tiers = {"dram": {"device": "ddr5", "capacity": 4e9}}
    links = {"host-link": {"bandwidth": 10e9, "latency": 0.25, "delivered_fraction": 1.0}}
    rows = [Row(0.0, 321, 1, range(10)), Row(10.0, 321, 1, range(10))]
    for load in ("sync", "async"):
        # HBM of 22 blocks: a prompt in between drives the first one out.
        between = Row(5.0, 321, 1)
        setup = scenario(hbm_blocks=22, tiers=tiers, links=links, transfer={"load": load})
        done = table(serve(setup, Rows([rows[0], between, rows[1]]), made_up_cost(dense_compute_s_per_token=1e-3)))
        load_s = 0.25 + 10 * 32 * 131072 / 10e9
        assert done["hit_tokens_dram"].tolist() == [0, 0, 320]
        assert done["load_dram_s"][2] == pytest.approx(load_s, rel=1e-5)
        assert done["ttft_s"][2] == pytest.approx(load_s + 1e-3, rel=1e-5)
        assert done["ttft_s"][0] == pytest.approx(0.321, rel=1e-12)


def test_two_in_a_queue():
    engine = ONE_AT_A_TIME
    done = table(
        serve(
            scenario(engine=engine),
            Rows([Row(0.0, 100, 1), Row(0.03, 50, 1)]),
            made_up_cost(dense_compute_s_per_token=1e-3),
        )
    )
    assert done["ttft_s"].tolist() == pytest.approx([0.1, 0.1 + 0.05 - 0.03])
    assert done["queue_s"].tolist() == pytest.approx([0.0, 0.07])


# Little's law --------------------------------------------------------------------------------------------------------

FAMILY = {
    "open, one replica": {"hbm_blocks": 400},
    "preempting": {"hbm_blocks": 40},
    "tiers, synchronous": {
        "hbm_blocks": 60,
        "tiers": {"dram": {"device": "ddr5", "capacity": 1e9}, "nvme": {"device": "nvme-gen4", "capacity": 1e11}},
        "transfer": {"load": "sync", "store": "sync", "read_software": 1e-3},
    },
    "tiers, asynchronous, two replicas": {
        "hbm_blocks": 60,
        "tiers": {"dram": {"device": "ddr5", "capacity": 1e9, "scope": "shared"}},
        "transfer": {"load": "async", "store": "async"},
        "cluster": {"replicas": 2, "router": "least-loaded"},
    },
    "front end": {"hbm_blocks": 400, "engine": {"request_latency": 0.05, "tokenize_tokens_per_s": 20_000}},
}


@pytest.mark.parametrize("name", FAMILY)
def test_littles_law(name):
    """The time average of the number in the system, watched while it runs, is the rate times the mean time."""
    random = np.random.default_rng(5)
    at_s = np.cumsum(random.exponential(0.05, 300))
    rows = [
        Row(float(t), int(random.integers(1, 300)), int(random.integers(1, 60)), range(40 * (i % 9), 40 * (i % 9) + 9))
        for i, t in enumerate(at_s)
    ]
    cost = made_up_cost(fixed_s=2e-3, dense_compute_s_per_token=2e-4, memory_s_per_context_token=1e-6)
    simulation = prepared(scenario(**FAMILY[name]), Rows(rows), cost)
    cluster, clock = simulation.cluster, simulation.clock
    area, last_s, inside = 0.0, 0.0, 0

    def changed(by: int) -> None:
        nonlocal area, last_s, inside
        area += inside * (clock.now_s - last_s)
        last_s, inside = clock.now_s, inside + by

    submit = cluster.submit

    def submitted(**request) -> None:
        changed(+1)
        submit(**request)

    cluster.submit = submitted
    cluster.on_progress = lambda: changed(-1)
    done = table(simulation.run())
    assert inside == 0
    rate_per_s = len(rows) / last_s
    assert area / last_s == pytest.approx(rate_per_s * done["e2e_s"].mean(), rel=1e-9)
