"""Which variant wears its drives least for its work, among those whose mean TTFT is no higher than the first one's.

Work is output tokens. Years and bytes a day are at a variant's own speed: in a closed loop a slower one writes less a
day for doing less a day, which is nothing that it spares. What neighbours write is left out: it wears the drives too,
but no variant's policy spares any of it, and beside much of it all would look alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scenarios.comparison.comparing import Compared, Comparison

_TTFT: Final = "ttft_s.mean"
_OUTPUT: Final = "economics.output_tokens_per_day"
OTHERS_FLASH: Final = "neighbour_flash_bytes_per_day"
"""Last part of the name of what neighbours write to a tier, which is a part of all that is written to it."""
_FLASH: Final = ".flash_bytes_per_day"
_YEARS: Final = ".wear_out_years"
EQUAL_SHARE: Final = 0.01
"""Who wears no more than this above the least, for a token, is said to wear as little.

A choice: variants that do the same work may differ in what is still under way when runs end, and nobody buys by less.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWear:
    """The variant that wears least for each output token.

    Parameters
    ----------
    variant : str
        Its name.
    years : float or None
        Until the first of its tiers would be worn out at its own speed, by its own writes; None where there are none.
    flash_bytes_per_day : float
        Written to the flash of all its tiers of drives, by them, at its own speed [B].
    output_tokens_per_day : float
        That speed.
    candidates : tuple of str
        Those that it was chosen among.
    equals : tuple of str
        Those of them that wear as little (:data:`EQUAL_SHARE`).
    """

    variant: str
    years: float | None
    flash_bytes_per_day: float
    output_tokens_per_day: float
    candidates: tuple[str, ...] = ()
    equals: tuple[str, ...] = ()

    @property
    def flash_bytes_per_output_token(self) -> float:
        """What all its tiers of drives are written with for an output token [B]."""
        return self.flash_bytes_per_day / self.output_tokens_per_day

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "variant": self.variant,
            "wear_out_years": self.years,
            "flash_bytes_per_day": self.flash_bytes_per_day,
            "flash_bytes_per_output_token": self.flash_bytes_per_output_token,
            "output_tokens_per_day": self.output_tokens_per_day,
            "candidates": list(self.candidates),
            "equals": list(self.equals),
        }


def least_wear(comparison: Comparison) -> LeastWear | None:
    """Return the variant whose first tier to wear out lasts for most output tokens; None where no run says its wear.

    Candidates are the first variant and those whose mean TTFT is equal to its, by their interval, or lower. Of those
    that nothing wears out the one that has less written for a token wins; of those that wear as little the earlier.
    """
    found = [one for one in comparison.variants if one.error is None and _is_no_slower(one, comparison)]
    worn = [wear for one in found if (wear := _wear(one)) is not None]
    if not worn:
        return None
    least = min(worn, key=lambda wear: (-_lasts_tokens(wear), wear.flash_bytes_per_output_token))
    first, *equals = [wear for wear in worn if _wears_as_little(wear, least)]
    return replace(
        first,
        candidates=tuple(wear.variant for wear in worn),
        equals=tuple(wear.variant for wear in equals),
    )


def _wears_as_little(wear: LeastWear, least: LeastWear) -> bool:
    if least.years is None:
        written = wear.flash_bytes_per_output_token
        return wear.years is None and written <= least.flash_bytes_per_output_token * (1.0 + EQUAL_SHARE)
    return _lasts_tokens(wear) * (1.0 + EQUAL_SHARE) >= _lasts_tokens(least)


def _lasts_tokens(wear: LeastWear) -> float:
    """Return what is proportional to the output tokens until the first tier is worn out."""
    return inf if wear.years is None else wear.years * wear.output_tokens_per_day


def _is_no_slower(one: Compared, comparison: Comparison) -> bool:
    if one is comparison.first:
        return True
    difference = comparison.differences.get(one.variant.name, {}).get(_TTFT)
    return difference is not None and (difference.difference <= 0.0 or difference.equal is True)


def _wear(one: Compared) -> LeastWear | None:
    """Return what a variant wears, if any of its tiers is rated and it put out any tokens; not yet among which."""
    tiers = [name.removesuffix(_FLASH) for name in one.metrics if name.endswith(_FLASH)]
    output = one.metrics.get(_OUTPUT)
    if not tiers or not output:
        return None
    years, written = [], 0.0
    for tier in tiers:
        in_all = one.metrics[tier + _FLASH] or 0.0
        own = max(0.0, in_all - (one.metrics.get(f"{tier}.{OTHERS_FLASH}") or 0.0))
        written += own
        until = one.metrics.get(tier + _YEARS)
        if own and until is not None:
            years.append(until * (in_all / own))
    return LeastWear(
        variant=one.variant.name,
        years=min(years, default=None),
        flash_bytes_per_day=written,
        output_tokens_per_day=output,
    )
