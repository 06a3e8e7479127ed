"""How sure a plan is, in words and rows, from what ``kvtier plan --json`` has: for the command and for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scenarios.planning.free import quantity_text
from scenarios.planning.limits import figure_text

HEADER: Final = ("limit", "at the answer", "median", "90 % within", "holds with")


def known_text(plan: Mapping[str, Any]) -> str:
    """Return what is known without a run more: the margin to the nearest limit beside the error of the model."""
    nearest, error = plan["sure"]["nearest"], plan["sure"]["model_error"]
    figure, kept_by = nearest["figure"], nearest["kept_by"]
    if kept_by is None:
        margin = f"{figure} is not known to be near its limit"
    else:
        margin = f"{figure} {'keeps' if kept_by >= 0.0 else 'misses'} its limit by {abs(kept_by):.1%}"
    if not nearest["is_timed"]:
        return f"{margin}; no fit has been held against it"
    basis = "" if plan["sure"]["parameters"] else " at best, for this scenario rests on no fit"
    within = f"{error['within_90']:.0%}"
    return f"{margin}; were every figure exact, 90% of measured runs would lie within {within} of the model{basis}"


def odds_rows(plan: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each limit, with columns as :data:`HEADER`; implied ones only where they may be missed."""
    reached = {(one["figure"], one["operator"], one["bound"]): one["reached"] for one in plan["slo"]}
    rows = []
    for one in plan["sure"]["uncertainty"]["limits"]:
        if one["implied"] and one["probability"] == 1.0:
            continue
        figure, interval = one["figure"], one["interval"]
        ends = ["-"] * 3 if interval is None else [figure_text(figure, interval[key]) for key in ("p50", "p5", "p95")]
        rows.append(
            [
                f"{figure} {one['operator']} {figure_text(figure, one['bound'])}",
                figure_text(figure, reached[figure, one["operator"], one["bound"]]),
                ends[0],
                "-" if interval is None else f"{ends[1]} to {ends[2]}",
                _odds(one["probability"]),
            ]
        )
    return rows


def odds_pairs(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what draws at the answer say: all limits at once, what would be sure enough, flags, and what was drawn."""
    said, error = plan["sure"]["uncertainty"], plan["sure"]["model_error"]
    yield "all hold with", _odds(said["probability"])
    estimate = said["estimate"]
    if estimate is not None:
        yield f"{estimate['probability_wanted']:.0%} sure", _estimate(plan["solve"], estimate)
    for flag in said["outside_calibrated_range"]:
        yield "outside calibration", flag["message"]
    known = f"{len(said['parameters'])} uncertain figures and {said['seeds']} seeds"
    yield "drawn", f"{said['n']} times from {known}; model error {error['sd']:.1%} ({error['source']})"


def _odds(probability: float) -> str:
    """Return a probability for people: nothing is certain for being rounded."""
    if 0.995 <= probability < 1.0:
        return ">99%"
    return "<1%" if 0.0 < probability < 0.005 else f"{probability:.0%}"


def _estimate(quantities: Sequence[Mapping[str, Any]], estimate: Mapping[str, Any]) -> str:
    key, value = estimate["key"], estimate["value"]
    if value is None:
        return f"no value of {key} that was tried; estimated as if each spread like the answer"
    dimension = next(one["dimension"] for one in quantities if one["key"] == key)
    text = f"{key} = {quantity_text(dimension, value)}, of the values tried"
    return f"{text}: all hold with {_odds(estimate['probability'])}, estimated as if it spread like the answer"
