"""The plots of one run, each with its caption and what it shows in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scenarios.figure_texts import rate, seconds, share
from scenarios.reporting.drawing import HALF_IN, WIDE_IN, canvas, svg_of
from scenarios.reporting.section import Plot
from scenarios.reporting.words import listed
from sim.results.result import SimulationResult


def timelines(result: SimulationResult) -> list[Plot]:
    """Return what the links carried and how full the tiers were over time."""
    return [links(result), occupancy(result)]


def waterfall(result: SimulationResult) -> Plot:
    """Return the parts that add up to the mean TTFT."""
    summary = result.summary_values
    with canvas(HALF_IN) as figure:
        result.plot.ttft_waterfall(figure.subplots()).set_title("")
        svg = svg_of(figure)
    return Plot(
        title="Where the mean TTFT goes",
        caption="Mean over all completed requests; the parts add up to the mean TTFT at the right.",
        alt=f"Waterfall of the mean TTFT of {seconds(summary['ttft_s']['mean'])}: {parts_in_words(summary)}.",
        svg=svg,
    )


def parts_in_words(summary: Mapping[str, Any]) -> str:
    """Return the parts of the mean TTFT, loads by tier where they are known, in words."""
    parts = [f"{name} {seconds(part_s)}" for name, part_s in summary["ttft_parts_s"].items()]
    loads = [f"{seconds(s)} of {tier}" for tier, s in summary["load_by_tier_s"].items() if s]
    return listed(parts) + (f" (loads: {listed(loads)})" if loads else "")


def distribution(result: SimulationResult) -> Plot:
    """Return the share of requests that had their first token within a time."""
    ttft_s = result.summary_values["ttft_s"]
    with canvas(HALF_IN) as figure:
        ax = result.plot.ttft_cdf(figure.subplots())
        ax.set_title("")
        ax.legend(loc="upper left", frameon=False)  # where the curve is not
        svg = svg_of(figure)
    percentiles = listed([f"{name} {seconds(ttft_s[name])}" for name in ("p50", "p90", "p99")])
    return Plot(
        title="How the TTFT is spread",
        caption="Share of completed requests that had their first token within a time, without those of a warm-up.",
        alt=f"Cumulative distribution of the time to first token: {percentiles}, at most {seconds(ttft_s['max'])}.",
        svg=svg,
    )


def links(result: SimulationResult) -> Plot:
    """Return what the links carried over time."""
    summary = result.summary_values
    with canvas(WIDE_IN) as figure:
        ax = result.plot.link_throughput(figure.subplots())
        shown = len(ax.lines)
        ax.set_title("")
        svg = svg_of(figure)
    busiest = sorted(summary["links"].items(), key=lambda item: -(item[1]["read_bytes"] + item[1]["write_bytes"]))[:3]
    peaks = listed([f"{name} peaks at {rate(link['peak_bytes_per_s'])}" for name, link in busiest])
    rest = "" if shown < 6 else " The six lines with the most bytes."
    return Plot(
        title="What the links carried",
        caption=f"Reads solid, writes dashed. Means hide peaks: those stand in the table of links.{rest}",
        alt=f"Throughput of the links over simulated time. {peaks or 'No link carried anything'}.",
        svg=svg,
        wide=True,
    )


def occupancy(result: SimulationResult) -> Plot:
    """Return how full the tiers were over time."""
    tiers = result.summary_values["tiers"]
    with canvas(WIDE_IN) as figure:
        result.plot.occupancy(figure.subplots()).set_title("")
        svg = svg_of(figure)
    peaks = [
        f"{name} {share(tier['peak_used_bytes'] / tier['capacity_bytes'])}"
        for name, tier in tiers.items()
        if tier["capacity_bytes"]
    ]
    return Plot(
        title="How full the tiers were",
        caption="Used bytes of each tier as a share of its capacity, all replicas together.",
        alt=f"Used share of each tier over simulated time; peaks: {listed(peaks)}.",
        svg=svg,
        wide=True,
    )


def drivers(name: str, label: str, found: Mapping[str, Any], text: Any) -> Plot:
    """Return what the uncertainty of a figure comes from: Sobol indices or a tornado; *text* writes its values."""
    causes = found["causes"][:8]
    names = [cause["name"].removeprefix("figures.") for cause in causes]
    places = np.arange(len(causes))[::-1]
    with canvas((HALF_IN[0], 0.9 + 0.3 * max(len(causes), 3))) as figure:
        ax = figure.subplots()
        if found["method"] == "tornado":
            low = np.array([cause["low"] for cause in causes])
            high = np.array([cause["high"] for cause in causes])
            ax.barh(places, high - low, left=low, color="#0072B2", height=0.62)
            ax.set_xlabel(f"{label} [s]" if name.partition(".")[0].endswith("_s") else label)
            ax.ticklabel_format(axis="x", useOffset=False)
            ends = [(text(name, cause["low"]), text(name, cause["high"])) for cause in causes]
            said = [f"{cause} from {low} to {high}" for cause, (low, high) in zip(names, ends, strict=True)]
        else:
            first = 100.0 * np.array([cause["first"] for cause in causes])
            spread = 100.0 * np.array([[c["first_low"], c["first_high"]] for c in causes]).T
            ax.barh(places, first, color="#0072B2", height=0.62)
            ax.hlines(places, spread[0], spread[1], color="0.5", linewidth=1.2)
            ax.set_xlabel("share of the variance [%], with its 90 % interval")
            ax.set_xlim(left=0)
            said = [f"{n} {share(c['first'])}" for n, c in zip(names, causes, strict=True)]
        ax.set_yticks(places, names)
        svg = svg_of(figure)
    one_by_one = "how far a standard deviation of each moves it, all else at its best guess"
    what = one_by_one if found["method"] == "tornado" else "by variance"
    return Plot(
        title=f"What {label} rests on",
        caption=f"The strongest causes of what is not known of it: {what}.",
        alt=f"Causes of the uncertainty of {label}, strongest first: {listed(said)}.",
        svg=svg,
    )
