"""One row per finished transfer, thinned in very long runs."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from sim.recording.tables import Columns, Labels

DIRECTIONS: Final = ("read", "write")
"""Words behind ``sim.transfers.flows.READ`` and ``WRITE``."""
HANDOVER: Final = len(DIRECTIONS)
"""Kind of a transfer from the HBM of one replica to that of another; its row names the one that receives."""

_DTYPE: Final = np.dtype(
    [
        ("kind", "i1"),
        ("tier", "i1"),
        ("replica", "i4"),
        ("request_id", "i8"),
        ("n_bytes", "f8"),
        ("started_at_s", "f8"),
        ("finished_at_s", "f8"),
    ]
)


class TransferLog:
    """A table of finished transfers, 38 bytes a row, at most *max_rows* of them.

    When it is full, every other row is dropped and from then on only every 2nd (4th, 8th ...) transfer is kept: memory
    stays bounded and :meth:`note` says so. Counters of bytes do not come from this table.

    Parameters
    ----------
    tier_names : Sequence[str]
        Names behind the tier index, fastest first.
    max_rows : int
        Rows at which thinning starts, at least 2; 2 million are 76 MB.
    """

    __slots__ = ("_extend", "_max_bytes", "_pack", "_rows", "every", "seen", "tier_names")

    def __init__(self, tier_names: Sequence[str], *, max_rows: int = 2_000_000) -> None:
        if max_rows < 2:
            raise ValueError(f"max_rows is {max_rows}; must be at least 2")
        self.tier_names = tuple(tier_names)
        self.every = 1
        self.seen = 0
        self._max_bytes = max_rows * _DTYPE.itemsize
        self._pack = Struct("=bbiqddd").pack
        self._rows = bytearray()
        self._extend = self._rows.extend

    def __len__(self) -> int:
        return len(self._rows) // _DTYPE.itemsize

    def append(  # noqa: PLR0917 - positional: keywords cost time on the engine's hot path
        self,
        kind: int,
        tier: int,
        replica: int,
        request_id: int,
        n_bytes: float,
        started_at_s: float,
        finished_at_s: float,
    ) -> None:
        """Add one finished transfer: *kind* is READ, WRITE or HANDOVER, *tier* an index, *replica* -1 for none."""
        seen = self.seen
        self.seen = seen + 1
        if seen % self.every:
            return
        if len(self._rows) >= self._max_bytes:
            self._thin()
            if seen % self.every:
                return
        self._extend(self._pack(kind, tier, replica, request_id, n_bytes, started_at_s, finished_at_s))

    def _thin(self) -> None:
        kept = np.frombuffer(bytes(self._rows), dtype=_DTYPE)[::2].tobytes()
        self._rows[:] = kept
        self.every *= 2

    def note(self) -> str | None:
        """Return one sentence on what the table leaves out, or None when it holds every transfer."""
        if self.every == 1:
            return None
        return f"the transfers table keeps one in {self.every} of {self.seen} transfers"

    def columns(self) -> Columns:
        """Return the table as one array a column, in order of finishing (times in seconds, sizes in whole bytes)."""
        table = np.frombuffer(bytes(self._rows), dtype=_DTYPE)
        columns: Columns = {name: np.ascontiguousarray(table[name]) for name in table.dtype.names or ()}
        columns["n_bytes"] = np.rint(columns["n_bytes"]).astype(np.int64)
        return columns

    def labels(self) -> Labels:
        """Return the words behind the numbers of coded columns."""
        return {"kind": (*DIRECTIONS, "handover"), "tier": self.tier_names}
