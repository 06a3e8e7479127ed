"""What a topology is made of: chunk sizes, places in the cluster, and the tiers as configured."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from models.accelerator import Accelerator
from models.dtypes import HELD_KV_BYTES, kv_element_bytes
from models.llm import Llm
from models.storage import DeviceCost, load_device
from scenarios.choices import named
from scenarios.schema import Cluster, DecodePool, Scenario
from scenarios.tier_spec import Encoding, Layout, TierSpec
from sim.policies.base import Writes
from sim.policies.placement import writes_of

_REMOTE: Final = frozenset({"array", "object"})
"""Device classes that stand outside the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes that everything shares.

    Parameters
    ----------
    chunk_tokens, block_tokens : int
        Unit of residency below HBM and engine block [tokens].
    chunk_bytes : int
        KV of one chunk, stored once [B].
    replication : float
        Copies of each KV byte over a replica's GPUs.
    workers : int
        GPUs of a replica.
    layer_objects : int
        Objects that tiers hold of a chunk, one a layer; 1 where all layers are one.
    """

    chunk_tokens: int
    block_tokens: int
    chunk_bytes: int
    replication: float
    workers: int
    layer_objects: int = 1

    def held_bytes(self, part: Part) -> int:
        """Return the bytes of one chunk as a tier holds it, stored once [B]."""
        return self.chunk_bytes if part.encoding is None else ceil(self.chunk_bytes * part.encoded_ratio)

    @property
    def pieces(self) -> float:
        """Different pieces that the workers hold of a chunk: one a GPU, or fewer where KV is replicated."""
        return self.workers / self.replication


def geometry(scenario: Scenario, llm: Llm, chunk_tokens: int) -> Geometry:
    """Return the sizes of a scenario's chunks."""
    cluster, engine = scenario.cluster, scenario.engine
    return Geometry(
        chunk_tokens=chunk_tokens,
        block_tokens=engine.block_tokens,
        chunk_bytes=chunk_tokens * llm.kv_bytes_per_token(engine.kv_dtype),
        replication=llm.kv_replication(cluster.tensor_parallel),
        workers=cluster.tensor_parallel * cluster.pipeline_parallel,
        layer_objects=llm.layers if scenario.transfer.layer_objects else 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A tier below HBM: its place in the list, what the scenario says of it, and its device as configured.

    ``encoding`` is how it holds KV (a page cache: as its tier does), ``encoded_ratio`` what that leaves of each byte.
    """

    name: str
    index: int
    spec: TierSpec
    device: DeviceCost
    scope: str
    writes: Writes
    encoding: Encoding | None = None
    encoded_ratio: float = 1.0

    def holds_alike(self, other: Part) -> bool:
        """Whether KV goes from one to the other as it is."""
        mine, its = self.encoding, other.encoding
        if mine is None or its is None:
            return mine is its
        return mine.format == its.format and self.encoded_ratio == other.encoded_ratio

    @property
    def layout(self) -> Layout:
        """How chunks lie on its drives."""
        return self.spec.layout or Layout()

    @property
    def is_memory(self) -> bool:
        """Whether it lives in memory (DRAM, CXL, the page cache) and not on a drive."""
        return self.device.device_class == "memory"

    @property
    def is_page_cache(self) -> bool:
        """Whether it is the host's page cache of another tier."""
        return self.spec.page_cache_of is not None

    @property
    def is_host_memory(self) -> bool:
        """Whether it is memory that GPUs copy from, and that reads of slower tiers can be staged in."""
        return self.is_memory and not self.is_page_cache

    @property
    def has_ports(self) -> bool:
        """Whether the catalogue knows its network ports apart from its drives."""
        return self.device.network_bytes_per_s is not None

    @property
    def is_remote(self) -> bool:
        """Whether it is reached over the network."""
        return self.has_ports or self.device.device_class in _REMOTE

    @property
    def promotes(self) -> bool:
        """Whether what was read from slower tiers is kept here."""
        if self.is_page_cache:
            return False  # the kernel decides what it keeps: all that it reads or writes
        if self.spec.promotion is None:
            return self.is_memory and self.spec.inclusion == "inclusive"
        return self.spec.promotion != "never"


def parts_of(scenario: Scenario) -> list[Part]:
    """Return the tiers below HBM, fastest first."""
    parts = []
    for index, (name, spec) in enumerate(scenario.tiers.items()):
        if index == 0:
            continue
        assert spec.device is not None  # the schema lets only hbm go without
        device = load_device(spec.device, scenario.changes()).configure(spec.count, spec.ports, spec.drives)
        scope = spec.scope or ("shared" if device.device_class in _REMOTE else "node")
        encoding = scenario.tiers[spec.page_cache_of or name].encoding
        part = Part(
            name=name,
            index=index,
            spec=spec,
            device=device,
            scope=scope,
            writes=writes_of(named(spec.placement)[0]),
            encoding=encoding,
            encoded_ratio=1.0 if encoding is None else _encoded_ratio(encoding, scenario.engine.kv_dtype),
        )
        parts.append(part)
    return parts


def _encoded_ratio(encoding: Encoding, kv_dtype: str) -> float:
    if encoding.ratio is not None:
        return encoding.ratio
    return HELD_KV_BYTES[encoding.format] / kv_element_bytes(kv_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """What the replicas of one kind are: their GPUs, their sizes and the KV cache in HBM of each [B]."""

    accelerator: Accelerator
    sizes: Geometry
    hbm_bytes: int


@dataclass(frozen=True, slots=True)
class Places:
    """Which node each replica is on, and the numbers that tell links and pools of one kind apart.

    The first ``replicas`` have tiers below HBM; those of ``decode``, which only decode, follow and have none.
    """

    replicas: int
    replicas_per_node: int
    decode: DecodePool | None = None

    @staticmethod
    def of(cluster: Cluster) -> Places:
        """Return the places of a cluster."""
        return Places(cluster.replicas, cluster.replicas_per_node, cluster.decode)

    @property
    def decoding(self) -> range:
        """The replicas that only decode."""
        return range(self.replicas, self.replicas + (0 if self.decode is None else self.decode.replicas))

    @property
    def everyone(self) -> range:
        """All replicas."""
        return range(self.decoding.stop)

    def node(self, replica: int) -> int:
        """Return the node that a replica is on."""
        if self.decode is None or replica < self.replicas:
            return replica // self.replicas_per_node
        first = 0 if self.decode.nodes == "shared" else -(-self.replicas // self.replicas_per_node)
        return first + (replica - self.replicas) // self.decode.replicas_per_node

    def node_suffix(self, replica: int) -> str:
        """Return ``.<node>`` for a link that each node has, nothing where there is one node."""
        return f".{self.node(replica)}" if any(map(self.node, self.everyone)) else ""

    def replica_suffix(self, replica: int) -> str:
        """Return ``.<replica>`` for a link that each replica has, nothing where there is one replica."""
        return f".{replica}" if len(self.everyone) > 1 else ""

    def suffix(self, part: Part, replica: int) -> str:
        """Return the suffix of the device that a replica uses: one in each place that the scope says.

        Memory is the exception: its bus belongs to the node, whoever's pool lies in it.
        """
        if part.scope == "shared":
            return ""
        if part.is_memory or part.scope == "node":
            return self.node_suffix(replica)
        return self.replica_suffix(replica)

    def instance(self, part: Part, replica: int) -> int:
        """Return the number of the pool that a replica uses."""
        if part.scope in {"worker", "replica"}:
            return replica
        return self.node(replica) if part.scope == "node" else 0

    def users(self, part: Part, instance: int) -> list[int]:
        """Return the replicas that use a pool."""
        return [replica for replica in range(self.replicas) if self.instance(part, replica) == instance]
