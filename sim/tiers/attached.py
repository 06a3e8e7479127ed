"""A tier below HBM as one replica reaches it, and the keys of its chunks there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sim.prefix_tree import KEY_MASK
from sim.runs import Runs, shifted
from sim.tiers.faults import LoadFault, Read
from sim.tiers.gate import Gate, SecondTouch
from sim.tiers.tier import Tier
from sim.tiers.turns import Turns
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
    is_host_memory : bool
        Whether GPUs copy from it; a page cache is read by those that read files.
    takes_answers : bool
        Whether a write-through of what answers have added is for this tier too.
    selects : callable or None
        Takes all chunks of a prompt that is in HBM and returns those to write through, where the placement is choosy.
    gate : Gate or None
        What chunks must pass to be written.
    touches : SecondTouch or None
        What chunks from slower tiers must pass to stay, besides the gate.
    on_kept : callable or None
        Called with chunks that have become resident here: an exclusive tier below gives them up.
    leaves_for_hbm : bool
        Whether what has been read into HBM leaves this tier.
    prefetch_leg : Leg or None
        From the tier into the memory that its reads pass through, where KV is brought there ahead.
    turns : Turns or None
        Whom its reads wait for, where only so many are made at once.
    eviction_s : float
        Time for each chunk that a store evicts, one after another, before its bytes move [s].
    evicting_until_s : float
        When the evictions so far have ended [s].
    fault : LoadFault or None
        Says which of its reads fail, if any do.
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
    is_host_memory: bool = False
    takes_answers: bool = False
    selects: Callable[[Runs], Runs] | None = None
    gate: Gate | None = None
    touches: SecondTouch | None = None
    on_kept: Callable[[Runs], None] | None = None
    leaves_for_hbm: bool = False
    prefetch_leg: Leg | None = None
    turns: Turns | None = None
    eviction_s: float = 0.0
    evicting_until_s: float = 0.0
    fault: LoadFault | None = None

    def keys(self, chunks: Runs) -> Runs:
        """Return the tier's keys of these chunks."""
        return shifted(chunks, self.key_offset)

    def failed(self, read: Read) -> bool:
        """Return whether a read that ends now has failed, and count it."""
        failed = self.fault is not None and self.fault.fails(read)
        self.tier.failed_loads += failed
        return failed

    def load_s(self, chunks: int) -> float:
        """Return the time to read so many chunks into HBM with nobody else on the way [s]."""
        return sum(chunks * leg.chunk_bytes / leg.ceiling_bytes_per_s(chunks) for leg in self.read_legs)


def keys_below(run: range, target: AttachedTier, *, keeps_views: bool) -> range:
    """Return the keys that chunks of the pool above have in a slower one.

    ``keeps_views`` says whether both tell apart the chunks of different replicas, so that keys are the same in both.
    """
    if keeps_views:
        return run
    start = (run.start & KEY_MASK) + target.key_offset
    return range(start, start + len(run))


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
