"""`kvtier run --uncertainty`: how sure the figures of a run are, and what makes them unsure."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_pairs, print_table
from scenarios.comparison.metrics import metric_text
from scenarios.runner import available_cores
from scenarios.schema import Scenario
from scenarios.uncertainty.predicting import Prediction, predict

_FIGURES: Final = (
    ("ttft_s.mean", "TTFT mean"),
    ("ttft_s.p50", "TTFT p50"),
    ("ttft_s.p90", "TTFT p90"),
    ("ttft_s.p99", "TTFT p99"),
    ("tpot_s.mean", "TPOT mean"),
    ("itl_s.p99", "ITL p99"),
    ("e2e_s.p50", "end to end p50"),
    ("makespan_s", "makespan"),
    ("throughput.output_tokens_per_s", "output tokens/s"),
    ("hit_ratio_tokens", "hit ratio"),
)
_DRIVEN: Final = ("ttft_s.p50", "tpot_s.mean", "throughput.output_tokens_per_s")
_SHOWN: Final = 4
_LEAST_SHARE: Final = 0.01


def predict_scenario(scenario: Scenario, draws: int, *, jobs: int | None) -> Prediction:
    """Run the draws with progress on stderr, and say there what failed. Raises KvTierError."""
    with Progress(f"{scenario.name}, uncertainty", unit="runs", eta=True) as progress:
        found = predict(scenario, draws, jobs=available_cores() if jobs is None else jobs, progress=progress)
    warn_of_failed(found)
    return found


def warn_of_failed(found: Prediction) -> None:
    """Say on stderr which runs failed."""
    for failure in found.failed:
        sys.stderr.write(f"kvtier: warning: {failure['run']} failed and is left out: {failure['error']}\n")


def print_prediction(summary: Mapping[str, Any]) -> None:
    """Print intervals, drivers and flags of a summary that has an uncertainty."""
    said = summary["uncertainty"]
    sys.stdout.write("\n")
    print_table(["uncertainty", "run", "median", "50 % within", "90 % within", ""], _rows(summary), numbers_from=1)
    sys.stdout.write("\n")
    labels = dict(_FIGURES)
    pairs = [
        (f"{labels[name]} rests on", _drivers(name, said["drivers"][name]))
        for name in _DRIVEN
        if name in said["drivers"]
    ]
    pairs += [("outside calibration", flag["message"]) for flag in said["outside_calibrated_range"]]
    pairs.append(("intervals hold", _contents(said)))
    print_pairs(pairs)


def _rows(summary: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, label in _FIGURES:
        interval = summary["uncertainty"]["figures"].get(name)
        if interval is None:
            continue
        value: Any = summary
        for key in name.split("."):
            value = value[key]
        ends = {key: metric_text(name, interval[key]) for key in ("p5", "p25", "p50", "p75", "p95")}
        half = (interval["p95"] - interval["p5"]) / 2.0
        width = f"±{half / interval['p50']:.1%}" if interval["p50"] else ""
        within = [f"{ends['p25']} to {ends['p75']}", f"{ends['p5']} to {ends['p95']}"]
        rows.append([label, metric_text(name, value), ends["p50"], *within, width])
    return rows


def _drivers(name: str, found: Mapping[str, Any]) -> str:
    """Return the strongest causes of a figure's uncertainty on one line."""
    causes = found["causes"][:_SHOWN]
    if found["method"] == "tornado":
        shown = (f"{c['name']} {metric_text(name, c['low'])} to {metric_text(name, c['high'])}" for c in causes)
        return f"{', '.join(shown)} (±1 sd)"
    told = [cause for cause in causes if max(cause["first"], cause["total"]) >= _LEAST_SHARE]
    text = ", ".join(f"{c['name']} {c['first']:.0%} [{c['first_low']:.0%}, {c['first_high']:.0%}]" for c in told)
    rest = 1.0 - found["explained"]
    return text + (f"; {rest:.0%} of what parameters do is jumps" if rest >= _LEAST_SHARE else "")


def _contents(said: Mapping[str, Any]) -> str:
    """Return what the intervals are made of."""
    origins = [number["from"] for number in said["parameters"]]
    counts = [
        (origins.count("fit"), "fitted parameters"),
        (origins.count("catalogue") + origins.count("scenario"), "spreads of figures"),
        (origins.count("rule"), "figures by a rule for their status"),
        (said["seeds"], "seeds"),
    ]
    known = ", ".join(f"{count} {label}" for count, label in counts if count)
    error = said["model_error"]
    return f"{said['n']} draws of {known}; model error {error['sd']:.1%} ({error['source']})"
