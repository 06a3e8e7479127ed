"""What a run writes to the drives of a tier, and how long they last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.economics import SECONDS_PER_DAY, SECONDS_PER_YEAR, rated_bytes, wear_out_s
from scenarios.build import Assembly
from scenarios.economics.bill import capacity_of
from scenarios.neighbours import Neighbour
from scenarios.topology.parts import Part


def wear_of(
    part: Part,
    figures: Mapping[str, Any],
    assembly: Assembly,
    *,
    window_s: float,
    utilisation: float,
    neighbours: Mapping[str, Neighbour],
    traffic: Mapping[str, Mapping[str, Any]],
) -> dict[str, float | None]:
    """Return what a tier is written with, over all its places, at the rate of the measured time.

    ``write_bytes_per_day``; for drives also ``drive_bytes_per_day``, which are those with copies and parity and what
    neighbours write, ``write_amplification``, ``flash_bytes_per_day`` and of it ``neighbour_flash_bytes_per_day`` where
    there are any, ``dwpd`` against ``rated_dwpd``, and ``wear_out_years``: None where nothing is written or the
    catalogue does not rate the device. Chunks are written in full stripes (:class:`scenarios.tier_spec.Layout`);
    rebuilds wear nothing out. Days are calendar days: *utilisation* is the share of them in which the cluster does what
    the run does; what *neighbours* write goes on all day (:func:`neighbour_bytes_per_s`), *traffic* being what the
    summary says of each.
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
    others = neighbour_bytes_per_s(part.name, neighbours, traffic, places=places)
    on_drives = rate * part.layout.overhead + (others or 0.0)
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
        **({} if others is None else {"neighbour_flash_bytes_per_day": others * amplification * SECONDS_PER_DAY}),
        "dwpd": on_drives * SECONDS_PER_DAY / (places * capacity),
        "rated_dwpd": device.rated_dwpd,
        "wear_out_years": None if until_s is None else until_s / SECONDS_PER_YEAR,
    }


def neighbour_bytes_per_s(
    tier: str, neighbours: Mapping[str, Neighbour], traffic: Mapping[str, Mapping[str, Any]], *, places: int
) -> float | None:
    """Return what neighbours write to the drives of a tier, over all its places [B/s]; None where none lasts.

    A steady one goes on as it did on average over the measured time, with the pauses that its beginning, end and phase
    make in that, whether the cluster works or not. Bursts that come ``every`` so often are written that often, at each
    place, whatever of them the measured time saw or the drives could take. A single burst is no rate, and left out.
    Bytes reach the drives as they are: copies and parity are the tiers' own (``Paths.outside_hops``). Those over a
    ``link`` are written nowhere. *traffic* is what the summary says of each neighbour.
    """
    found = []
    for name, spec in neighbours.items():
        if spec.tier != tier or spec.direction != "write":
            continue
        if spec.bursts is None:
            found.append(float(traffic[name]["mean_bytes_per_s"] or 0.0))
        elif spec.bursts.every is not None:
            found.append(places * spec.bursts.size_bytes(spec.rate) / spec.bursts.every)
    return sum(found) if found else None


def _endurance_bytes(part: Part, assembly: Assembly) -> float | None:
    """Return what one place of a tier is rated to be written with [B]; None where nobody says."""
    device = part.device
    if device.endurance_bytes is not None:
        return float(device.endurance_bytes)
    if device.rated_dwpd is None or device.rated_life_s is None:
        return None
    return rated_bytes(capacity_of(part, assembly), dwpd=device.rated_dwpd, life_s=device.rated_life_s)
