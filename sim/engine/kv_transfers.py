"""A replica's loads into HBM and stores out of it, and what they hold while they are under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from sim.clock import COMPLETION, Clock
from sim.engine.request import Request
from sim.runs import Runs
from sim.tiers.attached import Segment
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.loads import Load
from sim.tiers.tier import Tier
from sim.transfers.legs import Countdown, Done


class KvTransfers:
    """Moves the KV of one replica's requests.

    Parameters
    ----------
    clock : Clock
        Time.
    hierarchy : KvHierarchy
        The tiers below.
    hbm : Tier
        The pool.
    request_software_s : float
        Software time that each synchronous load adds [s].
    catch_up : callable
        Called before blocks leave HBM.
    free : callable
        Called with an ended request whose last bytes have left HBM.
    """

    __slots__ = ("_catch_up", "_clock", "_free", "_hbm", "_hierarchy", "_request_software_s")

    def __init__(
        self,
        *,
        clock: Clock,
        hierarchy: KvHierarchy,
        hbm: Tier,
        request_software_s: float,
        catch_up: Done,
        free: Callable[[Request], None],
    ) -> None:
        self._clock = clock
        self._hierarchy = hierarchy
        self._hbm = hbm
        self._request_software_s = request_software_s
        self._catch_up = catch_up
        self._free = free

    def load(self, request: Request, segments: list[Segment], on_done: Callable[[Load], None]) -> None:
        """Load one request by itself, the software's time for a request included."""
        software_s = self._request_software_s

        def loaded() -> None:
            if software_s:
                self._clock.at(self._clock.now_s + software_s, COMPLETION, lambda _: on_done(load))
            else:
                on_done(load)

        # After its first token (it was preempted), a load is no part of the request's TTFT any more.
        spent_s = [0.0] * len(request.load_tier_s) if request.generated else request.load_tier_s
        request.loads += 1
        load = Load(request.request_id, request.loads, request.chunks, segments, spent_s)
        self._hierarchy.loads.load(load, loaded)

    def load_in_turn(
        self, loads: deque[tuple[Request, list[Segment]]], failed: dict[Request, Load], on_done: Done
    ) -> None:
        """Load several requests one after another (LMCache retrieves the requests of a step so).

        ``failed`` gains those of which something has not arrived.
        """
        if not loads:
            on_done()
            return
        request, segments = loads.popleft()

        def loaded(load: Load) -> None:
            if load.lost is not None:
                failed[request] = load
            self.load_in_turn(loads, failed, on_done)

        self.load(request, segments, loaded)

    def store(self, requests: Sequence[Request], on_left: Done | None = None) -> bool:
        """Write prompts' chunks through; their blocks stay until the bytes have left HBM.

        Returns whether bytes leave; then ``on_left()`` is called when the last of them has left.
        """
        if not requests:
            return False
        leaving = Countdown(on_left or _nothing)
        for request in requests:
            leaving.under_way += self._store_one(request, leaving.ended)
        return leaving.under_way > 0

    def store_answer(self, request: Request, chunks: Runs) -> None:
        """Write what an answer has filled through; the request's blocks stay until the bytes have left HBM."""
        if chunks:
            self._hold(request, partial(self._hierarchy.stores.store_answer, request.request_id, chunks), _nothing)

    def _store_one(self, request: Request, on_left: Done) -> bool:
        used = () if request.generated else request.chunks.runs
        begin = partial(self._hierarchy.stores.store, request.request_id, request.to_store, used=used)
        return self._hold(request, begin, on_left)

    def _hold(self, request: Request, begin: Callable[[Done], bool], on_left: Done) -> bool:
        """Begin a store, and keep the request's blocks until its bytes have left HBM."""

        def left() -> None:
            self._catch_up()
            self._hbm.in_transit -= 1
            request.stores_under_way -= 1
            if request.ended and not request.stores_under_way:
                self._free(request)
            else:
                self._hbm.give(0)  # nothing yet, but a stalled step may look again
            on_left()

        if not begin(left):
            return False
        self._hbm.in_transit += 1
        request.stores_under_way += 1
        return True


def _nothing() -> None:
    """Nobody waits."""
