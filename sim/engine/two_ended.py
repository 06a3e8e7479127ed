"""Two-ended loads: a prompt is computed from the front while it is loaded from the back, until the two meet.

Source: Cake (arXiv 2410.03065). The back is loaded in parts, each as large as is expected to take as long as computing
what is left in front of it; when one has ended before they meet, the next one begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from sim.clock import Clock
from sim.engine.kv_transfers import KvTransfers
from sim.engine.load_choice import LoadChoice, between
from sim.engine.load_failures import LoadFailures
from sim.engine.request import Request
from sim.tiers.attached import Segment
from sim.tiers.loads import Load
from sim.transfers.legs import Done


class TwoEndedLoads:
    """The two-ended loads of one replica.

    Parameters
    ----------
    clock : Clock
        Time.
    choice : LoadChoice
        Knows how long loading and computing would take.
    transfers : KvTransfers
        Loads.
    failures : LoadFailures
        Sees to requests whose load failed.
    wake : callable
        Called when a request has nothing more to load.
    """

    def __init__(
        self, clock: Clock, choice: LoadChoice, transfers: KvTransfers, failures: LoadFailures, wake: Done
    ) -> None:
        self._clock = clock
        self._choice = choice
        self._transfers = transfers
        self._failures = failures
        self._wake = wake
        self._chunk_tokens = choice.settings.chunk_tokens

    def begin(self, request: Request, segments: Sequence[Segment]) -> None:
        """Load pinned segments from the back; the request says how far it is to be computed meanwhile."""
        request.load_mark_s = self._clock.now_s
        self._load_before(request, segments, segments[-1].end)

    def _load_before(self, request: Request, segments: Sequence[Segment], end: int) -> None:
        """Load a part of the chunks before ``end`` that nobody has begun to compute, or leave them to be computed."""
        front = max(segments[0].start, -(-request.computed // self._chunk_tokens))
        start = self._meeting_chunk(request, segments, front, end) if front < end else end
        request.compute_until_tokens = start * self._chunk_tokens
        if start == end:
            request.loads_from_back = False
            self._close(request)
            self._wake()
            return
        request.loads_from_back = True

        def loaded(load: Load) -> None:
            if load.lost is None:
                self._load_before(request, segments, start)
                return
            request.loads_from_back = False
            self._close(request)
            self._failures.after_part(request, segments, load)
            self._wake()

        self._transfers.load(request, between(segments, start, end), loaded)

    def _meeting_chunk(self, request: Request, segments: Sequence[Segment], front: int, end: int) -> int:
        """Return where computing from the front and loading from ``end`` back would meet; ``end``: load nothing."""
        choice, chunk_tokens = self._choice, self._chunk_tokens

        def compute_s(chunk: int) -> float:
            return choice.prefill_s(chunk * chunk_tokens, start=request.computed)

        def load_s(chunk: int) -> float:
            if chunk == end:
                return 0.0
            return choice.loads.expected_s(between(segments, chunk, end)) + choice.settings.request_software_s

        every = range(front, end + 1)
        meet = front + bisect_left(every, x=True, key=lambda chunk: compute_s(chunk) >= load_s(chunk))
        return min(
            (chunk for chunk in (meet - 1, meet) if chunk in every),
            key=lambda chunk: (max(compute_s(chunk), load_s(chunk)), chunk),
        )

    def _close(self, request: Request) -> None:
        """The load part of its TTFT has ended, unless a step that computes it goes on just now."""
        if request.load_mark_s is not None:
            if not request.generated:
                request.load_s += self._clock.now_s - request.load_mark_s
            request.load_mark_s = None
