"""What a run asked of each tier: rates, I/Os, room and drives; made where the run was, from its tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from scenarios.build import Assembly, assemble, build, run
from scenarios.runner import Report
from scenarios.schema import Scenario
from scenarios.topology.parts import Part
from sim.arrays import Floats
from sim.recording import COMPLETED, Columns
from sim.recording.transfers import DIRECTIONS
from sim.results.result import SimulationResult
from sim.results.summary import measured_window
from sim.transfers.flows import Link

_READ: Final = DIRECTIONS.index("read")
_WRITE: Final = DIRECTIONS.index("write")
_BIN_S: Final = 1.0
"""Rates are means of a second, as in the ``links`` of a summary; of a hundredth of the time where that is less."""
_FEWEST_BINS: Final = 100
_FEWEST_METERED: Final = 20
"""Of drives, rates are what their links metered; in less time than so many of those bins, what transfers moved."""
_MOST_OFTEN: Final = 99.0
"""A rate is what 99 % of the bins stay at or below, idle ones included: the rule of ``read_p99_bytes_per_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierNeed:
    """What one tier had to do, over all of its places; sizes in bytes, times in seconds.

    Parameters
    ----------
    read_bytes_per_s, write_bytes_per_s : float
        What is read from its medium and written to it, copies, parity and rebuilds included: the rate that 99 % of the
        seconds stay at or below.
    read_mean_bytes_per_s, write_mean_bytes_per_s : float
        The same on average.
    read_iops, write_iops : float
        The 99 % rates in I/Os of the size that the stack makes; 0 for memory, which has none.
    capacity_bytes : float
        KV that it held at most.
    provided_bytes : float
        KV that it could have held.
    raw_bytes : float
        Room that what it held took on the medium, with copies and parity.
    drives : int or None
        The least number of its drives that can do all this; None for memory.
    drives_provided : int or None
        The number it has.
    drives_for : str or None
        What asks for that many: ``rate``, ``capacity``, or ``layout``, each piece of a chunk being on its own drive.
    """

    read_bytes_per_s: float
    write_bytes_per_s: float
    read_mean_bytes_per_s: float
    write_mean_bytes_per_s: float
    read_iops: float
    write_iops: float
    capacity_bytes: float
    provided_bytes: float
    raw_bytes: float
    drives: int | None = None
    drives_provided: int | None = None
    drives_for: str | None = None

    def to_dict(self, gpus: int) -> dict[str, Any]:
        """Return it as plain values, and what it comes to a GPU."""
        per_gpu = {
            "read_bytes_per_s": self.read_bytes_per_s / gpus,
            "write_bytes_per_s": self.write_bytes_per_s / gpus,
            "capacity_bytes": self.capacity_bytes / gpus,
            "drives": None if self.drives is None else self.drives / gpus,
        }
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return own | {"per_gpu": per_gpu}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a run asked for.

    Parameters
    ----------
    tiers : dict
        By tier below HBM.
    gpus : int
        Of all replicas.
    prompt_tokens : dict
        ``p50``, ``p90`` and ``max`` of the prompts that were served [tokens].
    restores_per_s : float or None
        Requests that loaded KV from a tier below HBM, by the makespan.
    """

    tiers: dict[str, TierNeed]
    gpus: int
    prompt_tokens: dict[str, int]
    restores_per_s: float | None


def run_with_needs(scenario: Scenario, report: Report) -> tuple[SimulationResult, Needs]:
    """Run a scenario; return what was found and what it asked for. Raises as :func:`scenarios.build.simulate` does."""
    assembly = assemble(scenario)
    result = run(build(scenario, assembly), progress=report)
    return result, needs_of(result, assembly)


def needs_of(result: SimulationResult, assembly: Assembly) -> Needs:
    """Return what a run asked of the tiers that *assembly* has, in its measured time."""
    requests, cluster = result.table("requests"), result.scenario["cluster"]
    measured = result.measured_requests()
    from_s, to_s = measured_window(requests, measured)
    done = measured & (requests["state"] == COMPLETED)
    rates = _Rates(result, from_s, to_s)
    summary = result.summary_values
    below = [name for name in summary["tiers"] if name != "hbm"]
    restored = np.zeros(done.size, dtype=np.bool_)
    for name in below:
        restored |= requests[f"hit_tokens_{name}"] > 0
    decode = cluster.get("decode")
    gpus = assembly.engines.sizes.workers * cluster["replicas"]
    if assembly.decoding is not None and decode is not None:
        gpus += assembly.decoding.engines.sizes.workers * decode["replicas"]
    return Needs(
        tiers={part.name: _tier_need(part, assembly, rates, summary) for part in assembly.topology.parts},
        gpus=gpus,
        prompt_tokens=_prompts(requests, done),
        restores_per_s=float((restored & done).sum()) / (to_s - from_s) if to_s > from_s else None,
    )


def _prompts(requests: Columns, done: Any) -> dict[str, int]:
    tokens = requests["prompt_tokens"][done]
    if not tokens.size:
        return {}
    found = np.quantile(tokens, (0.5, 0.9, 1.0), method="inverted_cdf")
    return dict(zip(("p50", "p90", "max"), (int(value) for value in found), strict=True))


class _Rates:
    """Bytes that moved to and from each tier, in bins of the measured time."""

    def __init__(self, result: SimulationResult, from_s: float, to_s: float) -> None:
        self._links = result.table("links")
        self._link_names = result.labels["links"]["link"]
        self._window_s = from_s, to_s
        self._table = result.table("transfers")
        self._tiers = result.labels["transfers"]["tier"]
        span_s = to_s - from_s
        bins = max(math.ceil(span_s / _BIN_S), _FEWEST_BINS) if span_s > 0.0 else 0
        self._edges_s = np.linspace(from_s, to_s, bins + 1) if bins else np.zeros(0)

    def of_drives(
        self, tier: str, links: Sequence[Link], ports: Sequence[Link], overhead: float
    ) -> tuple[Floats, Floats]:
        """Return the rate of each bin [B/s] of reads and of writes, over the *links* of a tier's drives.

        Of each byte that is stored, *overhead* are written to the drives: links have metered them, transfers have not.
        """
        table = self._links
        from_s, to_s = self._window_s
        time_s = table["time_s"][table["link"] == 0]
        width_s = float(time_s[1] - time_s[0]) if time_s.size > 1 else math.inf
        inside = (time_s + width_s > from_s) & (time_s < to_s)
        if inside.sum() < _FEWEST_METERED:
            # Spread over the time they took, transfers may seem to go faster together than their link does.
            most_read = min(sum(link.read_bytes_per_s for link in one) for one in (links, ports))
            most_written = min(
                sum(link.write_bytes_per_s for link in links), sum(link.write_bytes_per_s for link in ports) * overhead
            )
            read = np.minimum(self.of(tier, _READ), most_read)
            return read, np.minimum(self.of(tier, _WRITE) * overhead, most_written)
        chosen = [table["link"] == self._link_names.index(link.name) for link in links]
        moved = [
            np.sum([table[f"{way}_bytes_per_s"][own][inside] for own in chosen], axis=0) for way in ("read", "write")
        ]
        return moved[0], moved[1]

    def of(self, tier: str, kind: int) -> Floats:
        """Return the rate of each bin [B/s]; each transfer's bytes are spread evenly over the time it took."""
        table = self._table
        chosen = (table["tier"] == self._tiers.index(tier)) & (table["kind"] == kind)
        if not chosen.any() or not self._edges_s.size:
            return np.zeros(max(self._edges_s.size - 1, 0))
        start_s, end_s = table["started_at_s"][chosen], table["finished_at_s"][chosen]
        n_bytes = table["n_bytes"][chosen].astype(np.float64)
        # What took no time at all is spread over a nanosecond, so that it counts.
        end_s = np.maximum(end_s, start_s + 1e-9)
        rate = n_bytes / (end_s - start_s)
        at_s = np.concatenate([start_s, end_s])
        order = np.argsort(at_s, kind="stable")
        at_s = at_s[order]
        slope = np.cumsum(np.concatenate([rate, -rate])[order])
        moved = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(at_s))])
        by_edge = np.interp(self._edges_s, at_s, moved)
        rates: Floats = np.maximum(np.diff(by_edge) / np.diff(self._edges_s), 0.0)
        return rates


def _tier_need(part: Part, assembly: Assembly, rates: _Rates, summary: dict[str, Any]) -> TierNeed:
    on_drives = not part.is_memory
    media = _links(f"{part.name}.drives" if part.has_ports else part.name, assembly)
    if on_drives:
        read, write = rates.of_drives(part.name, media, _links(part.name, assembly), part.layout.overhead)
    else:
        read, write = rates.of(part.name, _READ), rates.of(part.name, _WRITE)
    counters = summary["tiers"][part.name]
    peak_read, peak_write = _often(read), _often(write)
    piece_bytes = assembly.topology.piece_bytes(part)
    held_bytes = float(counters["peak_used_bytes"])
    need = TierNeed(
        read_bytes_per_s=peak_read,
        write_bytes_per_s=peak_write,
        read_mean_bytes_per_s=float(read.mean()) if read.size else 0.0,
        write_mean_bytes_per_s=float(write.mean()) if write.size else 0.0,
        read_iops=peak_read / piece_bytes if on_drives else 0.0,
        write_iops=peak_write / piece_bytes if on_drives else 0.0,
        capacity_bytes=held_bytes,
        provided_bytes=float(counters["capacity_bytes"]),
        raw_bytes=held_bytes * part.layout.overhead,
    )
    if not on_drives:
        return need
    drives, why = _drives(part, media, (read, write), piece_bytes, need.raw_bytes)
    return replace(need, drives=drives, drives_provided=part.device.drives * len(media), drives_for=why)


def _links(family: str, assembly: Assembly) -> list[Link]:
    """Return the links of a family, one in each of a tier's places."""
    links = assembly.topology.links.by_name
    return [link for name, link in links.items() if name == family or name.removeprefix(f"{family}.").isdigit()]


def _drives(
    part: Part, media: Sequence[Link], moved: tuple[Floats, Floats], piece_bytes: float, raw_bytes: float
) -> tuple[int, str]:
    """Return how many drives do the work of 99 % of the bins and have room for *raw_bytes*, and what asks for most.

    Reads and writes share a drive (or do not, where it is duplex) as they do in the run: by the time that each takes.
    In each place there are as many as a chunk has pieces.
    """
    device, link = part.device, media[0]
    read_limit = min(link.read_bytes_per_s, device.read_limit_bytes_per_s(piece_bytes)) / device.drives
    write_limit = min(link.write_bytes_per_s, device.write_limit_bytes_per_s(piece_bytes)) / device.drives
    read, write = moved[0] / read_limit, moved[1] / write_limit
    for_rate = _ceil(_often(np.maximum(read, write) if link.duplex else read + write))
    for_room = 0
    if device.capacity_bytes is not None:
        for_room = _ceil(raw_bytes / (device.capacity_bytes / device.drives))
    most, why = (for_room, "capacity") if for_room > for_rate else (for_rate, "rate")
    for_layout = 1 if part.spec.layout is None else part.layout.pieces * len(media)
    return (for_layout, "layout") if for_layout > max(most, 1) else (max(most, 1), why)


def _ceil(share: float) -> int:
    return math.ceil(share - 1e-9)  # a drive that is full to the last bit is one drive


def _often(rates: Floats) -> float:
    return float(np.percentile(rates, _MOST_OFTEN)) if rates.size else 0.0
