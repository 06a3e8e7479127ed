"""Plots of a result. Each function draws on *ax*, or on a new figure, and never shows a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from models.units import format_bytes
from sim.arrays import Floats
from sim.recording import COMPLETED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.results.result import SimulationResult

# Okabe and Ito's palette (jfly.uni-koeln.de/color), told apart with every common colour blindness; yellow is left out,
# it is too pale for a line on white.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_WIDTH_IN, _HEIGHT_IN = 6.4, 4.0
# More lines than this cannot be told apart in one plot of this size.
_MAX_LINES: Final = 6
# Steps across a plot: with more, six noisy lines become one patch.
_MAX_POINTS: Final = 120


def ttft_cdf(result: SimulationResult, ax: Axes | None = None) -> Axes:
    """Draw the share of measured requests that had their first token within a time [s], with p50, p90 and p99."""
    ax = _axes(ax)
    ttft_s = measured_ttft_s(result)
    ax.set(title="Time to first token", xlabel="TTFT [s]", ylabel="share of requests [%]", ylim=(0, 103))
    if ttft_s.size == 0:
        return _empty(ax, "no request completed")
    share = 100.0 * np.arange(1, ttft_s.size + 1) / ttft_s.size
    ax.step(ttft_s, share, where="post", color=_PALETTE[0])
    # Queues make tails of a hundred times the median: a linear axis would show the tail only.
    if ttft_s[0] > 0.0 and ttft_s[-1] > 30.0 * ttft_s[ttft_s.size // 2]:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    for name, style in (("p50", ":"), ("p90", "--"), ("p99", "-.")):
        value_s = result.summary_values["ttft_s"][name]
        if value_s is not None:
            ax.axvline(value_s, color="0.35", linestyle=style, linewidth=1, label=f"{name} {value_s:.3g} s")
    ax.legend(loc="lower right", frameon=False)
    return _tidy(ax)


def measured_ttft_s(result: SimulationResult) -> Floats:
    """Return the TTFT of the completed requests that the summary counts, sorted [s]: no warm-up, no other phase."""
    requests = result.table("requests")
    ttft_s: Floats = np.sort(requests["ttft_s"][result.measured_requests() & (requests["state"] == COMPLETED)])
    return ttft_s


def occupancy(result: SimulationResult, ax: Axes | None = None) -> Axes:
    """Draw the used bytes of every tier over time as a share of its capacity [%]; the legend gives the capacity."""
    ax = _axes(ax)
    table = result.table("tiers")
    names = result.labels["tiers"]["tier"]
    ax.set(title="Tiers in use", xlabel="simulated time [s]", ylabel="used of capacity [%]", ylim=(0, 103))
    for code, name in enumerate(names):
        rows = table["tier"] == code
        capacity_bytes = result.summary_values["tiers"].get(name, {}).get("capacity_bytes")
        if not rows.any() or not capacity_bytes:
            continue
        used = 100.0 * table["used_bytes"][rows] / capacity_bytes
        label = f"{name}, {format_bytes(capacity_bytes)}"
        ax.step(table["time_s"][rows], used, where="post", color=_PALETTE[code % len(_PALETTE)], label=label)
    if not ax.lines:
        return _empty(ax, "no tier with a capacity was sampled")
    _legend_beside(ax)
    return _tidy(ax)


def link_throughput(result: SimulationResult, ax: Axes | None = None) -> Axes:
    """Draw what the links carry over time [GB/s], reads solid and writes dashed: the six lines with the most bytes."""
    ax = _axes(ax)
    table = result.table("links")
    names = result.labels["links"]["link"]
    ax.set(title="Link throughput", xlabel="simulated time [s]", ylabel="throughput [GB/s]")
    lines = []
    for code, name in enumerate(names):
        rows = table["link"] == code
        for direction, style in (("read", "-"), ("write", "--")):
            rate = table[f"{direction}_bytes_per_s"][rows]
            lines.append((float(rate.sum()), code, f"{name} {direction}", style, table["time_s"][rows], rate))
    lines = sorted((line for line in lines if line[0] > 0.0), key=lambda line: -line[0])
    if not lines:
        return _empty(ax, "no link carried anything")
    links = list(dict.fromkeys(line[1] for line in lines))
    for _, code, label, style, time_s, rate in lines[:_MAX_LINES]:
        coarse_s, mean_rate = _averaged(time_s, rate)
        ax.set_ylabel(f"throughput, means over {coarse_s[1] - coarse_s[0]:g} s [GB/s]")
        color = _PALETTE[links.index(code) % len(_PALETTE)]
        ax.step(coarse_s, mean_rate / 1e9, style, where="post", color=color, label=label, linewidth=1.2)
    ax.set_ylim(bottom=0)
    _legend_beside(ax)
    if len(lines) > _MAX_LINES:
        ax.set_title(f"Link throughput ({_MAX_LINES} of {len(lines)} lines)")
    return _tidy(ax)


def ttft_waterfall(result: SimulationResult, ax: Axes | None = None) -> Axes:
    """Draw the parts that add up to the mean TTFT [s]: queue, load by tier, compute, other, total."""
    ax = _axes(ax)
    summary = result.summary_values
    ax.set(title="Where the mean TTFT goes", ylabel="mean time [s]")
    parts_s = summary["ttft_parts_s"]
    total_s = summary["ttft_s"]["mean"]
    if total_s is None:
        return _empty(ax, "no request completed")
    loads = {tier: load_s for tier, load_s in summary["load_by_tier_s"].items() if load_s}
    steps = [("queue", parts_s["queue"], _PALETTE[1])]
    steps += [(f"load\n{tier}", load_s, _PALETTE[0]) for tier, load_s in loads.items()]
    # Loads from several tiers overlap, so their times may add up to more than the time the request waited for them.
    overlap_s = parts_s["load"] - sum(loads.values())
    if abs(overlap_s) > 0.005 * total_s:
        steps.append(("loads\noverlap" if overlap_s < 0.0 else "load\nrest", overlap_s, _PALETTE[4]))
    steps.append(("compute", parts_s["compute"], _PALETTE[2]))
    if "handover" in parts_s:
        steps.append(("handover", parts_s["handover"], _PALETTE[5]))
    steps.append(("other", parts_s["other"], _PALETTE[3]))
    level_s = 0.0
    for place, (_, height_s, color) in enumerate(steps):
        ax.bar(place, height_s, bottom=level_s, color=color, width=0.7)
        top_s = max(level_s, level_s + height_s)
        ax.annotate(f"{height_s:.3g}", (place, top_s), (0, 2), textcoords="offset points", ha="center", fontsize=8)
        level_s += height_s
        ax.plot((place + 0.35, place + 0.65), (level_s, level_s), color="0.5", linewidth=0.8)
    ax.bar(len(steps), total_s, color="0.35", width=0.7)
    ax.annotate(f"{total_s:.3g}", (len(steps), total_s), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    ax.set_xticks(range(len(steps) + 1), [label for label, _, _ in steps] + ["TTFT"], fontsize=8)
    ax.margins(y=0.12)
    ax.set_ylim(bottom=0)
    return _tidy(ax)


def overview(result: SimulationResult) -> Figure:
    """Draw the four plots on one figure, titled with the scenario and its bottleneck."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * _WIDTH_IN, 2 * _HEIGHT_IN), layout="constrained")
    axes = figure.subplots(2, 2)
    ttft_cdf(result, axes[0, 0])
    ttft_waterfall(result, axes[0, 1])
    occupancy(result, axes[1, 0])
    link_throughput(result, axes[1, 1])
    name = result.scenario.get("name", "run")
    figure.suptitle(f"{name}, seed {result.seed}\nbottleneck: {result.summary_values['bottleneck']}", fontsize=11)
    return figure


def _axes(ax: Axes | None) -> Axes:
    # Figure, not pyplot: no global list of figures, no window, works in threads and on servers.
    from matplotlib.figure import Figure

    return ax if ax is not None else Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained").subplots()


def _tidy(ax: Axes) -> Axes:
    ax.grid(visible=True, axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _legend_beside(ax: Axes) -> None:
    # Beside, not inside: lines over time fill the whole plot, and wherever the legend stood it would hide some.
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _empty(ax: Axes, reason: str) -> Axes:
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", va="center", color="0.4")
    return _tidy(ax)


def _averaged(time_s: Floats, rate: Floats) -> tuple[Floats, Floats]:
    """Return means over so many samples that at most _MAX_POINTS remain, with a last point that ends the last step."""
    merged = max(-(-rate.size // _MAX_POINTS), 1)
    starts = np.arange(0, rate.size, merged)
    means = np.add.reduceat(rate, starts) / np.diff(np.append(starts, rate.size))
    step_s = float(time_s[1] - time_s[0]) if time_s.size > 1 else 1.0
    return np.append(time_s[starts], time_s[-1] + step_s), np.append(means, means[-1])
