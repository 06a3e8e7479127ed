"""One run: phases one after another on one cluster, a measured window, checks of the books, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from models.errors import InputError
from models.units import format_seconds
from sim.books import check_books
from sim.clock import ARRIVAL, Clock, Wakeup
from sim.cluster import Cluster
from sim.events.timeline import Timeline
from sim.events.windows import event_figures
from sim.recording import Columns, LinkMeter, OccupancyLog, TokenIntervals, TransferLog
from sim.results.bottleneck import ReplicaTime, measured_time
from sim.results.link_use import link_use
from sim.results.percentiles import PercentileRule
from sim.results.result import SimulationResult, versions
from sim.results.summary import Recorded, measured_mask, measured_window, summarise
from sim.tiers.orphans import orphaned_chunks
from sim.transfers.flows import FlowNetwork
from sim.transfers.neighbours import Count, Neighbours
from sim.workload.phases import Phase

Progress = Callable[[float | None, int], None]
"""Takes the fraction done, None where a trace's length is not known, and the number of requests that have ended."""

_PROGRESS_EVERY_S: Final = 0.2
_PROGRESS_CHECK: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What of a run counts and how it is read.

    Parameters
    ----------
    phase : int or None
        Only this phase counts; None: all.
    warmup_s : float
        Requests that arrive earlier are left out [s].
    rule : str
        Percentile rule.
    slo : mapping
        Limits ``ttft_s``, ``tpot_s``, ``itl_s`` [s]; empty: none.
    """

    phase: int | None = None
    warmup_s: float = 0.0
    rule: PercentileRule = "linear"
    slo: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Counters:
    """Running totals at one moment."""

    at_s: float
    busy_s: list[float]
    link_bytes: list[list[float]]
    spent_s: list[tuple[float, float, float]]
    """By pool of engines: compute, stalls for loads, and waits for room."""
    tiers: dict[str, dict[str, float]]
    neighbours: list[Count]
    neighbour_bytes: list[list[float]]
    """Their part of ``link_bytes``."""


@dataclass(slots=True, kw_only=True)
class Simulation:
    """Everything that one run needs; :meth:`run` may be called once.

    Parameters
    ----------
    clock, network, cluster, phases : Clock, FlowNetwork, Cluster, sequence of Phase
        The running parts.
    meter, transfers, occupancy, intervals : recorders
        What the parts write into.
    process_tiers : set of str
        Tiers whose index lives in the engines' processes (HBM among them).
    loading_links : mapping
        By tier: names of the links that its loads cross.
    handover_links : sequence of str
        Names of the links that prompts cross from one replica to another.
    measurement : Measurement
        What counts.
    scenario : dict
        As resolved, for the result.
    seed : int
        Seed of the run, for the result.
    warnings : iterable of str
        Said with the result; read when the run is over.
    timeline : Timeline or None
        What happens to the cluster during the run.
    neighbours : Neighbours
        The traffic of others.
    """

    clock: Clock
    network: FlowNetwork
    cluster: Cluster
    phases: Sequence[Phase]
    meter: LinkMeter
    transfers: TransferLog
    occupancy: OccupancyLog
    intervals: TokenIntervals
    process_tiers: frozenset[str]
    loading_links: Mapping[str, Sequence[str]]
    handover_links: Sequence[str]
    measurement: Measurement
    scenario: dict[str, Any]
    seed: int
    warnings: Iterable[str]
    neighbours: Neighbours
    timeline: Timeline | None = None
    _phase: int = -1
    _began: _Counters | None = None
    _ended: _Counters | None = None

    def run(self, progress: Progress | None = None) -> SimulationResult:
        """Run all phases and return the result.

        Raises
        ------
        InputError
            If not a single request can be served, or none arrives after the warm-up.
        InvariantError
            If the books do not balance: a defect of kvtier, never of the input.
        """
        began = time.perf_counter()
        if progress is not None:
            self._watch(progress)
        self._set_intervals(TokenIntervals())
        if self.measurement.phase is None:
            self.clock.at(self.measurement.warmup_s, ARRIVAL - 1, lambda _: self._begin_window())
        if self.timeline is not None:
            self.timeline.start()
        self._begin_phase(0)
        self.clock.run()
        wall_s = time.perf_counter() - began
        if self.cluster.rejected == self.cluster.submitted:
            raise InputError(
                f"none of the {self.cluster.submitted} requests can be served: each is longer than "
                "engine.max_model_len or than the KV cache in HBM"
            )
        self.cluster.sample()
        check_books(self.cluster, self.network, self.meter)
        ended = self._ended or self._counters()
        return self._result(self._began or ended, ended, wall_s)

    # Phases ----------------------------------------------------------------------------------------------------------

    def _begin_phase(self, index: int) -> None:
        self._phase = index
        phase = self.phases[index]
        cleared = set(phase.clear)
        if phase.restart:
            cleared |= self.process_tiers
        for name in cleared:
            for tier in self.cluster.tiers[name]:
                tier.clear()
        if self.measurement.phase == index:
            self._begin_window()
        self.neighbours.begin(index)
        phase.driver.start(self.cluster, index, self._phase_done)

    def _phase_done(self) -> None:
        """All requests of the phase have ended; the next begins when their last writes have too."""
        if self._phase == self.measurement.phase:
            self._ended = self._counters()
            self._set_intervals(TokenIntervals())
        is_last = self._phase + 1 == len(self.phases)
        self.neighbours.end(self._phase, last=is_last)
        if not is_last:
            self.network.on_idle = self._quiet
            self._quiet()
        elif self.timeline is not None:
            self.timeline.stop()

    def _quiet(self) -> None:
        if not self.network.active_flows:
            self.network.on_idle = None
            self.clock.at(self.clock.now_s, ARRIVAL, self._next_phase)

    def _next_phase(self, _: Wakeup) -> None:
        if self.network.active_flows:
            self.network.on_idle = self._quiet
        else:
            self._begin_phase(self._phase + 1)

    # The measured window ---------------------------------------------------------------------------------------------

    def _begin_window(self) -> None:
        self._began = self._counters()
        self._set_intervals(self.intervals)

    def _set_intervals(self, intervals: TokenIntervals) -> None:
        for replica in self.cluster.engines:
            replica.intervals = intervals

    def _counters(self) -> _Counters:
        tiers = {
            name: {
                "read_bytes": sum(t.read_bytes for t in pools),
                "write_bytes": sum(t.write_bytes for t in pools),
                "evicted_bytes": sum(t.evicted_chunks * t.chunk_bytes for t in pools),
                "failed_loads": sum(t.failed_loads for t in pools),
                "refused_bytes": sum(t.refused_chunks * t.chunk_bytes for t in pools),
            }
            for name, pools in self.cluster.tiers.items()
        }
        moved_bytes = self.network.moved_until_now()
        return _Counters(
            self.clock.now_s,
            self.network.busy_until_now(),
            self.network.over_links(moved_bytes),
            [
                (
                    sum(r.compute_s for r in replicas),
                    sum(r.load_stall_s for r in replicas),
                    sum(r.room_wait_s for r in replicas),
                )
                for replicas in self.cluster.pools
            ],
            tiers,
            self.neighbours.counts(moved_bytes),
            self.neighbours.link_bytes(moved_bytes),
        )

    # The result ------------------------------------------------------------------------------------------------------

    def _result(self, began: _Counters, ended: _Counters, wall_s: float) -> SimulationResult:
        requests = self.cluster.log.columns()
        measurement = self.measurement
        measured = measured_mask(requests, warmup_s=measurement.warmup_s, phase=measurement.phase)
        if not measured.any():
            last_s = float(requests["arrived_at_s"].max())
            raise InputError(
                f"run.warmup is {measurement.warmup_s:g} s: the last request arrives before, at {last_s:g} s"
            )
        from_s, to_s = measured_window(requests, measured)
        events = self.clock.events_scheduled()
        pools = self._replica_time(began, ended)
        recorded = Recorded(
            requests=requests,
            measured=measured,
            intervals=self.intervals,
            tiers=self._tier_figures(began, ended),
            links=self._link_figures(began, ended, from_s, to_s),
            loading_links=self.loading_links,
            handover_links=self.handover_links,
            replica_time=pools[0],
            decode_time=pools[1] if len(pools) > 1 else None,
            wall_s=wall_s,
            events=events,
            warnings=[*self.warnings, *self._notes(requests)],
            neighbours=self.neighbours.figures(began.neighbours, ended.neighbours, ended.at_s - began.at_s),
        )
        columns = {
            "requests": requests,
            "transfers": self.transfers.columns(),
            "tiers": self.occupancy.columns(),
            "links": self.meter.columns(),
        }
        labels = {
            "requests": self.cluster.log.labels() | {"phase": tuple(phase.name for phase in self.phases)},
            "transfers": self.transfers.labels(),
            "tiers": self.occupancy.labels(),
            "links": self.meter.labels(),
        }
        values = summarise(recorded, rule=measurement.rule, slo=measurement.slo or None)
        if self.timeline is not None:
            values["events"] = event_figures(self.timeline.happened, requests, measured, measurement.rule)
        provenance = versions() | {"wall_s": wall_s, "events": events}
        return SimulationResult(
            scenario=self.scenario,
            seed=self.seed,
            provenance=provenance,
            columns=columns,
            summary_values=values,
            labels=labels,
            measured=measured_time(pools, [len(pool) for pool in self.cluster.pools], ended.at_s - began.at_s),
        )

    def _tier_figures(self, began: _Counters, ended: _Counters) -> dict[str, dict[str, float]]:
        figures = {}
        orphans = orphaned_chunks(self.cluster.tiers, self.cluster.prefixes)
        for name, pools in self.cluster.tiers.items():
            before, after = began.tiers[name], ended.tiers[name]
            figures[name] = {key: value - before[key] for key, value in after.items()} | {
                "peak_used_bytes": sum(t.peak_units * t.unit_bytes for t in pools),
                "capacity_bytes": sum(t.capacity_bytes for t in pools),
                "orphaned_bytes": orphans[name] * pools[0].chunk_bytes,
            }
        return figures

    def _link_figures(
        self, began: _Counters, ended: _Counters, from_s: float, to_s: float
    ) -> dict[str, dict[str, float | None]]:
        moved_bytes = np.subtract(ended.link_bytes, began.link_bytes).tolist()
        of_neighbours = np.subtract(ended.neighbour_bytes, began.neighbour_bytes).tolist()
        return {
            link.name: link_use(
                self.meter,
                index,
                link,
                moved_bytes=moved_bytes[index],
                busy_s=ended.busy_s[index] - began.busy_s[index],
                from_s=from_s,
                to_s=max(to_s, ended.at_s) if self.measurement.phase is None else to_s,
                neighbour_bytes=of_neighbours[index] if self.neighbours else None,
            )
            for index, link in enumerate(self.network.links)
        }

    def _replica_time(self, began: _Counters, ended: _Counters) -> list[ReplicaTime]:
        pools = self.cluster.pools
        kinds = ("prefill", "decode") if len(pools) > 1 else ("",)
        found = []
        for pool, kind, before, after in zip(pools, kinds, began.spent_s, ended.spent_s, strict=True):
            total_s = (ended.at_s - began.at_s) * len(pool)
            compute_s, load_stall_s, room_wait_s = (
                later - earlier for earlier, later in zip(before, after, strict=True)
            )
            if total_s <= 0.0:
                compute_s = load_stall_s = room_wait_s = 0.0
                total_s = 1.0
            found.append(
                ReplicaTime(
                    compute_fraction=compute_s / total_s,
                    load_stall_fraction=load_stall_s / total_s,
                    room_wait_s=room_wait_s,
                    kind=kind,
                )
            )
        return found

    def _notes(self, requests: Columns) -> list[str]:
        notes = []
        cluster = self.cluster
        silent = int(np.count_nonzero(requests["output_tokens"] == 0))
        if silent:
            notes.append(
                f"{silent} of {cluster.submitted} requests have no output: each ends when its prompt is computed"
            )
        if cluster.rejected:
            notes.append(
                f"{cluster.rejected} of {cluster.submitted} requests rejected: longer than engine.max_model_len or "
                "than the KV cache in HBM"
            )
        if cluster.failed:
            notes.append(
                f"{cluster.failed} of {cluster.submitted} requests failed with a load or their replica "
                "(engine.kv_load_failure_policy)"
            )
        missed = () if self.timeline is None else self.timeline.missed()
        notes += [
            f"event {event.kind}, {event.target} at {format_seconds(event.at_s)} did not happen: all requests had ended"
            for event in missed
        ]
        unstaged = sum(r.hierarchy.loads.unstaged_chunks for r in cluster.replicas)
        if unstaged:
            notes.append(f"{unstaged} chunks were read without staging room in memory, so they were not kept there")
        for name, pools in cluster.tiers.items():
            refused = sum(t.refused_chunks for t in pools)
            if refused:
                notes.append(f"{refused} chunks were not stored in {name}: nothing there could be evicted")
            skipped = sum(t.skipped_chunks for t in pools)
            if skipped:
                notes.append(f"{skipped} chunks were not stored in {name}: too much was being written to it")
        note = self.transfers.note()
        if note:
            notes.append(note)
        return notes

    def _watch(self, progress: Progress) -> None:
        """Report progress a few times a second of wall time."""
        ended = 0
        reported = time.perf_counter()

        def on_progress() -> None:
            nonlocal ended, reported
            ended += 1
            if ended % _PROGRESS_CHECK == 0 and time.perf_counter() - reported > _PROGRESS_EVERY_S:
                reported = time.perf_counter()
                part = self.phases[self._phase].driver.fraction_done()
                progress(None if part is None else (self._phase + part) / len(self.phases), ended)

        self.cluster.on_progress = on_progress
