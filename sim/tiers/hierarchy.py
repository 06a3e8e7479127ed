"""The tiers below HBM as one replica sees them: what they hold of a prompt, and who loads and stores it.

A look-up has no side effects. `sim.tiers.loads`, `sim.tiers.stores` and `sim.tiers.write_back` move the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import Clock
from sim.recording import TransferLog
from sim.run_sets import RunSet
from sim.runs import Chain
from sim.tiers.attached import AttachedTier, Segment
from sim.tiers.loads import Loads
from sim.tiers.prefetches import Prefetches
from sim.tiers.stores import Stores
from sim.tiers.tier import Tier
from sim.tiers.write_back import WriteBack
from sim.transfers.flows import FlowNetwork


class KvHierarchy:
    """What one replica knows of the tiers below HBM, and how it moves chunks.

    Parameters
    ----------
    clock, network : Clock, FlowNetwork
        Time and links.
    tiers : sequence of AttachedTier
        Fastest first.
    staging : int or None
        Which of them reads pass through (the fastest memory tier), if any.
    grouped_lookup : bool
        True: a prefix is served tier after tier, never back to a faster one (LMCache). False: each chunk from the
        fastest tier that holds it.
    serial_loads : bool
        Whether a request's tiers are read one after another.
    staging_timeout_s : float or None
        How long a load waits for room to be staged in [s], as :class:`sim.tiers.loads.Loads` says.
    replica : int
        For the transfer log.
    log : TransferLog
        Notes each transfer.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        network: FlowNetwork,
        tiers: Sequence[AttachedTier],
        staging: int | None,
        grouped_lookup: bool,
        serial_loads: bool,
        replica: int,
        log: TransferLog,
        staging_timeout_s: float | None = None,
    ) -> None:
        self._clock = clock
        self._network = network
        self._replica = replica
        self._log = log
        self.tiers = list(tiers)
        self._grouped = grouped_lookup
        self._views = [(i, t.tier.ready, t.key_offset) for i, t in enumerate(self.tiers)]
        self._load_views = self._views
        self._local_views = [view for view in self._views if not self.tiers[view[0]].everywhere]
        memory = None if staging is None else self.tiers[staging]
        self.stores = Stores(clock=clock, network=network, tiers=self.tiers, staging=memory, replica=replica, log=log)
        self.prefetches = Prefetches(
            clock=clock, network=network, tiers=self.tiers, memory=memory, replica=replica, log=log
        )
        self.loads = Loads(
            clock=clock,
            network=network,
            tiers=self.tiers,
            staging=memory,
            serial=serial_loads,
            replica=replica,
            log=log,
            stores=self.stores,
            staging_timeout_s=staging_timeout_s,
        )

    # Look-up ---------------------------------------------------------------------------------------------------------

    def load_from_memory_only(self) -> None:
        """From now on, what prefetches can bring into memory is not loaded from elsewhere."""
        self._load_views = [view for view in self._views if self.tiers[view[0]].prefetch_leg is None]
        self._local_views = [view for view in self._local_views if view in self._load_views]

    def lookup(self, chunks: Chain, start: int, *, only_here: bool = False, to_prefetch: bool = False) -> list[Segment]:
        """Return which tier serves which chunks from ``start`` on, as far as an unbroken chain reaches.

        ``only_here`` leaves out tiers that serve every replica alike; ``to_prefetch`` asks what could be brought ahead.
        """
        segments: list[Segment] = []
        views = self._local_views if only_here else self._views if to_prefetch else self._load_views
        tier, begin, position = -1, start, start
        for run in chunks.cut(start):
            rest = run
            while rest:
                found, length = _fastest(views, rest)
                if found != tier:
                    if tier >= 0:
                        segments.append(Segment(tier, begin, position))
                    tier, begin = found, position
                    if self._grouped:
                        views = [view for view in views if view[0] >= tier]
                if found < 0:
                    return segments
                position += length
                rest = rest[length:]
        if tier >= 0:
            segments.append(Segment(tier, begin, position))
        return segments

    # Loads -----------------------------------------------------------------------------------------------------------

    def pin(self, chunks: Chain, segments: Sequence[Segment]) -> None:
        """Keep what a look-up found until it has been read, and count the use."""
        for segment in segments:
            attached = self.tiers[segment.tier]
            keys = attached.keys(chunks.cut(segment.start, segment.end))
            attached.tier.pin(keys)
            attached.tier.touch(keys)

    def unpin(self, chunks: Chain, segments: Sequence[Segment]) -> None:
        """Let go of what a look-up found and nobody will read."""
        for segment in segments:
            attached = self.tiers[segment.tier]
            attached.tier.unpin(attached.keys(chunks.cut(segment.start, segment.end)))

    def write_back(self, upper: Tier, target: AttachedTier, *, keeps_views: bool) -> WriteBack:
        """Return what saves ``upper``'s victims in ``target``, as :class:`sim.tiers.write_back.WriteBack` says."""
        return WriteBack(
            clock=self._clock,
            network=self._network,
            log=self._log,
            replica=self._replica,
            upper=upper,
            target=target,
            keeps_views=keeps_views,
        )


def _fastest(views: Sequence[tuple[int, RunSet, int]], run: range) -> tuple[int, int]:
    """Return the fastest tier that has the head of ``run``, or -1, and for how many chunks that stays so."""
    most = len(run)
    for tier, ready, offset in views:
        length = ready.leading(range(run.start + offset, run.stop + offset) if offset else run)
        if length > 0:
            return tier, min(length, most)
        most = min(-length, most)  # as far as this one, which is faster than those to come, has nothing
    return -1, most
