"""What one link carried in the measured time, against what it could have carried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sim.arrays import Floats
from sim.recording import LinkMeter
from sim.transfers.flows import READ, WRITE, Link

# The rule of reports R2 and R3 for "busy" seconds in their iostat columns: seconds above 0.5 GB/s.
_BUSY_ABOVE_BYTES_PER_S: Final = 0.5e9
# A link that cannot reach ten times that would never, or hardly, be busy by it: a tenth of its capacity counts instead.
_BUSY_ABOVE_SHARE: Final = 0.1


def link_use(
    meter: LinkMeter,
    index: int,
    link: Link,
    *,
    moved_bytes: Sequence[float],
    busy_s: float,
    from_s: float,
    to_s: float,
    neighbour_bytes: Sequence[float] | None = None,
) -> dict[str, float | None]:
    """Return one entry of the ``links`` part of a summary; None where the link was never busy.

    Parameters
    ----------
    meter, index, link : LinkMeter, int, Link
        Where the bytes were counted over time, under which index, and what could have been carried. Where the
        directions disturb each other, their shares of the capacity add up.
    moved_bytes : sequence of float
        What crossed it in the measured time by direction [B].
    busy_s : float
        Time in which at least one flow was on the link, within the measured time [s].
    from_s, to_s : float
        The measured time [s]. Bins that it cuts count among the busy ones.
    neighbour_bytes : sequence of float or None
        The part of *moved_bytes* that is traffic of others; None: there is nobody else, and nothing is said of it.

    Notes
    -----
    ``busy_fraction`` is *busy_s* over the measured time. ``read_p99_bytes_per_s`` and its write twin are the rate that
    99 % of the bins stay at or below, idle ones included. ``peak_bytes_per_s`` is the largest bin and
    ``busy_mean_bytes_per_s`` the mean of the busy bins, reads and writes together; ``read_busy_mean_bytes_per_s`` and
    its write twin use one direction alone, which is what iostat's columns show. A bin is busy above 0.5 GB/s, on links
    slower than ten times that above a tenth of their capacity. ``read_utilisation`` is the larger of two shares of
    capacity: of the busy bins' mean, and of bytes over *busy_s* (bursts shorter than a bin show only there).
    ``busy_utilisation`` joins both directions: the larger where they are duplex, else their sum. ``utilisation`` does
    so for bytes over the whole measured time.
    """
    read_bytes, write_bytes = moved_bytes[READ], moved_bytes[WRITE]
    time_s, read, write = meter.timeline(index)
    inside = (time_s + meter.bin_s > from_s) & (time_s < to_s)
    read, write = read[inside], write[inside]
    slower_way_bytes_per_s = min(link.read_bytes_per_s, link.write_bytes_per_s)
    threshold = min(_BUSY_ABOVE_BYTES_PER_S, _BUSY_ABOVE_SHARE * slower_way_bytes_per_s)
    read_mean, write_mean = _busy_mean(read, threshold), _busy_mean(write, threshold)
    per_s = 1.0 / busy_s if busy_s > 0.0 else 0.0
    read_share = max(read_bytes * per_s, read_mean or 0.0) / link.read_bytes_per_s
    write_share = max(write_bytes * per_s, write_mean or 0.0) / link.write_bytes_per_s
    work_s = read_bytes / link.read_bytes_per_s, write_bytes / link.write_bytes_per_s
    joined, joined_work_s = max(read_share, write_share), max(work_s)
    if not link.duplex:
        shares = read / link.read_bytes_per_s + write / link.write_bytes_per_s
        joined_work_s = sum(work_s)
        joined = max(joined_work_s * per_s, _busy_mean(shares, _BUSY_ABOVE_SHARE) or 0.0)
    span_s = to_s - from_s
    others = {}
    if neighbour_bytes is not None:
        others = {"neighbour_read_bytes": neighbour_bytes[READ], "neighbour_write_bytes": neighbour_bytes[WRITE]}
    return {
        "read_bytes": read_bytes,
        "write_bytes": write_bytes,
        **others,
        "busy_fraction": min(busy_s / span_s, 1.0) if span_s > 0.0 else 0.0,
        "peak_bytes_per_s": float((read + write).max(initial=0.0)),
        "read_p99_bytes_per_s": _p99(read),
        "write_p99_bytes_per_s": _p99(write),
        "busy_mean_bytes_per_s": _busy_mean(read + write, threshold),
        "read_busy_mean_bytes_per_s": read_mean,
        "write_busy_mean_bytes_per_s": write_mean,
        "read_capacity_bytes_per_s": link.read_bytes_per_s,
        "write_capacity_bytes_per_s": link.write_bytes_per_s,
        "read_utilisation": min(read_share, 1.0),
        "write_utilisation": min(write_share, 1.0),
        "busy_utilisation": min(joined, 1.0),
        "utilisation": min(joined_work_s / span_s, 1.0) if span_s > 0.0 else 0.0,
        "bin_s": meter.bin_s,
    }


def _p99(rates: Floats) -> float:
    """Return the 99th percentile of the bins, interpolated; 0 where there are none."""
    return float(np.percentile(rates, 99.0)) if rates.size else 0.0


def _busy_mean(rates: Floats, threshold: float) -> float | None:
    """Return the mean of the *rates* above *threshold*, both in one unit."""
    busy = rates[rates > threshold]
    return float(busy.mean()) if busy.size else None
