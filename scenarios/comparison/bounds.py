"""How far variants are from a bound among them: a policy that knows the future, or a cache without end.

A bound holds for what it is a bound of. `belady` has the most chunk hits that one tier of that size can have, not the
least TTFT, and not the most over several tiers; `infinite` has the most hits that the workload has in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from scenarios.comparison.metrics import Metrics

_BOUNDS: Final = ("belady", "infinite")
_METRICS: Final = ("hit_ratio_tokens", "ttft_s.mean", "ttft_s.p50")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """A figure of a variant beside that of its bound.

    Parameters
    ----------
    variant, bound : str
        Names of both: variants that set the same but for the eviction policy.
    metric : str
        The figure.
    distance : float
        The variant's less the bound's, in the figure's unit.
    share : float or None
        The variant's over the bound's; None where that is 0.
    """

    variant: str
    bound: str
    metric: str
    distance: float
    share: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def distances(variants: Sequence[tuple[str, Mapping[str, Any], Metrics]]) -> list[Distance]:
    """Return the distances of all variants (name, settings, metrics) to the bounds among them; of bounds too."""
    found = []
    for bound, bound_settings, bound_metrics in variants:
        keys = [key for key, value in bound_settings.items() if _is_eviction(key) and is_bound(value)]
        if not keys:
            continue
        # The hits of the tier whose policy it is are what it bounds.
        tiers = [f"tiers.{key.split('.')[1]}.hit_ratio" for key in keys]
        for name, settings, metrics in variants:
            if name == bound or _without(settings, keys) != _without(bound_settings, keys):
                continue
            for metric in dict.fromkeys([*tiers, *_METRICS]):
                own, best = metrics.get(metric), bound_metrics.get(metric)
                if own is not None and best is not None:
                    share = own / best if best else None
                    found.append(Distance(variant=name, bound=bound, metric=metric, distance=own - best, share=share))
    return found


def is_bound(policy: Any) -> bool:
    """Whether an eviction policy is a bound that no real cache can be, by its name."""
    return isinstance(policy, str) and policy.startswith(_BOUNDS)


def _is_eviction(key: str) -> bool:
    parts = key.split(".")
    return len(parts) == 3 and parts[0] == "tiers" and parts[2] == "eviction"


def _without(settings: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in keys}
