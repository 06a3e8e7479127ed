"""One row per ended request, packed as it ends. Does not decide what the numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from sim.recording.tables import Columns, Labels

COMPLETED: Final = 0
REJECTED: Final = 1
FAILED: Final = 2
"""A load of its KV failed, or its replica went down, and the engine does not recompute."""

_COUNTS: Final = (
    ("request_id", "i8"),
    ("session_id", "i8"),
    ("phase", "i4"),
    ("replica", "i4"),
    ("state", "i4"),
    ("preemptions", "i4"),
    ("prompt_tokens", "i8"),  # as a trace says: absurd lengths are rejected, and must still be written down
    ("output_tokens", "i8"),
    ("computed_prompt_tokens", "i8"),
)
_TIMES: Final = (
    "arrived_at_s",
    "admitted_at_s",
    "first_token_at_s",
    "finished_at_s",
    "queue_s",
    "load_s",
    "compute_s",
    "itl_max_s",
)


_HANDOVER: Final = (
    ("decode_replica", "i4"),
    ("handover_tokens", "i8"),
    ("handover_bytes", "i8"),
    ("decode_queue_s", "f8"),
    ("handover_s", "f8"),
)
NOT_HANDED_OVER: Final = (-1, 0, 0, 0.0, 0.0)
"""What stands there for a request that no second replica decoded."""


class RequestLog:
    """A growing table of ended requests, 120 bytes and 12 a tier each.

    Parameters
    ----------
    tier_names : Sequence[str]
        Names of the tiers, fastest first; they name the columns ``hit_tokens_<tier>`` and ``load_<tier>_s``.
    disaggregated : bool
        Whether there are columns for what is handed over to another replica: ``decode_replica``, ``handover_tokens``
        (those that it lacked) and their ``handover_bytes``, ``decode_queue_s`` (the wait there, a part of ``queue_s``)
        and ``handover_s``, a part of the TTFT.
    """

    __slots__ = ("_dtype", "_extend", "_pack", "_rows", "tier_names")

    def __init__(self, tier_names: Sequence[str], *, disaggregated: bool = False) -> None:
        self.tier_names = tuple(tier_names)
        fields: list[tuple[str, str]] = list(_COUNTS)
        fields += [(name, "f8") for name in _TIMES]
        fields += [(f"hit_tokens_{tier}", "i4") for tier in self.tier_names]
        fields += [(f"load_{tier}_s", "f8") for tier in self.tier_names]
        if disaggregated:
            fields += _HANDOVER
        self._dtype = np.dtype(fields)
        codes = {"i8": "q", "i4": "i", "f8": "d"}
        # Packed bytes instead of one array a column: one C call a request, 0.6 us against 25 appends.
        self._pack = Struct("=" + "".join(codes[kind] for _, kind in fields)).pack
        self._rows = bytearray()
        self._extend = self._rows.extend

    def __len__(self) -> int:
        return len(self._rows) // self._dtype.itemsize

    def append(  # noqa: PLR0917 - positional: keywords cost time on the engine's hot path
        self,
        request_id: int,
        session_id: int,
        phase: int,
        replica: int,
        state: int,
        preemptions: int,
        prompt_tokens: int,
        output_tokens: int,
        computed_prompt_tokens: int,
        arrived_at_s: float,
        admitted_at_s: float,
        first_token_at_s: float,
        finished_at_s: float,
        queue_s: float,
        load_s: float,
        compute_s: float,
        itl_max_s: float,
        hit_tokens: Sequence[int],
        load_tier_s: Sequence[float],
        handed_over: Sequence[float] = (),
    ) -> None:
        """Add one ended request; times in seconds, NaN where they do not apply, *replica* -1 when rejected.

        *state* is COMPLETED, REJECTED or FAILED; *queue_s*, *load_s* and *compute_s* are parts of the TTFT;
        *hit_tokens* and *load_tier_s* have one entry a tier, fastest first; *handed_over* has those of a disaggregated
        cluster. Raises struct.error if they have not.
        """
        self._extend(
            self._pack(
                request_id,
                session_id,
                phase,
                replica,
                state,
                preemptions,
                prompt_tokens,
                output_tokens,
                computed_prompt_tokens,
                arrived_at_s,
                admitted_at_s,
                first_token_at_s,
                finished_at_s,
                queue_s,
                load_s,
                compute_s,
                itl_max_s,
                *hit_tokens,
                *load_tier_s,
                *handed_over,
            )
        )

    def columns(self) -> Columns:
        """Return the table as one array a column, in order of ending, with the derived times.

        ``ttft_s`` is first token less arrival; ``other_s`` is the TTFT less queue, load, compute and handover (look-ups
        and what is not in those); ``tpot_s`` is (finish less first token) / (output tokens - 1), NaN for one token or
        none; ``e2e_s`` is finish less arrival.
        """
        table = np.frombuffer(bytes(self._rows), dtype=self._dtype)
        columns: Columns = {name: np.ascontiguousarray(table[name]) for name in table.dtype.names or ()}
        ttft_s = columns["first_token_at_s"] - columns["arrived_at_s"]
        gaps = columns["output_tokens"].astype(np.float64) - 1.0
        gaps[gaps <= 0.0] = np.nan
        columns["ttft_s"] = ttft_s
        columns["other_s"] = ttft_s - columns["queue_s"] - columns["load_s"] - columns["compute_s"]
        if "handover_s" in columns:
            columns["other_s"] -= columns["handover_s"]
        columns["tpot_s"] = (columns["finished_at_s"] - columns["first_token_at_s"]) / gaps
        columns["e2e_s"] = columns["finished_at_s"] - columns["arrived_at_s"]
        return columns

    @staticmethod
    def labels() -> Labels:
        """Return the words behind the numbers of coded columns."""
        return {"state": ("completed", "rejected", "failed")}
