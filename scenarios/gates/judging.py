"""Verdicts: the value of each check, its margin to the bounds, and how sure it is that it passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import NormalDist, median, stdev
from typing import Any, Final, Literal

from scenarios.gates.criteria import SHARES, Check, Gates
from scenarios.gates.evidence import Evidence

Verdict = Literal["PASS", "FAIL", "NO EVIDENCE"]

# The median of n normal values scatters by 1.2533 times their standard deviation over the root of n (sqrt(pi / 2)).
_MEDIAN: Final = 1.2533
# Fewer repeats say too little of the scatter to replace the noise that is stated.
_ENOUGH: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One check at one point.

    Parameters
    ----------
    check : Check
        What was asked.
    point, subjects : str
        Where, and of what.
    kinds : tuple of str
        Where the evidence is from.
    value : float or None
        What is held against the bounds; None without evidence.
    margin : float or None
        How far inside the bounds it lies, in the unit of the figure (shares for changes); below 0 outside.
    chance : float or None
        Probability that the true value passes, by the scatter of the evidence; None where none is known.
    verdict : str
        PASS, FAIL or NO EVIDENCE.
    """

    check: Check
    point: str
    subjects: tuple[str, ...]
    kinds: tuple[str, ...]
    value: float | None
    margin: float | None
    chance: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All checks of the gates that were judged, by gate."""

    gates: Gates
    judged: Mapping[str, tuple[Judged, ...]]
    evidence: Mapping[str, Evidence]
    required: bool

    def verdict(self, gate: str) -> Verdict:
        """Return the verdict of a gate: passed if all its checks are."""
        verdicts = [check.verdict for check in self.judged[gate]]
        if "FAIL" in verdicts:
            return "FAIL"
        return "NO EVIDENCE" if "NO EVIDENCE" in verdicts else "PASS"

    @property
    def passed(self) -> bool:
        """Whether every gate that was asked for has passed; of gates that were not, those without evidence are left."""
        verdicts = [self.verdict(gate) for gate in self.judged]
        return "PASS" in verdicts and all(v == "PASS" or (v == "NO EVIDENCE" and not self.required) for v in verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``kvtier gate --json`` prints."""
        return {
            "name": self.gates.name,
            "passed": self.passed,
            "gates": {
                gate: {
                    "title": self.gates.gates[gate].title,
                    "verdict": self.verdict(gate),
                    "checks": [_as_dict(check) for check in checks],
                }
                for gate, checks in self.judged.items()
            },
            "evidence": {
                name: {"kind": found.kind, "figures": {k: list(v) for k, v in found.figures.items()}}
                for name, found in self.evidence.items()
            },
        }


def judge(gates: Gates, chosen: Sequence[str], evidence: Mapping[str, Evidence], *, required: bool) -> Decision:
    """Return the verdict on the gates *chosen*; with *required* one without evidence has not passed."""
    judged = {
        gate: tuple(
            _judge(gates, check, point, gates.subjects(gate, point, check), evidence)
            for point in gates.points_of(gate)
            for check in gates.gates[gate].checks
        )
        for gate in chosen
    }
    return Decision(gates=gates, judged=judged, evidence=evidence, required=required)


def _judge(
    gates: Gates, check: Check, point: str, subjects: tuple[str, ...], evidence: Mapping[str, Evidence]
) -> Judged:
    found = [evidence.get(subject) for subject in subjects]
    values = [None if item is None else item.figures.get(check.figure) for item in found]
    kinds = tuple(dict.fromkeys(item.kind for item in found if item is not None))
    value = chance = margin = None
    verdict: Verdict = "NO EVIDENCE"
    known = [item for item in values if item is not None and len(item) >= check.least_values]
    if len(known) == len(values):
        value = _value(check, known)
        deviations = [_deviation(gates, item.kind, v) for item, v in zip(found, known, strict=True) if item]
        chance = _chance(check, value, sqrt(sum(d * d for d in deviations)))
        margin = check.margin(value)
        verdict = "PASS" if check.holds(value) else "FAIL"
    return Judged(
        check=check,
        point=point,
        subjects=subjects,
        kinds=kinds,
        value=value,
        margin=margin,
        chance=chance,
        verdict=verdict,
    )


def _value(check: Check, values: Sequence[Sequence[float]]) -> float:
    middles = [median(item) for item in values]
    if check.measure in {"baseline", "candidate"}:
        return middles[0]
    if check.measure.endswith("-spread"):
        return (max(values[0]) - min(values[0])) / abs(middles[0]) if middles[0] else inf
    ratio = middles[1] / middles[0] if middles[0] else inf
    return 1.0 - ratio if check.measure == "reduction" else ratio - 1.0


def _deviation(gates: Gates, kind: str, values: Sequence[float]) -> float:
    """Return the standard deviation of the logarithm of a subject's median."""
    stated = gates.noise if kind == "measured" else 0.0
    scatter = stated
    if len(values) >= _ENOUGH and min(values) > 0.0:
        scatter = stdev([log(value) for value in values]) * _MEDIAN
    scatter /= sqrt(len(values))
    return scatter if kind == "measured" else sqrt(scatter**2 + gates.model_error**2)


def _chance(check: Check, value: float, deviation: float) -> float | None:
    """Return the probability that the true value passes, with a normal logarithm of the figure or of the ratio."""
    if check.measure.endswith("-spread") or deviation <= 0.0:
        return None
    half = check.precision / 2.0
    ends = [check.low - half, check.high + half]
    if check.measure == "reduction":
        middle, ends = 1.0 - value, [1.0 - ends[1], 1.0 - ends[0]]
    elif check.measure == "increase":
        middle, ends = 1.0 + value, [1.0 + ends[0], 1.0 + ends[1]]
    else:
        middle = value
    if not 0.0 < middle < inf:
        return None
    spread = NormalDist(log(middle), deviation)
    low, high = (0.0 if end <= 0.0 else 1.0 if end == inf else spread.cdf(log(end)) for end in ends)
    return high - low


def _as_dict(judged: Judged) -> dict[str, Any]:
    check = judged.check
    return {
        "point": judged.point,
        "figure": check.figure,
        "measure": check.measure,
        "is_share": check.measure in SHARES,
        "at_least": None if check.low == -inf else check.low,
        "at_most": None if check.high == inf else check.high,
        "above": check.above is not None,
        "precision": check.precision,
        "subjects": list(judged.subjects),
        "evidence": list(judged.kinds),
        "value": judged.value,
        "margin": judged.margin,
        "chance": judged.chance,
        "verdict": judged.verdict,
    }
