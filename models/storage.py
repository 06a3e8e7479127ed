"""What a storage device can move: bandwidth over I/O size, queue depth and mix of reads and writes.

Passive: who shares a device, and when, is the business of whoever holds the clock.
"""

import math
from dataclasses import dataclass

from models.catalogue import Changes, Entry, load_changed
from models.errors import CatalogueError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCost:
    """One configured device: a stripe of drives, or an array behind its ports, as the sum of its parts.

    `duplex` False: reads and writes share one bandwidth (flash channels, a DRAM bus). `stream_bytes_per_s` limits one
    outstanding I/O. `network_*` are None for what sits in the host. A write burst larger than `write_cache_bytes`
    falls to `sustained_write_bytes_per_s`; both are None where no source gives them. `drives` counts the drives (or
    memory modules, or stores) in all of it, `ports` its network ports. `caveats` lists assumed or unverified figures.
    Wear: `endurance_bytes`, or `rated_dwpd` writes of the whole capacity a day for `rated_life_s`, of a load that the
    flash writes `rated_write_amplification` times; KV is written `write_amplification` times.
    """

    name: str
    device_class: str
    read_bytes_per_s: float
    write_bytes_per_s: float
    read_iops: float | None
    write_iops: float | None
    read_latency_s: float
    write_latency_s: float
    duplex: bool
    stream_bytes_per_s: float | None = None
    capacity_bytes: int | None = None
    network_bytes_per_s: float | None = None
    network_delivered_fraction: float | None = None
    write_cache_bytes: int | None = None
    sustained_write_bytes_per_s: float | None = None
    endurance_bytes: int | None = None
    price_usd: float | None = None
    price_cny: float | None = None
    power_w: float | None = None
    idle_power_w: float | None = None
    price_usd_per_byte: float | None = None
    power_w_per_byte: float | None = None
    rated_dwpd: float | None = None
    rated_life_s: float | None = None
    write_amplification: float | None = None
    rated_write_amplification: float | None = None
    drives: int = 1
    ports: int | None = None
    status: str = "datasheet"
    caveats: tuple[str, ...] = ()
    economic_caveats: tuple[str, ...] = ()

    def read_limit_bytes_per_s(self, io_bytes: float) -> float:
        """Return what all reads of *io_bytes* each can get together: min(bandwidth, IOPS x size) [B/s]."""
        return _limit(self.read_bytes_per_s, self.read_iops, io_bytes)

    def write_limit_bytes_per_s(self, io_bytes: float, *, sustained: bool = False) -> float:
        """Return what all writes of *io_bytes* each can get together [B/s]; *sustained*: with the write cache full."""
        bandwidth = self.write_bytes_per_s
        if sustained and self.sustained_write_bytes_per_s is not None:
            bandwidth = min(bandwidth, self.sustained_write_bytes_per_s)
        return _limit(bandwidth, self.write_iops, io_bytes)

    def bandwidth_bytes_per_s(self, io_bytes: float, queue_depth: float, write_fraction: float = 0.0) -> float:
        """Return the total rate at *queue_depth* outstanding I/Os of *io_bytes*, *write_fraction* of them writes [B/s].

        The smaller of two laws. Limits: with shares r and w of the bytes, r / R + w / W <= 1 / B on a shared medium,
        and B <= R / r and B <= W / w on a duplex one. Little's law: B = queue depth x size / (latency + size / stream
        rate), latency and stream time averaged over the mix. Raises ValueError on a size or depth that is not positive
        or a share outside 0..1.
        """
        if io_bytes <= 0 or queue_depth <= 0 or not 0.0 <= write_fraction <= 1.0:
            raise ValueError("io_bytes and queue_depth must be above 0 and write_fraction within 0 and 1")
        read_fraction = 1.0 - write_fraction
        read_share = read_fraction / self.read_limit_bytes_per_s(io_bytes)
        write_share = write_fraction / self.write_limit_bytes_per_s(io_bytes)
        limit = 1.0 / (max(read_share, write_share) if self.duplex else read_share + write_share)
        stream_s = io_bytes / self.stream_bytes_per_s if self.stream_bytes_per_s else 0.0
        service_s = read_fraction * self.read_latency_s + write_fraction * self.write_latency_s + stream_s
        return min(limit, queue_depth * io_bytes / service_s) if service_s > 0 else limit


def _limit(bandwidth_bytes_per_s: float, iops: float | None, io_bytes: float) -> float:
    return bandwidth_bytes_per_s if iops is None else min(bandwidth_bytes_per_s, iops * io_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device before it is configured: figures of one drive (or module) and, for arrays, of one port."""

    entry: Entry

    @property
    def name(self) -> str:
        """Catalogue name."""
        return self.entry.name

    @property
    def device_class(self) -> str:
        """One of memory, drive, array, object."""
        return self.entry.traits["device_class"]

    def configure(self, count: int = 1, ports: int | None = None, drives: int | None = None) -> DeviceCost:
        """Return *count* devices striped together, arrays with *ports* and *drives* in each box (default: the entry's).

        Bandwidth, IOPS, capacity, price and power add up over the stripe (RAID 0); latency stays that of one. Raises
        CatalogueError for a count out of range, or for ports and drives of something that has none.
        """
        entry = self.entry
        _check_count(entry, "count", count, None)
        per_box = self._per_box("drives", drives)
        n_ports = self._per_box("ports", ports)
        n = count * per_box
        port = entry.optional_si("port_bandwidth")
        return DeviceCost(
            name=entry.name,
            device_class=self.device_class,
            read_bytes_per_s=n * entry.si("read_bandwidth"),
            write_bytes_per_s=n * entry.si("write_bandwidth"),
            read_iops=_times(n, entry.optional_si("read_iops")),
            write_iops=_times(n, entry.optional_si("write_iops")),
            read_latency_s=entry.si("read_latency"),
            write_latency_s=entry.si("write_latency"),
            duplex=entry.yes("duplex"),
            stream_bytes_per_s=entry.optional_si("stream_bandwidth"),
            capacity_bytes=_whole(_times(n, entry.optional_si("capacity"))),
            network_bytes_per_s=None if port is None else count * n_ports * port,
            network_delivered_fraction=None if port is None else entry.si("port_delivered_fraction"),
            write_cache_bytes=_whole(_times(n, entry.optional_si("write_cache"))),
            sustained_write_bytes_per_s=_times(n, entry.optional_si("sustained_write_bandwidth")),
            endurance_bytes=_whole(_times(n, entry.optional_si("endurance"))),
            price_usd=_times(count, entry.optional_si("price")),
            price_cny=_times(count, entry.optional_si("price_cny")),
            power_w=_times(count, entry.optional_si("power")),
            idle_power_w=_times(count, entry.optional_si("idle_power")),
            price_usd_per_byte=entry.optional_si("price_per_capacity"),
            power_w_per_byte=entry.optional_si("power_per_capacity"),
            rated_dwpd=entry.optional_si("rated_dwpd"),
            rated_life_s=entry.optional_si("rated_life"),
            write_amplification=entry.optional_si("write_amplification"),
            rated_write_amplification=entry.optional_si("rated_write_amplification"),
            drives=n,
            ports=None if port is None else count * n_ports,
            status=entry.status,
            caveats=entry.caveats,
            economic_caveats=entry.economic_caveats,
        )

    def _per_box(self, name: str, asked: int | None) -> int:
        default = self.entry.count(name)
        if asked is None:
            return default or 1
        if not default:
            raise CatalogueError(
                f"storage {self.entry.name}", f"has no {name} to choose; leave the key out (use count for a stripe)"
            )
        _check_count(self.entry, name, asked, self.entry.count(f"max_{name}") or None)
        return asked


def _check_count(entry: Entry, name: str, value: int, maximum: int | None) -> None:
    if value < 1 or (maximum is not None and value > maximum):
        allowed = "at least 1" if maximum is None else f"1 to {maximum}"
        raise CatalogueError(f"storage {entry.name}", f"{name} is {value}; must be {allowed}")


def _times(n: int, value: float | None) -> float | None:
    return None if value is None else n * value


def _whole(value: float | None) -> int | None:
    return None if value is None else math.floor(value)


def device_from_entry(entry: Entry) -> Device:
    """Return the device an entry describes; raises CatalogueError for a zero rate or a port without its share."""
    where = f"storage {entry.name}"
    if "device_class" not in entry.traits:
        raise CatalogueError(where, "needs the trait device_class")
    for name in ("read_bandwidth", "write_bandwidth", "read_iops", "write_iops", "stream_bandwidth", "port_bandwidth"):
        if entry.optional_si(name) == 0:
            raise CatalogueError(where, f"{name} must be above 0; leave it out where it is not known")
    if "port_bandwidth" in entry.figures and not entry.optional_si("port_delivered_fraction"):
        raise CatalogueError(where, "port_bandwidth needs a port_delivered_fraction above 0")
    return Device(entry=entry)


def load_device(name: str, changes: Changes | None = None) -> Device:
    """Return a device by catalogue name or from a .yaml file, with figures of *changes* in place of its own.

    Raises UnknownNameError, CatalogueError.
    """
    return device_from_entry(load_changed("storage", name, changes))
