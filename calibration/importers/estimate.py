"""Figures of a storage device from points of a grid: the parameters of `models.storage.DeviceCost`'s two laws.

Each is read off where the law that it belongs to rules: bandwidth at the top, operations a second where small I/Os stop
to gain from a deeper queue, latency and stream rate at a queue depth of 1. What a file does not reach is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.importers.points import Point, size_text
from models.catalogue import Status

_FAR_BELOW: Final = 0.8
"""Below this share of the bandwidth, something else limits the rate."""

_EXPLAINED: Final = 0.75
"""Little's law alone explains a rate of this share of what it allows: no limit of operations is in sight."""

_TRICKLE_SHARE: Final = 0.05
"""A mix with less than one byte in twenty of a direction says nothing about it."""

_SHALLOW: Final = 4
"""In a deeper queue than this, a mean time says more about the waiting than about the device."""

_LEVEL: Final = 0.95
"""Rates that differ by less than one in twenty are taken for equal."""

_LARGE_BYTES: Final = 128 * 1024
"""Blocks that no test reaches hardly show a bandwidth: common test grids take 128 KiB and more for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One figure as it was found: its value [SI], where it is from, and how sure it is."""

    value: float
    note: str
    spread: float | None = None
    status: Status = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """What one direction says: its points alone, its points in mixes, and the best rate."""

    direction: str
    alone: Sequence[Point]
    mixed: Sequence[Point]

    @property
    def best(self) -> Point | None:
        return max(self.alone, key=lambda point: point.cell.bytes_per_s, default=None)

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        return None if self.best is None else self.best.cell.bytes_per_s


def estimate(points: Sequence[Point]) -> tuple[dict[str, Found], list[str]]:
    """Return the figures that the points give, by their catalogue names, and warnings about what they do not show."""
    sides = {name: _side(points, name) for name in ("read", "write")}
    figures: dict[str, Found] = {}
    warnings: list[str] = []
    rates: dict[str, float] = {}
    for name, side in sides.items():
        other = sides["write" if name == "read" else "read"]
        found = _bandwidth(side, other.bandwidth_bytes_per_s)
        if found is not None:
            rates[name], figures[f"{name}_bandwidth"] = found
    stream_bytes_per_s: float | None = None
    latencies: dict[str, float] = {}
    for name, side in sides.items():
        serial = _serial(side, stream_bytes_per_s)
        if serial is None:
            continue
        latencies[name], slope, figures[f"{name}_latency"] = serial
        if slope is not None and stream_bytes_per_s is None and (name == "read" or not sides["read"].alone):
            stream_bytes_per_s = slope
            note = f"from the times of {name}s of several sizes at queue depth 1"
            figures["stream_bandwidth"] = Found(value=slope, note=note)
    for name, side in sides.items():
        operations = _operations(side, rates.get(name), latencies.get(name), stream_bytes_per_s)
        if operations is not None:
            figures[f"{name}_iops"] = operations
        warnings += _doubts(side)
    return figures, warnings


def _side(points: Sequence[Point], direction: str) -> _Side:
    used = [point for point in points if point.cell.rate(direction) > _TRICKLE_SHARE * point.cell.bytes_per_s]
    alone = [
        point for point in used if point.cell.rate(direction) == point.cell.bytes_per_s and not point.cell.is_bound
    ]
    return _Side(direction=direction, alone=alone, mixed=[point for point in used if point not in alone])


def _bandwidth(side: _Side, other_bytes_per_s: float | None) -> tuple[float, Found] | None:
    """Return the highest rate alone or, where there is none, what the best mix says."""
    best = side.best
    if best is not None:
        note = f"the highest of {len(side.alone)} points: {best.text()}" if len(side.alone) > 1 else best.text()
        rate = best.cell.bytes_per_s
        return rate, Found(value=rate, note=note, spread=best.spread)
    if not side.mixed:
        return None
    best = max(side.mixed, key=lambda point: point.cell.rate(side.direction))
    total, share = best.cell.bytes_per_s, best.cell.rate(side.direction) / best.cell.bytes_per_s
    if other_bytes_per_s is not None:
        # The law of a shared medium, r / R + w / W = 1 / B, solved for the side that was never alone.
        left = 1.0 / total - (1.0 - share) / other_bytes_per_s
        if left > 0.02 / total:
            rate = share / left
            note = f"from the mix {best.text()}, as of a medium that both directions share"
            return rate, Found(value=rate, note=note, spread=best.spread, status="derived")
    note = f"reads and writes together, a lower bound of either: {best.text()}"
    return total, Found(value=total, note=note, spread=best.spread)


def _serial(side: _Side, stream_bytes_per_s: float | None) -> tuple[float, float | None, Found] | None:
    """Return latency [s], stream rate [B/s] where sizes differ, and the latency as a figure."""
    timed = [point for point in side.alone if point.cell.latency_s(side.direction)]
    if not side.alone:
        # In a mix only a measured time is one of this direction, and only alone in the queue it waits for nothing.
        timed = [point for point in side.mixed if point.cell.depth == 1 and _measured_s(point, side.direction)]
    ones = [point for point in timed if point.cell.depth == 1]
    if not ones:
        return _shallowest(side, timed)
    smallest = min(ones, key=lambda point: point.cell.io_bytes)
    times = [(point.cell.io_bytes, point.cell.latency_s(side.direction) or 0.0) for point in ones]
    spread = smallest.spread
    if stream_bytes_per_s is None and len({size for size, _ in times}) > 1:
        latency_s, slope = _line(times)
        note = f"a line through the times of {len(times)} sizes and patterns at queue depth 1"
        return latency_s, slope, Found(value=latency_s, note=note, spread=spread)
    whole_s = smallest.cell.latency_s(side.direction) or 0.0
    moving_s = smallest.cell.io_bytes / stream_bytes_per_s if stream_bytes_per_s else 0.0
    latency_s = whole_s - moving_s if moving_s < _EXPLAINED * whole_s else whole_s
    note = f"mean time of {smallest.text()}" + (", less its bytes at the stream rate" if latency_s < whole_s else "")
    return latency_s, None, Found(value=latency_s, note=note, spread=spread)


def _shallowest(side: _Side, timed: Sequence[Point]) -> tuple[float, float | None, Found] | None:
    """Return the shortest time seen where nothing ran at queue depth 1; None where it is mostly waiting."""
    shallow = [
        point
        for point in timed
        if point.cell.depth is None
        or (point.cell.depth <= _SHALLOW and point.cell.bytes_per_s < _FAR_BELOW * (side.bandwidth_bytes_per_s or 0.0))
    ]
    if not shallow:
        return None
    quickest = min(shallow, key=lambda point: point.cell.latency_s(side.direction) or 0.0)
    latency_s = quickest.cell.latency_s(side.direction) or 0.0
    note = f"the shortest mean time, not alone in the queue: an upper bound ({quickest.text()})"
    return latency_s, None, Found(value=latency_s, note=note, spread=quickest.spread)


def _measured_s(point: Point, direction: str) -> float | None:
    return point.cell.read_latency_s if direction == "read" else point.cell.write_latency_s


def _doubts(side: _Side) -> Iterator[str]:
    """Yield why the bandwidth may be higher than what was seen."""
    used = [point.cell for point in (side.alone or side.mixed) if point.cell.depth is not None]
    if not used:
        return
    largest = max(cell.io_bytes for cell in used)
    if largest < _LARGE_BYTES:
        yield f"the largest {side.direction}s are of {size_text(largest)}: larger ones may reach a higher bandwidth"
    if all(cell.depth == 1 for cell in used):
        yield f"no {side.direction}s at a queue deeper than 1: more at once may reach a higher bandwidth"


def _line(times: Sequence[tuple[float, float]]) -> tuple[float, float | None]:
    """Return latency [s] and stream rate [B/s] of the line through (size, time) that is closest in relative terms."""
    import numpy as np

    sizes, seconds = np.array(times).T
    (latency_s, per_byte_s), *_ = np.linalg.lstsq(
        np.stack([1.0 / seconds, sizes / seconds], axis=1), np.ones_like(seconds), rcond=None
    )
    if latency_s > 0 and per_byte_s > 0:
        return float(latency_s), float(1.0 / per_byte_s)
    # Times that do not grow with the size, or grow faster than it: only the ends are believed.
    (small, quick_s), (large, slow_s) = min(times), max(times)
    return quick_s, (large - small) / (slow_s - quick_s) if slow_s > quick_s else None


def _operations(
    side: _Side, bandwidth_bytes_per_s: float | None, latency_s: float | None, stream_bytes_per_s: float | None
) -> Found | None:
    """Return the operations a second at which small I/Os stop to gain from a deeper queue; None where none did."""
    if bandwidth_bytes_per_s is None:
        return None
    small = [
        (point.cell.bytes_per_s / point.cell.io_bytes, point.cell.depth, point)
        for point in side.alone
        if point.cell.depth is not None and point.cell.bytes_per_s < _FAR_BELOW * bandwidth_bytes_per_s
    ]
    if not small:
        return None
    highest = max(operations_per_s for operations_per_s, _, _ in small)
    # Of those that are as good as equal, the deepest queue is the one that shows a limit.
    level = [row for row in small if row[0] >= _LEVEL * highest]
    operations_per_s, depth, best = max(level, key=lambda row: (row[1], row[0]))
    if latency_s is not None:
        service_s = latency_s + (best.cell.io_bytes / stream_bytes_per_s if stream_bytes_per_s else 0.0)
        if operations_per_s > _EXPLAINED * depth / service_s:
            return None
    how = "the highest seen" if latency_s is None else "less than the latency would allow"
    return Found(value=operations_per_s, note=f"{how}: {best.text()}", spread=best.spread)
