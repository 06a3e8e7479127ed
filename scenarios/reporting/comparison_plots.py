"""The plots of a comparison, each with its caption and what it shows in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from scenarios.comparison import plot
from scenarios.comparison.comparing import Compared, Comparison
from scenarios.comparison.metrics import metric_text
from scenarios.figure_texts import seconds
from scenarios.reporting.drawing import HALF_IN, WIDE_IN, canvas, svg_of
from scenarios.reporting.section import Plot
from scenarios.reporting.words import listed
from sim.results.plot import measured_ttft_s
from sim.results.result import SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_PARTS: Final = ("queue", "load", "compute", "other")


def comparison_plots(comparison: Comparison, ran: Sequence[Compared]) -> Iterator[Plot]:
    """Yield TTFT percentiles, parts of the mean TTFT, hits by tier and differences, a row for each variant."""
    yield _plot(
        lambda ax: plot.ttft_percentiles(ran, ax),
        len(ran),
        title="Time to first token",
        caption="p50, p90 and p99 of each variant.",
        alt=f"TTFT of each variant: {_each(ran, ('ttft_s.p50', 'ttft_s.p90', 'ttft_s.p99'))}.",
    )
    yield _plot(
        lambda ax: plot.ttft_parts(ran, ax),
        len(ran),
        title="Where the mean TTFT goes",
        caption="The parts add up to the mean TTFT of each variant.",
        alt=f"Parts of the mean TTFT, {_each(ran, [f'ttft_parts_s.{part}' for part in _PARTS])}.",
    )
    yield _plot(
        lambda ax: plot.hits_by_tier(ran, ax),
        len(ran),
        title="Prompt tokens that were hits, by tier",
        caption="Together they are the hit ratio; what is missing to 100 % was computed.",
        alt=f"Share of prompt tokens that each tier had; in all: {_each(ran, ['hit_ratio_tokens'])}.",
    )
    if comparison.differences:
        first = ran[0].variant.name
        yield _plot(
            lambda ax: plot.differences(comparison, ax),
            len(comparison.differences),
            title=f"Difference to {first}",
            caption="With 95 % intervals; grey where it may be noise.",
            alt=f"Differences to {first} with their intervals, as in the table of differences.",
        )


def ttft_spreads(runs: Mapping[str, SimulationResult]) -> Plot:
    """Return the share of requests that had their first token within a time, a line for each variant."""
    with canvas(WIDE_IN) as figure:
        ax = figure.subplots()
        drawn = []
        for place, (name, result) in enumerate(runs.items()):
            ttft_s = measured_ttft_s(result)
            drawn.append(ttft_s)
            share = 100.0 * np.arange(1, ttft_s.size + 1) / max(ttft_s.size, 1)
            ax.step(ttft_s, share, where="post", color=_COLORS[place % len(_COLORS)], label=name, linewidth=1.3)
        every = np.concatenate(drawn)
        if every.size and every.min() > 0.0 and every.max() > 30.0 * np.median(every):
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:g}")
        ax.set(xlabel="TTFT [s]", ylabel="share of requests [%]", ylim=(0, 103))
        ax.grid(visible=True, axis="y", color="0.9", linewidth=0.8)
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        svg = svg_of(figure)
    said = [f"{name}: p50 {seconds(result.summary_values['ttft_s']['p50'])}" for name, result in runs.items()]
    return Plot(
        title="Share of requests that had their first token within a time",
        caption="Completed requests; a line further to the left is better.",
        alt=f"Cumulative distributions of the time to first token; {listed(said)}.",
        svg=svg,
        wide=True,
    )


def _plot(draw: Callable[[Axes], Axes], rows: int, *, title: str, caption: str, alt: str) -> Plot:
    with canvas((HALF_IN[0], 1.1 + 0.32 * max(rows, 3))) as figure:
        ax = draw(figure.subplots())
        ax.set_title("")
        # Below, not beside: a plot half as wide as the page has no room there.
        handles, labels = ax.get_legend_handles_labels()
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False)
        svg = svg_of(figure)
    return Plot(title=title, caption=caption, alt=alt, svg=svg)


def _each(ran: Sequence[Compared], metrics: Sequence[str]) -> str:
    """Return metrics of every variant in words."""
    said = []
    for found in ran:
        values = [f"{m.rpartition('.')[2]} {metric_text(m, found.metrics.get(m))}" for m in metrics]
        said.append(f"{found.variant.name} {', '.join(values)}")
    return "; ".join(said)
