"""What stands in front of a pool: an admission filter, and a limit on the stores under way."""

from __future__ import annotations

from models.errors import InvariantError
from sim.policies.base import AdmissionPolicy
from sim.run_sets import RunSet
from sim.runs import Runs, count
from sim.tiers.tier import Tier


class Gate:
    """Decides which of the chunks that a pool lacks may be written to it.

    Parameters
    ----------
    tier : Tier
        The pool.
    admission : AdmissionPolicy or None
        The filter.
    most_under_way_bytes : int or None
        While more than so many bytes are being written to the pool, nothing new is begun [B].
    """

    __slots__ = ("_admission", "_most_under_way_bytes", "_tier")

    def __init__(self, tier: Tier, *, admission: AdmissionPolicy | None, most_under_way_bytes: int | None) -> None:
        self._tier = tier
        self._admission = admission
        self._most_under_way_bytes = most_under_way_bytes

    @property
    def watches_uses(self) -> bool:
        """Whether it wants to know of each prompt."""
        return self._admission is not None

    def use(self, keys: Runs) -> None:
        """Note that a prompt with these chunks is in HBM."""
        if self._admission is not None:
            self._admission.use(keys)

    def let_in(self, keys: Runs) -> Runs:
        """Return those chunks, of some that the pool lacks, that may be written now.

        Raises
        ------
        InvariantError
            If the filter returns something else.
        """
        tier, most = self._tier, self._most_under_way_bytes
        if most is not None and tier.storing_chunks * tier.chunk_bytes > most:
            tier.skipped_chunks += count(keys)
            return ()
        if self._admission is None:
            return keys
        admitted = self._admission.admit(keys, tier.free_units // tier.units_per_chunk, tier.victims)
        if admitted is keys:
            return keys
        self._check(keys, admitted)
        tier.filtered_chunks += count(keys) - count(admitted)
        return admitted

    def _check(self, keys: Runs, admitted: Runs) -> None:
        left = RunSet(keys)
        for run in admitted:
            if not run or run.step != 1 or left.leading(run) != len(run):
                cls = type(self._admission)
                message = (
                    f"admission filter '{cls.__module__}:{cls.__qualname__}' breaks its contract: it admits {run!r}, "
                    "which is no part of what was offered, or admits it twice"
                )
                raise InvariantError(message)
            left.remove(run)


class SecondTouch:
    """Lets chunks in that have come this way before: what is read once from below does not displace anything."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = RunSet()

    def let_in(self, keys: Runs) -> Runs:
        """Note that these chunks were read from below and return those for which it was not the first time."""
        again = [part for run in keys for part in self._seen.present(run)]
        for run in keys:
            self._seen.add(run)
        return again
