"""What a run writes to the drives of a tier, and how long they last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.economics import SECONDS_PER_DAY, SECONDS_PER_YEAR, rated_bytes, wear_out_s
from scenarios.build import Assembly
from scenarios.economics.bill import capacity_of
from scenarios.topology.parts import Part


def wear_of(
    part: Part, figures: Mapping[str, Any], assembly: Assembly, *, window_s: float, utilisation: float
) -> dict[str, float | None]:
    """Return what a tier is written with, over all its places, at the rate of the measured time.

    ``write_bytes_per_day``; for drives also ``drive_bytes_per_day``, which are those with copies and parity,
    ``write_amplification``, ``flash_bytes_per_day``, ``dwpd`` against ``rated_dwpd``, and ``wear_out_years``: None
    where nothing is written or the catalogue does not rate the device. Chunks are written in full stripes
    (:class:`scenarios.tier_spec.Layout`); rebuilds and neighbours wear nothing out. Days are calendar days:
    *utilisation* is the share of them in which the cluster does what the run does.
    """
    rate = figures["write_bytes"] / window_s * utilisation if window_s > 0.0 else 0.0
    found: dict[str, float | None] = {"write_bytes_per_day": rate * SECONDS_PER_DAY}
    device = part.device
    endurance = _endurance_bytes(part, assembly)
    if endurance is None:
        return found
    places = len(assembly.topology.pools()[part.name])
    capacity = capacity_of(part, assembly)
    amplification = 1.0 if device.write_amplification is None else device.write_amplification
    rated = 1.0 if device.rated_write_amplification is None else device.rated_write_amplification
    on_drives = rate * part.layout.overhead
    until_s = wear_out_s(
        on_drives / places,
        endurance_bytes=endurance,
        write_amplification=amplification,
        rated_write_amplification=rated,
    )
    return found | {
        "drive_bytes_per_day": on_drives * SECONDS_PER_DAY,
        "write_amplification": amplification,
        "flash_bytes_per_day": on_drives * amplification * SECONDS_PER_DAY,
        "dwpd": on_drives * SECONDS_PER_DAY / (places * capacity),
        "rated_dwpd": device.rated_dwpd,
        "wear_out_years": None if until_s is None else until_s / SECONDS_PER_YEAR,
    }


def _endurance_bytes(part: Part, assembly: Assembly) -> float | None:
    """Return what one place of a tier is rated to be written with [B]; None where nobody says."""
    device = part.device
    if device.endurance_bytes is not None:
        return float(device.endurance_bytes)
    if device.rated_dwpd is None or device.rated_life_s is None:
        return None
    return rated_bytes(capacity_of(part, assembly), dwpd=device.rated_dwpd, life_s=device.rated_life_s)
