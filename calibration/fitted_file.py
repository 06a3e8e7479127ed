"""The file of a fit: values, covariance and provenance, in the form that `parameters:` of a scenario reads."""

from __future__ import annotations

from typing import Any, Final

import yaml

from calibration.calibrated_range import calibrated_range
from calibration.fitting import Fitted

_DIGITS: Final = 5
"""More than the data tell, few enough that equal fits on two machines look alike."""


def fitted_document(fitted: Fitted, *, command: str, date: str) -> dict[str, Any]:
    """Return the document of a fit: plain values, ready for YAML and JSON.

    Spreads and covariance are those of logarithms, except for parameters with ``transform: linear``, whose are in
    their unit. Runs each scenario once, for what the fit reaches over.
    """
    plan = fitted.plan
    parameters: dict[str, Any] = {}
    for index, (key, parameter) in enumerate(plan.parameters.items()):
        low, high = parameter.bounds
        value = rounded(fitted.values[index])
        parameters[key] = {
            "value": f"{value} {parameter.unit}" if parameter.unit else value,
            "spread": rounded(fitted.spread(index)),
            "held_by": fitted.held_by(index),
            "prior": f"{parameter.prior:g} {parameter.unit}".strip(),
            "prior_spread": parameter.sd,
            "bounds": f"{low:g} to {high:g} {parameter.unit}".strip(),
            "transform": parameter.transform,
            "why": parameter.why,
        }
    sd = [parameter.sd for parameter in plan.parameters.values()]
    covariance = [
        [rounded(float(fitted.covariance_x[i, j]) * sd[i] * sd[j]) for j in range(len(sd))] for i in range(len(sd))
    ]
    errors = fitted.errors
    left_out = fitted.left_out_errors
    return {
        "name": plan.name,
        "description": plan.description,
        "command": command,
        "date": date,
        "source": plan.table.source,
        "licence": plan.table.licence,
        "noise": plan.noise,
        "seeds": plan.seeds,
        "fit": {
            "rows": len(plan.rows),
            "mean_abs_error": rounded(float(abs(errors).mean())),
            "worst_abs_error": rounded(float(abs(errors).max())),
            "left_out_mean_abs_error": rounded(float(abs(left_out).mean())),
            "left_out_worst_abs_error": rounded(float(abs(left_out).max())),
            "scatter": rounded(fitted.scatter),
            "degrees_of_freedom": rounded(fitted.degrees_of_freedom),
            "chi_square": rounded(float((fitted.residuals**2).sum())),
            "directions_held_by_data": int((fitted.singular_values > 1.0).sum()),
            "singular_values": [rounded(float(value)) for value in fitted.singular_values],
        },
        "calibrated_range": calibrated_range(fitted),
        "parameters": parameters,
        "covariance": {"order": list(parameters), "matrix": covariance},
        "rows": [row.id for row in plan.rows],
    }


def yaml_text(document: dict[str, Any]) -> str:
    """Return the document as YAML, the matrix a row a line."""
    text = f"# Written by `{document['command']}`: fit again rather than edit.\n"
    return text + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Lists of numbers on one line."""


def _list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    flat = all(isinstance(value, int | float) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=flat)


_Dumper.add_representer(list, _list)


def today() -> str:
    """Return the date that a fitted file carries, in UTC, as ISO 8601 writes it."""
    from datetime import UTC, datetime

    return datetime.now(UTC).date().isoformat()


def rounded(value: float, digits: int = _DIGITS) -> float:
    """Return a figure with so many significant digits."""
    return float(f"{value:.{digits}g}")
