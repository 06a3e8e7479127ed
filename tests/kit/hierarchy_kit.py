"""A small node on which loads, stores and write-backs can be checked by hand.

Chunks are 100 MB. A drive reads 2 GB/s and writes 1 GB/s, DRAM moves 20 GB/s both ways together, the host link 10 GB/s
each way.
"""

from collections.abc import Callable, Sequence

from runs_kit import runs

from models.software import SoftwarePath
from sim.clock import ARRIVAL, Clock
from sim.policies.eviction import Lru
from sim.recording import LinkMeter, TransferLog
from sim.runs import Chain
from sim.tiers.attached import AttachedTier
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.loads import Load
from sim.tiers.tier import Tier
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.transfers.legs import Leg

GB = 1e9
CHUNK = 10**8
DMA = SoftwarePath(in_flight=1000, software_s=0.0)


def pool(name: str, index: int, chunks: int, held: Sequence[int] = (), *, tail_first: bool = False) -> Tier:
    tier = Tier(
        name=name,
        index=index,
        capacity_units=chunks,
        units_per_chunk=1,
        unit_bytes=float(CHUNK),
        policy=Lru(),
        tail_first=tail_first,
    )
    if held:
        assert tier.reserve(runs(*held))
        tier.arrive(runs(*held))
    return tier


class Node:
    """Links and a clock; tiers are attached with :meth:`dram` and :meth:`drive`."""

    def __init__(self, *, dram_gb_per_s: float = 20.0, host_gb_per_s: float = 10.0, replication: float = 1.0) -> None:
        self.clock = Clock()
        links = [
            Link("host", host_gb_per_s * GB, host_gb_per_s * GB),
            Link("dram", dram_gb_per_s * GB, dram_gb_per_s * GB, False),
            Link("drive", 2 * GB, 1 * GB, False),
        ]
        self.network = FlowNetwork(self.clock, links, LinkMeter([link.name for link in links]))
        self.replication = replication
        self.log = TransferLog(["hbm", "dram", "drive"])
        self.ended_s: dict[str, float] = {}

    def leg(self, *hops: Hop, software: SoftwarePath = DMA) -> Leg:
        return Leg(self.network.path(hops), CHUNK, software, 1)

    def host(self, direction: int) -> Hop:
        return Hop("host", direction, self.replication)

    def attach(self, tier: Tier, read: tuple[Leg, ...], write: Leg, **changes: object) -> AttachedTier:
        attached = AttachedTier(
            tier=tier,
            key_offset=0,
            read_legs=read,
            write_leg=write,
            fed_from_staging=False,
            stages=False,
            write_through=True,
            write_back=False,
            promote=False,
            waits_when_full=False,
        )
        for name, value in changes.items():
            setattr(attached, name, value)
        return attached

    def dram(self, tier: Tier, **changes: object) -> AttachedTier:
        read = self.leg(Hop("dram", READ), self.host(READ))
        return self.attach(tier, (read,), self.leg(self.host(WRITE), Hop("dram", WRITE)), **{"promote": True} | changes)

    def drive(
        self, tier: Tier, *, way: str = "pipelined", software: SoftwarePath = DMA, **changes: object
    ) -> AttachedTier:
        bounce = [Hop("dram", WRITE), Hop("dram", READ)]
        device = Hop("drive", READ)
        reads = {
            "pipelined": [[device, *bounce, self.host(READ)]],
            "store-and-forward": [[device, bounce[0]], [bounce[1], self.host(READ)]],
            "gds": [[device, self.host(READ)]],
        }[way]
        first, *rest = reads
        legs = (self.leg(*first, software=software), *(self.leg(*hops) for hops in rest))
        write = self.leg(Hop("dram", READ), Hop("drive", WRITE))
        defaults = {"stages": way != "gds", "fed_from_staging": way != "gds"}
        return self.attach(tier, legs, write, **defaults | changes)

    def hierarchy(
        self, *tiers: AttachedTier, staging: int | None = 0, grouped: bool = False, serial: bool = False
    ) -> KvHierarchy:
        return KvHierarchy(
            clock=self.clock,
            network=self.network,
            tiers=tiers,
            staging=staging,
            grouped_lookup=grouped,
            serial_loads=serial,
            replica=0,
            log=self.log,
        )

    def note(self, name: str) -> Callable[[], None]:
        def ended() -> None:
            assert name not in self.ended_s
            self.ended_s[name] = self.clock.now_s

        return ended

    def run(self) -> dict[str, float]:
        self.clock.run()
        return self.ended_s


def load(
    node: Node, hierarchy: KvHierarchy, chunks: Sequence[int], name: str = "load", at_s: float = 0.0
) -> list[float]:
    spent_s = [0.0] * (len(hierarchy.tiers) + 1)
    wanted = Chain(runs(*chunks))

    def begin(_: object = None) -> None:
        segments = hierarchy.lookup(wanted, 0)
        assert segments[-1].end == len(chunks)
        hierarchy.pin(wanted, segments)
        hierarchy.loads.load(Load(1, 1, wanted, segments, spent_s), node.note(name))

    node.clock.at(at_s, ARRIVAL, begin)
    return spent_s


def check(*tiers: Tier) -> None:
    for tier in tiers:
        tier.check()
