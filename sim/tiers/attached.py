"""A tier below HBM as one replica reaches it, and the keys of its chunks there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sim.runs import Runs, shifted
from sim.tiers.tier import Tier
from sim.transfers.legs import Leg


@dataclass(slots=True)
class AttachedTier:
    """A tier below HBM as one replica reaches it.

    Parameters
    ----------
    tier : Tier
        The pool.
    key_offset : int
        Added to chunk keys where replicas do not see each other's entries; 0 otherwise.
    read_legs : tuple of Leg
        From the tier to HBM: one leg, or two where the copy into HBM follows the read (store-and-forward).
    write_leg : Leg
        From HBM, or from the staging tier where there is one and this tier is fed from it.
    fed_from_staging : bool
        Whether its writes start from the staging tier.
    stages : bool
        Whether its reads pass through the staging tier.
    write_through, write_back : bool
        Placement.
    promote : bool
        Whether chunks read from slower tiers stay here.
    waits_when_full : bool
        Whether a store waits for room (or drops what does not fit).
    page_cache : Tier or None
        The host's page cache in front of it, which its reads and writes fill.
    everywhere : bool
        Whether all replicas reach the same pool and see the same chunks in it.
    is_memory : bool
        Whether it is memory and not drives.
    """

    tier: Tier
    key_offset: int
    read_legs: tuple[Leg, ...]
    write_leg: Leg
    fed_from_staging: bool
    stages: bool
    write_through: bool
    write_back: bool
    promote: bool
    waits_when_full: bool
    page_cache: Tier | None = None
    everywhere: bool = False
    is_memory: bool = False

    def keys(self, chunks: Runs) -> Runs:
        """Return the tier's keys of these chunks."""
        return shifted(chunks, self.key_offset)

    def load_s(self, chunks: int) -> float:
        """Return the time to read so many chunks into HBM with nobody else on the way [s]."""
        return sum(chunks * leg.chunk_bytes / leg.ceiling_bytes_per_s(chunks) for leg in self.read_legs)


class Segment(NamedTuple):
    """The chunks ``start .. end - 1`` of a request, which one tier serves."""

    tier: int
    start: int
    end: int


def fill_page_cache(cache: Tier, keys: Runs) -> None:
    """Note in the page cache what the kernel has just read or written (its copy costs no transfer of its own)."""
    new = cache.missing(keys)
    if new:
        kept = cache.reserve_some(new)
        if kept:
            cache.arrive(kept)
