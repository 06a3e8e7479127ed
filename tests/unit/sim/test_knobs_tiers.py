"""Every knob of a tier, of the software path and of a link moves the figure that it should, and in the right direction.

One small run a value: eight contexts of 1 GB in turn, of which HBM holds two and DRAM two, so that most hits come from
the drive or the array.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.run_spec import LinkSpec
from scenarios.schema import Transfer
from scenarios.tier_spec import Encoding, TierSpec

SMALL = """\
name: knobs
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
tiers:
  hbm: {capacity: 3 GB}
  dram: {device: ddr5, capacity: 2.5 GB}
  %s
workload:
  closed_loop: {concurrency: 2, requests: 32, sessions: 8, prompt_tokens: 8000, output_tokens: 4}
"""
NVME = "nvme: {device: nvme-gen4, capacity: 50 GB}"
FABRIC = "fabric: {device: fx100, capacity: 50 GB}"
BOTH = NVME + "\n  " + FABRIC
CACHED = "cache: {device: ddr5, capacity: 10 GB, page_cache_of: nvme}\n  " + NVME
TWO_REPLICAS = "cluster.replicas=2 cluster.replicas_per_node=2 workload.closed_loop.sessions=7 tiers.dram.capacity=1GB"
ONE_CLIENT = "workload.closed_loop.concurrency=1"
# The ninth request is the first to hit, when 8 GB have lost a few chunks of its context of 8.4 GB in all.
FIRST_HIT = "workload.closed_loop.concurrency=1 workload.closed_loop.requests=9"
SESSIONS = (
    "workload.closed_loop=null workload.synthetic.requests=300 workload.synthetic.block_tokens=64 cluster.replicas=2 "
    "workload.sessions.think_scale=0 cluster.replicas_per_node=2 cluster.router=session-affinity "
    "tiers.dram.placement=none tiers.hbm.capacity=40GB transfer.chunk_tokens=64"
)
FEW_TURNS = "workload.closed_loop.requests=9"
ENCODED = (
    "tiers.nvme.encoding.format=fp8 tiers.nvme.encoding.encode_bandwidth=20GB/s "
    "tiers.nvme.encoding.decode_bandwidth=20GB/s"
)
EIGHT_CLIENTS = "workload.closed_loop.concurrency=8 "
RECOMPUTES = "engine.kv_load_failure_policy=recompute"
SLOW_READS = "transfer.reads_in_flight=1 transfer.read_stream_bandwidth=500MB/s"
SLOW_COPIES = "links.host-link.bandwidth=1GB/s tiers.dram.capacity=20GB"
DIRECT = "tiers.dram.placement=none"
CROWDED_DRIVE = "links.nvme.bandwidth=400MB/s"
AHEAD = f"workload.closed_loop.concurrency=6 tiers.dram.capacity=12GB tiers.dram.promotion=never {DIRECT}"

Figure = Callable[[dict[str, Any]], float]


def ttft(s: dict[str, Any]) -> float:
    return float(s["ttft_s"]["mean"])


def makespan(s: dict[str, Any]) -> float:
    return float(s["makespan_s"])


def itl(s: dict[str, Any]) -> float:
    return float(s["itl_s"]["max"])


def hits(name: str) -> Figure:
    return lambda s: float(s["tiers"][name]["hit_tokens"])


def written(name: str) -> Figure:
    return lambda s: float(s["tiers"][name]["write_bytes"])


def link_written(name: str) -> Figure:
    return lambda s: float(s["links"][name]["write_bytes"])


def read(name: str) -> Figure:
    return lambda s: float(s["tiers"][name]["read_bytes"])


def evicted(name: str) -> Figure:
    return lambda s: float(s["tiers"][name]["evicted_bytes"])


def held(name: str) -> Figure:
    return lambda s: float(s["tiers"][name]["capacity_bytes"])


def crossing(name: str, direction: str = "read") -> Figure:
    return lambda s: float(s["links"][name][f"{direction}_bytes"])


class Knob(NamedTuple):
    """The first value's figure is below the second's (or above it where it does not rise)."""

    key: str
    values: tuple[object, object]
    figure: Figure
    rises: bool
    more: str = ""
    last: str = NVME


@cache
def run(last: str, overrides: tuple[str, ...], directory: Path) -> dict[str, Any]:
    path = directory / f"knobs-{abs(hash(last))}.yaml"
    path.write_text(SMALL % last, encoding="utf-8")
    summary = simulate(load_scenario(str(path), overrides=list(overrides))).summary()
    assert summary["requests"]["completed"] == summary["requests"]["submitted"]
    return summary


MRU = """\
from sim.policies.eviction import Lru

class Mru(Lru):
    def victims(self):
        return reversed(list(super().victims()))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("knobs")
    (path / "mru_for_knobs.py").write_text(MRU, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path)
        yield path


KNOBS = [
    # Tiers
    Knob("tiers.nvme.count", (1, 2), ttft, rises=False),
    Knob("tiers.nvme.device", ("nvme-gen3", "nvme-gen5"), ttft, rises=False),
    Knob("tiers.nvme.capacity", ("3 GB", "50 GB"), hits("nvme"), rises=True),
    Knob("tiers.dram.capacity", ("2.5 GB", "9 GB"), hits("dram"), rises=True),
    Knob("tiers.hbm.capacity", ("3 GB", "9 GB"), hits("hbm"), rises=True),
    Knob("tiers.fabric.ports", (1, 2), ttft, rises=False, more="tiers.fabric.drives=24", last=FABRIC),
    Knob("tiers.fabric.drives", (1, 4), ttft, rises=False, more="tiers.fabric.ports=4", last=FABRIC),
    Knob("tiers.nvme.layout.parity", (0, 1), link_written("nvme"), rises=True, more="tiers.nvme.count=2"),
    Knob("tiers.nvme.eviction", ("lru", "mru_for_knobs:Mru"), hits("nvme"), rises=True, more="tiers.nvme.capacity=5GB"),
    Knob("tiers.nvme.placement", ("none", "write-through"), hits("nvme"), rises=True),
    Knob(
        "tiers.nvme.placement",
        ("write-through", "write-back"),
        written("nvme"),
        rises=False,
        more="tiers.dram.capacity=10GB",
    ),
    Knob(
        "tiers.dram.promotion",
        ("never", "always"),
        hits("dram"),
        rises=True,
        more=f"tiers.dram.capacity=10GB {DIRECT}",
    ),
    Knob(
        "tiers.nvme.promotion",
        ("never", "always"),
        written("nvme"),
        rises=True,
        more="tiers.nvme.placement=none",
        last=BOTH,
    ),
    Knob("tiers.nvme.stores", ("prompt", "prompt+output"), hits("nvme"), rises=True, more=SESSIONS),
    Knob("tiers.hbm.stores", ("prompt", "prompt+output"), hits("hbm"), rises=True, more=SESSIONS),
    Knob("tiers.nvme.admission", ("null", "frequency"), written("nvme"), rises=False, more="tiers.nvme.capacity=5GB"),
    Knob(
        "tiers.nvme.watermarks",
        ("null", "{high: 0.5, low: 0.1}"),
        hits("nvme"),
        rises=False,
        more="tiers.nvme.capacity=9GB",
    ),
    Knob("tiers.nvme.load_failure_probability", (0, 0.5), ttft, rises=True, more=RECOMPUTES),
    Knob("tiers.nvme.load_failure_probability", (0, 0.5), hits("nvme"), rises=False, more=RECOMPUTES),
    Knob("tiers.nvme.max_store_backlog", ("100 MB", "null"), written("nvme"), rises=True, more=FEW_TURNS),
    Knob(
        "tiers.nvme.inclusion",
        ("inclusive", "exclusive"),
        written("nvme"),
        rises=True,
        more="tiers.nvme.placement=write-back tiers.dram.placement=write-back",
    ),
    Knob("tiers.nvme.encoding.format", ("int4", "fp8"), written("nvme"), rises=True, more=ENCODED),
    Knob("tiers.nvme.encoding.ratio", (0.25, 0.5), read("nvme"), rises=True, more=ENCODED),
    Knob(
        "tiers.nvme.encoding.encode_bandwidth",
        ("100 MB/s", "50 GB/s"),
        makespan,
        rises=False,
        more=f"{ENCODED} {DIRECT} {FEW_TURNS}",
    ),
    Knob("tiers.nvme.encoding.decode_bandwidth", ("1 GB/s", "50 GB/s"), ttft, rises=False, more=ENCODED),
    Knob("links.nvme.codec.bandwidth", ("1 GB/s", "50 GB/s"), ttft, rises=False, more=ENCODED),
    Knob("tiers.nvme.gds", (True, False), crossing("dram"), rises=True),
    Knob("tiers.nvme.index", ("process", "filesystem"), hits("nvme"), rises=True, more=TWO_REPLICAS),
    Knob("tiers.nvme.scope", ("replica", "node"), hits("nvme"), rises=True, more=TWO_REPLICAS),
    Knob("tiers.dram.scope", ("worker", "node"), held("dram"), rises=False, more="cluster.tensor_parallel=2"),
    Knob(
        "tiers.dram.on_full",
        ("drop", "wait"),
        written("dram"),
        rises=True,
        more="tiers.dram.capacity=1.1GB tiers.dram.promotion=never links.nvme.bandwidth=100MB/s",
    ),
    Knob("tiers.nvme.evicts", (False, True), written("nvme"), rises=True, more="tiers.nvme.capacity=5GB"),
    Knob(
        "tiers.nvme.structure",
        ("hashmap", "leaf_constrained"),
        hits("nvme"),
        rises=True,
        more=f"{FIRST_HIT} {DIRECT} tiers.nvme.capacity=8GB transfer.insertion=head-first",
    ),
    Knob("tiers.cache.page_cache_of", ("nvme", "null"), crossing("host-link", "write"), rises=True, last=CACHED),
    # Software
    Knob("transfer.load", ("async", "sync"), itl, rises=True),
    # Two clients, so that one decodes while the other loads.
    Knob("transfer.storage_load", ("async", "sync"), itl, rises=True, more="transfer.load=async"),
    Knob("transfer.storage_load", ("async", "sync"), itl, rises=True, more="transfer.load=sync"),
    Knob("transfer.store", ("async", "sync"), itl, rises=True, more="links.host-link.bandwidth=1GB/s"),
    Knob(
        "transfer.chunk_tokens",
        (64, 1024),
        ttft,
        rises=False,
        more="transfer.reads_in_flight=1 transfer.read_software=1ms",
    ),
    Knob(
        "transfer.split_chunks",
        (False, True),
        ttft,
        rises=True,
        more="engine.chunk_tokens=256 transfer.chunk_tokens=16 transfer.reads_in_flight=1 transfer.read_software=1ms",
    ),
    Knob(
        "transfer.io_process",
        ("worker", "replica"),
        ttft,
        rises=True,
        more="cluster.tensor_parallel=2 transfer.reads_in_flight=1 transfer.read_stream_bandwidth=1GB/s",
    ),
    Knob("transfer.loads_in_flight", (1, "null"), ttft, rises=False, more=EIGHT_CLIENTS + SLOW_READS),
    Knob("transfer.copies_in_flight", (1, "null"), ttft, rises=True, more=EIGHT_CLIENTS + SLOW_COPIES),
    Knob("transfer.reads_in_flight", (1, 8), ttft, rises=False, more="transfer.read_software=10ms"),
    Knob(
        "transfer.writes_in_flight",
        (1, 8),
        makespan,
        rises=False,
        more=f"transfer.write_software=50ms {DIRECT}",
    ),
    Knob("transfer.read_software", ("0 s", "5 ms"), ttft, rises=True, more="transfer.reads_in_flight=1"),
    Knob(
        "transfer.write_software",
        ("0 s", "50 ms"),
        makespan,
        rises=True,
        more=f"transfer.writes_in_flight=1 {DIRECT}",
    ),
    Knob(
        "transfer.read_stream_bandwidth", ("100 MB/s", "1 GB/s"), ttft, rises=False, more="transfer.reads_in_flight=4"
    ),
    Knob(
        "transfer.write_stream_bandwidth",
        ("10 MB/s", "1 GB/s"),
        makespan,
        rises=False,
        more=f"{DIRECT}",
    ),
    Knob("transfer.process_bandwidth", ("100 MB/s", "5 GB/s"), ttft, rises=False),
    Knob(
        "transfer.eviction_software",
        ("0 s", "20 ms"),
        makespan,
        rises=True,
        more=f"tiers.nvme.capacity=3GB {DIRECT}",
    ),
    Knob("transfer.request_software", ("0 s", "30 ms"), ttft, rises=True, more="transfer.load=sync"),
    Knob("transfer.request_software", ("0 s", "30 ms"), ttft, rises=True, more="transfer.load=async"),
    Knob(
        "transfer.staging_timeout",
        ("1 ms", "null"),
        hits("nvme"),
        rises=True,
        more=f"{EIGHT_CLIENTS} {SLOW_READS} {RECOMPUTES}",
    ),
    Knob("transfer.staging", ("pipelined", "store-and-forward"), ttft, rises=True),
    Knob(
        "transfer.lookup",
        ("any", "grouped"),
        hits("dram"),
        rises=False,
        more=f"{FIRST_HIT} tiers.dram.capacity=8GB transfer.insertion=head-first",
    ),
    Knob(
        "transfer.insertion",
        ("head-first", "tail-first"),
        hits("nvme"),
        rises=True,
        more=f"{FIRST_HIT} {DIRECT} tiers.nvme.capacity=8GB",
    ),
    Knob("transfer.load_or_recompute", ("always-recompute", "always-load"), hits("nvme"), rises=True),
    Knob("transfer.load_or_recompute", ("always-load", "quicker"), ttft, rises=False, more=CROWDED_DRIVE),
    Knob("transfer.load_or_recompute", ("always-load", "two-ended"), ttft, rises=False, more=CROWDED_DRIVE),
    Knob("transfer.layerwise", (False, True), ttft, rises=False, more="transfer.load=sync"),
    Knob(
        "transfer.layer_objects",
        (False, True),
        ttft,
        rises=True,
        more="transfer.load=sync transfer.layerwise=true transfer.read_software=1ms",
    ),
    Knob("transfer.prefetch", ("none", "at-enqueue"), hits("dram"), rises=True, more=AHEAD),
    Knob("transfer.prefetch", ("none", "look-ahead"), hits("dram"), rises=True, more=AHEAD),
    Knob("transfer.min_load_tokens", (0, 100_000), hits("nvme"), rises=False),
    # Links
    Knob("links.nvme.bandwidth", ("1 GB/s", "6 GB/s"), ttft, rises=False),
    Knob("links.nvme.bandwidth", ("6.8 GB/s", "20 GB/s"), ttft, rises=False),
    Knob("links.nvme.latency", ("0 s", "10 ms"), ttft, rises=True, more=ONE_CLIENT),
    Knob("links.nvme.delivered_fraction", (0.5, 1.0), ttft, rises=False),
    Knob("links.host-link.bandwidth", ("5 GB/s", "50 GB/s"), ttft, rises=False),
    Knob("links.host-link.latency", ("0 s", "10 ms"), ttft, rises=True),
    Knob("links.host-link.delivered_fraction", (0.1, 1.0), ttft, rises=False),
    Knob("links.dram.bandwidth", ("5 GB/s", "400 GB/s"), ttft, rises=False),
    Knob("links.fabric.bandwidth", ("10 Gbit/s", "100 Gbit/s"), ttft, rises=False, last=FABRIC),
    Knob("links.nic.bandwidth", ("10 Gbit/s", "100 Gbit/s"), ttft, rises=False, last=FABRIC),
    Knob("links.nic.latency", ("0 s", "10 ms"), ttft, rises=True, last=FABRIC),
    Knob(
        "cluster.switch",
        ("null", "roce-100g"),
        ttft,
        rises=True,
        more="tiers.fabric.ports=6 tiers.fabric.drives=24",
        last=FABRIC,
    ),
    Knob(
        "links.switch.bandwidth",
        ("10 Gbit/s", "100 Gbit/s"),
        ttft,
        rises=False,
        more="cluster.switch=roce-100g",
        last=FABRIC,
    ),
    Knob("tiers.fabric.transport", ("nvmeof-rdma", "nvmeof-tcp"), ttft, rises=True, last=FABRIC),
]


@pytest.mark.parametrize("knob", KNOBS, ids=[f"{knob.key}-{knob.values[1]}" for knob in KNOBS])
def test_a_knob_moves_its_figure(knob: Knob, directory: Path) -> None:
    low, high = (
        knob.figure(run(knob.last, (*knob.more.split(), f"{knob.key}={value}"), directory)) for value in knob.values
    )
    assert low < high if knob.rises else low > high


@pytest.mark.parametrize(("part", "spec"), [("tiers", TierSpec), ("transfer", Transfer), ("links", LinkSpec)])
def test_no_knob_is_missing_here(part: str, spec: type[TierSpec | Transfer | LinkSpec]) -> None:
    place = 1 if part == "transfer" else 2
    tested = {knob.key.split(".")[place] for knob in KNOBS if knob.key.startswith(f"{part}.")}
    assert tested - {"codec"} == set(spec.model_fields)
    encoding = {knob.key.rsplit(".", 1)[1] for knob in KNOBS if ".encoding." in knob.key}
    assert encoding == set(Encoding.model_fields)
