"""One step that computes prompts: its synchronous loads, then its forward pass, or both layer by layer at once."""

from __future__ import annotations

from collections.abc import Callable

from sim.clock import Clock, Wakeup
from sim.engine.decode_batch import DecodeBatch
from sim.engine.kv_transfers import KvTransfers
from sim.engine.load_choice import overlapped_s
from sim.engine.load_failures import LoadFailures
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.engine.settings import EngineSettings
from sim.tiers.loads import Load


class Forward:
    """The steps of one replica that are no pure decode steps.

    Parameters
    ----------
    clock : Clock
        Time.
    settings : EngineSettings
        Limits and habits.
    batch, scheduler, transfers : DecodeBatch, Scheduler, KvTransfers
        What the step computes and loads.
    failures : LoadFailures
        Sees to requests whose load failed.
    order : int
        Order of step ends among what is due at one instant.
    on_end : callable
        Called with the requests whose prompt is in HBM now.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        settings: EngineSettings,
        batch: DecodeBatch,
        scheduler: Scheduler,
        transfers: KvTransfers,
        failures: LoadFailures,
        order: int,
        on_end: Callable[[list[Request]], None],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._batch = batch
        self._scheduler = scheduler
        self._transfers = transfers
        self._failures = failures
        self._failed: dict[Request, Load] = {}
        self._order = order
        self._on_end = on_end
        self._loads_began_s = 0.0
        self._began_s = 0.0
        self.compute_s = 0.0
        """Time of all steps so far, decode jumps included [s]."""
        self.load_stall_s = 0.0
        """Time in which the batch stood still for loads so far [s]."""

    def begin(self) -> None:
        """Begin the step that has been planned."""
        now = self._clock.now_s
        if self._scheduler.loads:
            self._loads_began_s = now
            self._transfers.load_in_turn(self._scheduler.loads, self._failed, self._on_loaded)
        else:
            self._compute(now, self._step_s())

    def _on_loaded(self) -> None:
        """The step's synchronous loads have ended; everybody has waited for all of them."""
        step_s = self._step_s()
        loads_s = self._clock.now_s - self._loads_began_s
        layers = self._settings.overlap_layers
        # What of the loads the forward pass does not hide: all of it, unless that has begun layer by layer meanwhile.
        stalled_s = overlapped_s(loads_s, step_s, layers) - step_s if layers else loads_s
        self.load_stall_s += stalled_s
        for request, _, _ in self._scheduler.work:
            if not request.generated:
                request.load_s += stalled_s
        self._compute(self._loads_began_s + stalled_s if layers else self._clock.now_s, step_s)

    def _step_s(self) -> float:
        work = self._scheduler.work
        if not self._settings.mixed_steps:
            return self._batch.mixed_step_s(work, decodes=False)
        step_s = self._batch.mixed_step_s(work)
        # The last token of a prompt that was handed over is like those of the batch.
        mixed = self._batch.n and not all(request.comes_over for request, _, _ in work)
        return step_s * self._settings.mixed_step_factor if mixed else step_s

    def _compute(self, begin_s: float, step_s: float) -> None:
        self._began_s = begin_s
        if self._scheduler.meeting:
            self._pause_loads(begin_s)
        self.compute_s += step_s
        self._clock.at(max(begin_s + step_s, self._clock.now_s), self._order, self._on_computed)

    def _pause_loads(self, now_s: float) -> None:
        """What is loaded of a prompt while a step computes it costs no time of its own."""
        for request, _, _ in self._scheduler.work:
            if request.load_mark_s is not None:
                if not request.generated:
                    request.load_s += now_s - request.load_mark_s
                request.load_mark_s = None

    def _on_computed(self, _event: Wakeup) -> None:
        forward_s = self._clock.now_s - self._began_s
        for request, _, _ in self._scheduler.work:
            if not request.generated:
                request.compute_s += forward_s
            if request.loads_from_back:
                request.load_mark_s = self._clock.now_s
        if self._failed:
            failed, self._failed = self._failed, {}
            self._failures.after_step(failed)
        self._on_end([request for request, _, _ in self._scheduler.work if request.computed == request.target])
