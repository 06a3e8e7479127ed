"""Links, pools and paths of small clusters: names, rates, passes through memory, and who sees whose chunks."""

from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from runs_kit import runs

from models.accelerator import load_accelerator
from models.errors import ScenarioError
from models.llm import load_llm
from scenarios.loader import load_scenario
from scenarios.topology import Engines, Geometry, Topology, geometry
from sim.clock import Clock
from sim.prefix_tree import KEY_BITS
from sim.recording import TransferLog
from sim.tiers.attached import AttachedTier
from sim.tiers.hierarchy import KvHierarchy
from sim.transfers.flows import FlowNetwork, Link

GB = 1e9
TEXT = """\
name: topology
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: %d, replicas_per_node: %d}
tiers:
  hbm:
%s
workload:
  synthetic: {requests: 10}
"""
DRAM = "  dram: {device: ddr5, capacity: 10 GB%s}\n"
NVME = "  nvme: {device: nvme-gen4, capacity: 10 GB%s}\n"
FABRIC = "  fabric: {device: fx100, capacity: 10 GB%s}\n"
CACHE = "  cache: {device: ddr5, capacity: 1 GB, page_cache_of: nvme%s}\n"


class Built:
    """A topology and what its replicas see."""

    def __init__(self, path: str, overrides: tuple[str, ...]) -> None:
        scenario = load_scenario(path, overrides=list(overrides))
        accelerator = load_accelerator(scenario.cluster.accelerator)
        self.sizes: Geometry = geometry(scenario, load_llm(scenario.llm), 256)
        engines = Engines(accelerator=accelerator, sizes=self.sizes, hbm_bytes=int(20 * GB))
        self.topology = Topology(scenario, engines)
        self.network: FlowNetwork = self.topology.network(Clock())[0]
        self.replicas: list[KvHierarchy] = self.topology.hierarchies(Clock(), self.network, TransferLog(["hbm"]))
        self.links: dict[str, Link] = {link.name: link for link in self.network.links}

    def tier(self, name: str, replica: int = 0) -> AttachedTier:
        return next(t for t in self.replicas[replica].tiers if t.tier.name == name)

    def read_gb_per_s(self, name: str) -> list[float]:
        return [leg.path.capacity_bytes_per_s / GB for leg in self.tier(name).read_legs]

    def write_gb_per_s(self, name: str) -> float:
        return self.tier(name).write_leg.path.capacity_bytes_per_s / GB


Build = Callable[..., Built]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def make(*tiers: str, replicas: int = 1, per_node: int = 1, links: str = "", overrides: str = "") -> Built:
        text = TEXT % (replicas, per_node, "".join(t % "" if "%s" in t else t for t in tiers))
        path = tmp_path / "topology.yaml"
        path.write_text(text + (f"links: {links}\n" if links else ""), encoding="utf-8")
        return Built(str(path), tuple(overrides.split()))

    return make


# Links ---------------------------------------------------------------------------------------------------------------


def test_a_single_replica_needs_no_numbers(build: Build) -> None:
    assert set(build(DRAM, NVME, FABRIC).links) == {"host-link", "nic", "dram", "nvme", "fabric", "fabric.drives"}


def test_arrays_and_object_stores_whose_ports_nobody_knows_are_reached_over_the_network_too(build: Build) -> None:
    built = build(DRAM, "  store: {device: object-store, capacity: 10 GB}\n", replicas=2)
    assert set(built.links) == {
        *(f"{name}.{node}" for name in ("host-link", "nic", "dram") for node in range(2)),
        "store",
    }
    assert built.read_gb_per_s("store") == [pytest.approx(0.99 * 50)]  # the card, not the 60 GB/s of the store


def test_numbers_tell_apart_what_there_is_several_of(build: Build) -> None:
    built = build(DRAM, NVME, FABRIC, replicas=4, per_node=2)
    assert set(built.links) == {
        *(f"host-link.{replica}" for replica in range(4)),
        *(f"{name}.{node}" for name in ("nic", "dram", "nvme") for node in range(2)),
        "fabric",
        "fabric.drives",
    }
    assert built.topology.loading_links()["fabric"] == sorted(
        {"fabric", "fabric.drives", "dram.0", "dram.1", "nic.0", "nic.1", *(f"host-link.{r}" for r in range(4))}
    )


def test_each_replica_has_drives_of_its_own_where_the_scope_says_so(build: Build) -> None:
    built = build(NVME % ", scope: replica", replicas=4, per_node=2)
    assert {f"nvme.{replica}" for replica in range(4)} < set(built.links)
    assert len(built.topology.pools()["nvme"]) == 4


def test_bounce_buffers_need_memory_only_without_a_memory_tier_or_gds(build: Build) -> None:
    assert "host-memory" in build(NVME).links
    assert "host-memory" not in build(NVME % ", gds: true, placement: write-back").links
    assert "host-memory" in build(NVME % ", gds: true", FABRIC % ", gds: true, placement: write-back").links
    assert "host-memory" not in build(DRAM, NVME).links


def test_a_nominal_rate_delivers_what_the_catalogues_link_does(build: Build) -> None:
    built = build(
        FABRIC, links="{fabric: {bandwidth: 80 Gbit/s}, host-link: {bandwidth: 20 GB/s, delivered_fraction: 0.5}}"
    )
    assert built.links["fabric"].read_bytes_per_s == pytest.approx(10 * GB * 0.853)
    assert built.links["host-link"].write_bytes_per_s == pytest.approx(10 * GB)


def test_another_delivered_share_scales_the_catalogues_rate(build: Build) -> None:
    before = build(FABRIC).links["fabric"].read_bytes_per_s
    after = build(FABRIC, links="{fabric: {delivered_fraction: 0.4265}}").links["fabric"].read_bytes_per_s
    assert after == pytest.approx(before / 2)


def test_one_link_of_several_can_be_set_apart(build: Build) -> None:
    built = build(NVME, replicas=2, links="{nvme: {bandwidth: 2 GB/s}, nvme.1: {bandwidth: 3 GB/s}}")
    assert [built.links[f"nvme.{node}"].read_bytes_per_s / GB for node in range(2)] == [2.0, 3.0]


def test_a_link_may_be_made_faster_than_its_device(build: Build) -> None:
    built = build(NVME, links="{nvme: {bandwidth: 30 GB/s}}")
    assert built.read_gb_per_s("nvme") == [pytest.approx(30.0)]


def test_many_small_pieces_are_limited_by_iops(build: Build) -> None:
    # A chunk is 33.5 MB; over 2048 stages that makes pieces of 16 KiB, of which the drive writes 180 k/s.
    built = build(NVME, overrides="cluster.pipeline_parallel=2048")
    assert built.write_gb_per_s("nvme") == pytest.approx(180e3 * 16384 / GB)


def test_latency_is_that_of_the_direction_unless_it_is_given(build: Build) -> None:
    built = build(NVME % ", gds: true")
    assert built.tier("nvme").read_legs[0].software.software_s == pytest.approx(70e-6)
    assert built.tier("nvme").write_leg.software.software_s == pytest.approx(15e-6)
    built = build(NVME % ", gds: true", links="{nvme: {latency: 1 ms}}")
    assert built.tier("nvme").read_legs[0].software.software_s == pytest.approx(1e-3)
    assert built.tier("nvme").write_leg.software.software_s == pytest.approx(1e-3)


def test_a_link_that_is_not_there_cannot_be_set(build: Build) -> None:
    with pytest.raises(ScenarioError, match=r"links\.nvm: no such link here; allowed: .*nvme"):
        build(NVME, links="{nvm: {latency: 1 ms}}")


# Passes through memory -----------------------------------------------------------------------------------------------

SLOW_MEMORY = "{dram: {bandwidth: 1 GB/s}}"  # so slow that its rate over the passes is what a path gets


@pytest.mark.parametrize(
    ("tiers", "overrides", "passes"),
    [
        ((DRAM, NVME), "", [2]),
        ((DRAM, NVME % ", gds: true"), "", [0]),
        ((DRAM, CACHE, NVME), "", [4]),
        ((DRAM, NVME), "transfer.staging=store-and-forward", [1, 1]),
        ((DRAM, CACHE, NVME), "transfer.staging=store-and-forward", [3, 1]),
    ],
)
def test_a_read_crosses_memory_as_often_as_it_is_copied(
    build: Build, tiers: tuple[str, ...], overrides: str, passes: list[int]
) -> None:
    built = build(*tiers, links=SLOW_MEMORY, overrides=overrides)
    assert built.read_gb_per_s("nvme") == [pytest.approx(1 / n if n else 6.8) for n in passes]


@pytest.mark.parametrize(
    ("tiers", "passes"),
    [
        ((DRAM, NVME), 1),  # read from the DRAM pool
        ((DRAM % ", placement: none", NVME), 2),
        ((DRAM, NVME % ", gds: true"), 0),
        ((DRAM, CACHE, NVME), 3),  # read from the pool, into the page cache and out of it
        ((DRAM % ", placement: none", CACHE, NVME), 4),
        ((DRAM % ", placement: none", NVME, FABRIC % ", placement: write-back"), 2),  # from drive to array
    ],
)
def test_a_write_crosses_memory_as_often_as_it_is_copied(build: Build, tiers: tuple[str, ...], passes: int) -> None:
    built = build(*tiers, links=SLOW_MEMORY)
    assert built.write_gb_per_s(built.replicas[0].tiers[-1].tier.name) == pytest.approx(1 / passes if passes else 4.24)


def test_workers_with_copies_of_their_own_read_each_from_memory(build: Build) -> None:
    shared = build(DRAM, links=SLOW_MEMORY, overrides="cluster.tensor_parallel=16")
    own = build(DRAM % ", scope: worker", links=SLOW_MEMORY, overrides="cluster.tensor_parallel=16")
    assert shared.sizes.replication == 2.0
    assert shared.read_gb_per_s("dram") == [pytest.approx(1.0)]
    assert own.read_gb_per_s("dram") == [pytest.approx(0.5)]
    assert own.tier("dram").tier.chunk_bytes == 2 * shared.tier("dram").tier.chunk_bytes
    # Ten gigabytes of each worker, and a chunk takes an eighth of its bytes of each.
    assert own.tier("dram").tier.capacity_units == int(10 * GB // (own.sizes.chunk_bytes / 8))


def test_a_second_tier_of_memory_is_read_directly_and_fed_from_the_first(build: Build) -> None:
    built = build(DRAM, "  cxl: {device: cxl-2.0-x8, capacity: 10 GB}\n", NVME, links=SLOW_MEMORY)
    cxl, nvme = built.tier("cxl"), built.tier("nvme")
    assert (cxl.stages, cxl.fed_from_staging) == (False, True)
    assert (nvme.stages, nvme.fed_from_staging) == (True, True)
    assert built.read_gb_per_s("cxl")[0] > 1.0


# Whose chunks --------------------------------------------------------------------------------------------------------

PROCESS = ", index: process"


def offsets(built: Built, name: str) -> list[int]:
    return [built.tier(name, replica).key_offset >> KEY_BITS for replica in range(len(built.replicas))]


def test_a_process_index_keeps_replicas_apart_only_where_they_share_a_pool(build: Build) -> None:
    assert offsets(build(NVME % PROCESS, replicas=4, per_node=2), "nvme") == [0, 1, 2, 3]
    assert offsets(build(NVME % PROCESS, replicas=4, per_node=1), "nvme") == [0, 0, 0, 0]
    assert offsets(build(NVME % "", replicas=4, per_node=2), "nvme") == [0, 0, 0, 0]
    assert offsets(build(FABRIC % PROCESS, replicas=4, per_node=1), "fabric") == [0, 1, 2, 3]


def test_a_page_cache_names_chunks_as_its_tier_does(build: Build) -> None:
    built = build(CACHE, NVME % f"{PROCESS}, scope: replica", replicas=4, per_node=2)
    assert offsets(built, "cache") == offsets(built, "nvme") == [0, 1, 2, 3]


def test_a_page_cache_forgets_what_its_own_node_evicts(build: Build) -> None:
    built = build(CACHE, NVME, replicas=4, per_node=2)
    caches, drives = built.topology.pools()["cache"], built.topology.pools()["nvme"]
    assert [built.tier("nvme", replica).page_cache for replica in range(4)] == [c for c in caches for _ in range(2)]
    for pool in (*caches, *drives):
        pool.reserve(runs(1))
        pool.arrive(runs(1))
    drives[1].clear()
    assert [1 in cache.ready for cache in caches] == [True, False]


def test_a_shared_array_clears_the_page_caches_of_all_nodes(build: Build) -> None:
    built = build(CACHE.replace("nvme", "fabric"), FABRIC, replicas=2)
    caches, arrays = built.topology.pools()["cache"], built.topology.pools()["fabric"]
    for pool in (*caches, *arrays):
        pool.reserve(runs(1))
        pool.arrive(runs(1))
    arrays[0].clear()
    assert not any(cache.ready for cache in caches)


def test_write_backs_hang_on_the_tier_above_that_has_chunks_of_its_own(build: Build) -> None:
    built = build(CACHE, NVME % ", placement: write-back", FABRIC % ", placement: write-back", replicas=2)
    pools = built.topology.pools()
    assert all(pool.spill is not None for pool in (*built.topology.hbm, *pools["nvme"]))
    assert all(pool.spill is None for pool in (*pools["cache"], *pools["fabric"]))


def test_a_restart_loses_what_is_indexed_in_the_process(build: Build) -> None:
    assert build(DRAM % PROCESS, NVME).topology.process_tiers() == {"hbm", "dram"}


# Pools that cannot be ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        ("  dram: {device: ddr5}\n", r"tiers\.dram\.capacity: is missing"),
        ("  dram: {device: ddr5, capacity: 1 MB}\n", r"tiers\.dram\.capacity: is .* must hold at least one chunk"),
        (NVME % ", scope: worker", r"tiers\.nvme\.scope: worker is for memory only"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(build: Build, tier: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        build(tier)


def test_links_count_each_byte_as_often_as_it_crosses(build: Build) -> None:
    """The latent KV of DeepSeek-V3 is on each of 8 GPUs, but once in storage and once in the bounce buffer."""
    built = build(NVME, overrides="llm=deepseek-v3 cluster.tensor_parallel=8")
    (leg,) = built.tier("nvme").read_legs
    built.network.start(leg.path, GB, lambda: None)
    moved = dict(zip(built.links, built.network.link_bytes, strict=True))
    assert moved == {"host-link": [8 * GB, 0.0], "nvme": [GB, 0.0], "host-memory": [GB, GB]}


@pytest.mark.parametrize(
    ("llm", "processes"),
    [("deepseek-v3", 1), ("qwen3-235b-a22b", 4), ("llama-3.1-70b", 8)],
)
def test_workers_that_hold_the_same_kv_read_it_no_faster(build: Build, llm: str, processes: int) -> None:
    """MLA keeps one latent vector, and 4 KV heads make 4 different shards on 8 GPUs."""
    settings = f"llm={llm} cluster.tensor_parallel=8 transfer.process_bandwidth=1GB/s tiers.nvme.count=8"
    (leg,) = build(NVME, overrides=settings).tier("nvme").read_legs
    assert leg.ceiling_bytes_per_s(100) == pytest.approx(processes * GB)


# Encodings -----------------------------------------------------------------------------------------------------------

CODEC = "encode_bandwidth: 4 GB/s, decode_bandwidth: 8 GB/s"
FP8 = f", encoding: {{format: fp8, {CODEC}}}"
INT4 = f", encoding: {{format: int4, {CODEC}}}"


def crossed(attached: AttachedTier, network: FlowNetwork, leg: int = 0) -> dict[str, float]:
    """Bytes on each link, both ways together, for each byte that the engine holds, of a load of one chunk."""
    before = [sum(moved) for moved in network.link_bytes]
    chosen = [*attached.read_legs, attached.write_leg][leg]
    network.start(chosen.path, chosen.chunk_bytes, lambda: None, inf)
    after = [sum(moved) for moved in network.link_bytes]
    moved = {link.name: (b - a) / CHUNK for link, a, b in zip(network.links, before, after, strict=True)}
    return {name: round(share, 6) for name, share in moved.items() if share}


CHUNK = 256 * 131_072


def test_a_drive_holds_and_moves_encoded_bytes(build: Build) -> None:
    built = build(NVME % FP8)
    drive = built.tier("nvme")
    assert drive.tier.capacity_units == int(10 * GB // (CHUNK // 2))
    assert crossed(drive, built.network) == {"nvme": 0.5, "host-memory": 1.0, "host-link": 0.5, "nvme.codec": 1.0}
    assert built.links["nvme.codec"].read_bytes_per_s == 8 * GB
    assert built.links["nvme.codec"].write_bytes_per_s == 4 * GB


def test_a_chunk_is_decoded_after_it_was_read(build: Build) -> None:
    plain, encoded = build(NVME), build(NVME % FP8)
    for leg in (0, 1):
        rate = (8 * GB, 4 * GB)[leg]
        before, after = ([*t.tier("nvme").read_legs, t.tier("nvme").write_leg][leg] for t in (plain, encoded))
        assert after.software.software_s - before.software.software_s == pytest.approx(CHUNK / rate)


def test_what_is_staged_in_memory_that_holds_it_otherwise_is_recoded_there(build: Build) -> None:
    built = build(DRAM % INT4, NVME % FP8)
    expected = {"nvme": 0.5, "nvme.codec": 1.0, "dram": 2 * 0.3125, "host-link": 0.3125, "dram.codec": 1.0}
    assert crossed(built.tier("nvme"), built.network) == expected
    # From memory to the drive: decoded and encoded again.
    expected = {"dram": 0.3125, "dram.codec": 1.0, "nvme.codec": 1.0, "nvme": 0.5}
    assert crossed(built.tier("nvme"), built.network, leg=-1) == expected
    assert crossed(built.tier("dram"), built.network) == {"dram": 0.3125, "host-link": 0.3125, "dram.codec": 1.0}


def test_what_is_held_alike_is_not_recoded_on_its_way(build: Build) -> None:
    built = build(DRAM % FP8, NVME % FP8)
    expected = {"nvme": 0.5, "dram": 1.0, "host-link": 0.5, "nvme.codec": 1.0}
    assert crossed(built.tier("nvme"), built.network) == expected
    assert crossed(built.tier("nvme"), built.network, leg=-1) == {"dram": 0.5, "nvme": 0.5}


def test_store_and_forward_decodes_in_the_leg_that_it_belongs_to(build: Build) -> None:
    built = build(DRAM, NVME % FP8, overrides="transfer.staging=store-and-forward")
    assert crossed(built.tier("nvme"), built.network) == {"nvme": 0.5, "nvme.codec": 1.0, "dram": 1.0}
    assert crossed(built.tier("nvme"), built.network, leg=1) == {"dram": 1.0, "host-link": 1.0}
    alike = build(DRAM % FP8, NVME % FP8, overrides="transfer.staging=store-and-forward")
    assert crossed(alike.tier("nvme"), alike.network) == {"nvme": 0.5, "dram": 0.5}
    expected = {"dram": 0.5, "host-link": 0.5, "nvme.codec": 1.0}
    assert {
        k.replace("dram.codec", "nvme.codec"): v for k, v in crossed(alike.tier("nvme"), alike.network, leg=1).items()
    } == expected


def test_gpu_direct_and_a_page_cache_move_what_the_drive_holds(build: Build) -> None:
    built = build(DRAM, NVME % (FP8 + ", gds: true"))
    assert crossed(built.tier("nvme"), built.network) == {"nvme": 0.5, "host-link": 0.5, "nvme.codec": 1.0}
    built = build(CACHE, NVME % FP8)
    assert crossed(built.tier("cache"), built.network)["nvme.codec"] == 1.0
    assert built.tier("cache").tier.chunk_bytes == CHUNK / 2


def test_every_gpu_decodes_its_own_copy(build: Build) -> None:
    # Eight KV heads over sixteen GPUs: each is there twice.
    built = build(DRAM % (FP8 + ", scope: worker"), overrides="cluster.tensor_parallel=16")
    assert crossed(built.tier("dram"), built.network)["dram.codec"] == 2.0
    assert built.links["dram.codec"].read_bytes_per_s == 16 * 8 * GB
    plain = build(DRAM % ", scope: worker", overrides="cluster.tensor_parallel=16")
    before, after = (b.tier("dram").read_legs[0].software.software_s for b in (plain, built))
    assert after - before == pytest.approx(CHUNK / 8 / (8 * GB))  # one GPU decodes an eighth of a chunk
    units = [b.tier("dram").tier.capacity_units for b in (plain, built)]
    assert units[1] == pytest.approx(2 * units[0], rel=0.01)


def test_small_pieces_meet_the_limit_of_operations(build: Build) -> None:
    # A kilobyte a chunk: the drive is as fast as it can begin reads, the codec no limit.
    codec = "encode_bandwidth: 1e18, decode_bandwidth: 1e18"
    tiny = build(NVME % f", encoding: {{format: compressed, ratio: {1024 / CHUNK}, {codec}}}")
    assert tiny.read_gb_per_s("nvme")[0] < build(NVME).read_gb_per_s("nvme")[0] / 2


def test_each_replica_has_its_own_codec_and_loads_wait_for_it(build: Build) -> None:
    built = build(DRAM, NVME % FP8, replicas=2, per_node=2)
    assert {"nvme.codec.0", "nvme.codec.1"} <= set(built.links)
    assert {"nvme.codec.0", "nvme.codec.1"} <= set(built.topology.loading_links()["nvme"])


# What enters a pool --------------------------------------------------------------------------------------------------


def test_replicas_share_the_rules_of_a_pool_that_they_share(build: Build) -> None:
    more = ", placement: write-through-selective, admission: tinylfu, promotion: second-touch"
    built = build(DRAM % more, NVME % (more + ", scope: replica"), replicas=2, per_node=2)
    for name, shared in (("dram", True), ("nvme", False)):
        one, other = (built.tier(name, replica) for replica in (0, 1))
        assert (one.gate is other.gate) is (one.touches is other.touches) is shared
        assert (one.selects == other.selects) is shared


def test_nothing_stands_before_a_tier_that_names_nothing(build: Build) -> None:
    drive = build(NVME).tier("nvme")
    assert (drive.selects, drive.gate, drive.touches, drive.on_kept) == (None, None, None, None)
