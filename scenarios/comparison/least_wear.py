"""Which variant wears its drives least among those whose mean TTFT is no higher than that of the first one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scenarios.comparison.comparing import Compared, Comparison

_TTFT: Final = "ttft_s.mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWear:
    """The variant that wears least.

    Parameters
    ----------
    variant : str
        Its name.
    years : float or None
        Until the first of its tiers is worn out; None where nothing is written to any.
    flash_bytes_per_day : float
        Over all its tiers of drives [B].
    candidates : tuple of str
        Those that it was chosen among.
    """

    variant: str
    years: float | None
    flash_bytes_per_day: float
    candidates: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "variant": self.variant,
            "wear_out_years": self.years,
            "flash_bytes_per_day": self.flash_bytes_per_day,
            "candidates": list(self.candidates),
        }


def least_wear(comparison: Comparison) -> LeastWear | None:
    """Return the variant whose first tier to wear out lasts longest; None where no run says what it wears.

    Candidates are the first variant and those whose mean TTFT is equal to its, by their interval, or lower. Of equals
    the one that has less written wins, then the earlier.
    """
    found = [one for one in comparison.variants if one.error is None and _is_no_slower(one, comparison)]
    worn = {one.variant.name: worn for one in found if (worn := _wear(one)) is not None}
    if not worn:
        return None
    name = min(worn, key=lambda name: (-inf if worn[name][0] is None else -(worn[name][0] or 0.0), worn[name][1]))
    return LeastWear(variant=name, years=worn[name][0], flash_bytes_per_day=worn[name][1], candidates=tuple(worn))


def _is_no_slower(one: Compared, comparison: Comparison) -> bool:
    if one is comparison.first:
        return True
    difference = comparison.differences.get(one.variant.name, {}).get(_TTFT)
    return difference is not None and (difference.difference <= 0.0 or difference.equal is True)


def _wear(one: Compared) -> tuple[float | None, float] | None:
    """Return the years until a tier is worn out and the bytes a day that flash is written with, if any is rated."""
    years = [value for name, value in one.metrics.items() if name.endswith(".wear_out_years") and value is not None]
    written = [value for name, value in one.metrics.items() if name.endswith(".flash_bytes_per_day")]
    if not written:
        return None
    return min(years, default=None), sum(value or 0.0 for value in written)
