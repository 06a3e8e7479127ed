"""What a scenario may say of the traffic of others: tenants, checkpoints, many senders at once."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from scenarios.quantity import Bytes, BytesPerS, Part, Seconds, refuse
from scenarios.tier_spec import TierSpec


class Bursts(Part):
    """Bytes that are there all at once, as a checkpoint is: ``{bytes: 2 TB, every: 24 h}``."""

    bytes: Bytes | None = Field(default=None, ge=1, description="Of one burst, all senders together.")
    lasts: Seconds | None = Field(
        default=None, gt=0, description="In place of bytes: as much as `rate` moves in this time [s]."
    )
    every: Seconds | None = Field(
        default=None,
        gt=0,
        description="From the beginning of one to that of the next [s], which waits where the last one has not ended; "
        "null: one burst.",
    )

    @model_validator(mode="after")
    def _has_a_size(self) -> "Bursts":
        if (self.bytes is None) == (self.lasts is None):
            raise refuse(("bytes",), "or lasts: give exactly one of them, such as bytes: 2 TB")
        return self

    def size_bytes(self, rate_bytes_per_s: float | None) -> float:
        """Return the bytes of one burst of a neighbour of that rate."""
        if self.lasts is not None and rate_bytes_per_s is not None:
            return rate_bytes_per_s * self.lasts
        return float(self.bytes or 0)


class Neighbour(Part):
    """Traffic of others on a tier's device or on a link, such as ``{tier: fabric, direction: read, rate: 5 GB/s}``.

    It shares each link with the tiers' transfers max-min fairly, every sender and every transfer by its weight. Where a
    tier or link stands for several (one a node), each has such traffic. Writes go at the drives' sustained rate.
    Where neighbours have different shares ``reserved``, all with r or more get 1 - r of a link together.
    """

    tier: str | None = Field(
        default=None,
        description="Whose device it goes to from outside: over its ports, where it has any, to its drives.",
    )
    link: str | None = Field(default=None, description="In place of tier: the one link that it crosses, by name.")
    direction: Literal["read", "write"] = Field(
        description="read: towards the GPUs, as loads go; write: away from them."
    )
    rate: BytesPerS | None = Field(
        default=None,
        description="The most that it would move, all senders together. Without bursts it does so all the time, and "
        "makes up for nothing that it could not move; null, with bursts: as much as it gets.",
    )
    bursts: Bursts | None = Field(default=None, description="Null: it moves `rate` all the time.")
    senders: int = Field(default=1, ge=1, description="Transfers that it moves its bytes in at once: incast.")
    weight: float = Field(
        default=1.0, gt=0, description="QoS: what each sender gets of a full link against 1 of a tier's transfer."
    )
    limit: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="QoS: the share of the narrowest link on its path that it gets at most, such as 0.25, even if "
        "nobody uses the rest; null: no limit.",
    )
    reserved: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="QoS: the share of each link on its path, such as 0.75, that is kept for the tiers' transfers, "
        "whatever its weight; what they do not ask for, it gets. Two with 0.75 get a quarter together; null: nothing.",
    )
    io_bytes: Bytes | None = Field(
        default=None,
        ge=1,
        description="With tier: size of one I/O, which takes of the drives' IOPS; null: large enough to need few.",
    )
    phase: str | None = Field(
        default=None, description="Phase of the workload that it comes and goes with; null: the whole run."
    )
    start: Seconds = Field(
        default=0.0, description="When it begins, from the beginning of its phase or of the run [s]."
    )
    stop: Seconds | None = Field(
        default=None,
        description="When it asks for no more, counted alike [s]; bursts that have begun go on; null: never.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "Neighbour":
        if (self.tier is None) == (self.link is None):
            raise refuse(("tier",), "or link: give exactly one of them")
        if self.rate is None and (self.bursts is None or self.bursts.lasts is not None):
            raise refuse(("rate",), "is missing; only bursts of so many bytes go without")
        if self.io_bytes is not None and self.tier is None:
            raise refuse(("io_bytes",), "is for tier: a link knows no I/Os")
        if self.stop is not None and self.stop <= self.start:
            raise refuse(("stop",), f"is {self.stop:g} s; must be after start ({self.start:g} s)")
        return self


def check_neighbours(neighbours: Mapping[str, Neighbour], tiers: Mapping[str, TierSpec], phases: Sequence[str]) -> None:
    """Refuse a tier or a phase that is not there."""
    allowed = [name for name, tier in tiers.items() if tier.device is not None and tier.page_cache_of is None]
    for name, neighbour in neighbours.items():
        if neighbour.tier is not None and neighbour.tier not in allowed:
            problem = f"is '{neighbour.tier}'; must be a tier with a device: {', '.join(allowed) or 'there is none'}"
            raise refuse(("neighbours", name, "tier"), problem)
        if neighbour.phase is not None and neighbour.phase not in phases:
            problem = f"is '{neighbour.phase}'; must name a phase: {', '.join(phases) or 'the workload has none'}"
            raise refuse(("neighbours", name, "phase"), problem)
