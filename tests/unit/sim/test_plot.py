from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from sim.results.result import SimulationResult


def a_result(
    *, ttft_s: tuple[float, ...] = (0.2, 0.3, 0.5, 2.0), load_s: float = 0.2, n_links: int = 2
) -> SimulationResult:
    done = bool(ttft_s)
    mean_s = float(np.mean(ttft_s)) if done else None
    quantiles = {
        name: float(np.quantile(ttft_s, q)) if done else None for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    parts = {"queue": 0.3, "load": load_s, "compute": 0.2, "other": (mean_s or 0.0) - 0.5 - load_s}
    links = tuple(f"link-{i}" for i in range(n_links))
    seconds = np.tile(np.arange(1000.0), n_links)
    return SimulationResult(
        scenario={"name": "made-up"},
        seed=5,
        provenance={},
        columns={
            "requests": {
                "arrived_at_s": np.arange(len(ttft_s) + 1.0),
                "ttft_s": np.array([*ttft_s, np.nan]),
                "state": np.array([0] * len(ttft_s) + [1]),
            },
            "tiers": {
                "time_s": np.array([0.0, 5.0, 0.0]),
                "tier": np.array([0, 0, 1]),
                "used_bytes": np.array([0.0, 3e11, 1e12]),
            },
            "links": {
                "time_s": seconds,
                "link": np.repeat(np.arange(n_links), 1000),
                "read_bytes_per_s": 1e9 * (1.0 + np.repeat(np.arange(n_links), 1000)),
                "write_bytes_per_s": np.zeros(seconds.size),
            },
        },
        summary_values={
            "ttft_s": {"mean": mean_s, **quantiles},
            "ttft_parts_s": parts,
            "load_by_tier_s": {"hbm": 0.0, "dram": 0.05, "fabric": 0.15},
            "tiers": {"hbm": {"capacity_bytes": 6e11}, "fabric": {"capacity_bytes": None}},
            "bottleneck": "load from fabric",
        },
        labels={"tiers": {"tier": ("hbm", "fabric")}, "links": {"link": links}},
    )


def test_the_overview_has_four_plots_with_units_and_can_be_written(tmp_path: Path) -> None:
    figure = a_result().plot.overview()
    labels = [label for ax in figure.axes for label in (ax.get_xlabel(), ax.get_ylabel()) if label]
    assert len(figure.axes) == 4
    assert all(label.endswith("]") for label in labels)
    figure.savefig(tmp_path / "overview.png")
    assert (tmp_path / "overview.png").read_bytes().startswith(b"\x89PNG")


def test_each_plot_draws_on_the_axes_it_is_given_and_opens_no_window() -> None:
    import matplotlib._pylab_helpers as pylab  # the list of pyplot's figures: it must stay empty

    plots = a_result().plot
    for draw in (plots.ttft_cdf, plots.occupancy, plots.link_throughput, plots.ttft_waterfall):
        ax = Figure().subplots()
        assert draw(ax) is ax
        assert draw() is not ax
    assert not pylab.Gcf.figs


def test_the_cdf_leaves_out_rejected_requests_and_names_percentiles() -> None:
    ax = a_result().plot.ttft_cdf()
    assert np.array_equal(ax.lines[0].get_xdata(), [0.2, 0.3, 0.5, 2.0])
    assert np.array_equal(ax.lines[0].get_ydata(), [25.0, 50.0, 75.0, 100.0])
    legend = ax.get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text() == "p50 0.4 s"
    assert ax.get_xscale() == "linear"
    assert a_result(ttft_s=(0.1, 0.2, 0.3, 90.0)).plot.ttft_cdf().get_xscale() == "log"


def test_occupancy_is_a_share_of_capacity() -> None:
    ax = a_result().plot.occupancy()
    assert [line.get_label() for line in ax.lines] == ["hbm, 600 GB"]
    assert np.array_equal(ax.lines[0].get_ydata(), [0.0, 50.0])


def test_link_throughput_averages_and_shows_the_busiest_only() -> None:
    ax = a_result(n_links=9).plot.link_throughput()
    assert [line.get_label() for line in ax.lines] == [f"link-{i} read" for i in range(8, 2, -1)]
    assert np.asarray(ax.lines[0].get_ydata()).max() == pytest.approx(9.0)
    assert np.asarray(ax.lines[0].get_xdata())[-1] == 1000.0
    assert "6 of 9" in ax.get_title()


@pytest.mark.parametrize(("load_s", "middle"), [(0.2, []), (0.15, ["loads\noverlap"]), (0.25, ["load\nrest"])])
def test_the_waterfall_ends_at_the_mean_ttft(load_s: float, middle: list[str]) -> None:
    ax = a_result(load_s=load_s).plot.ttft_waterfall()
    names = [tick.get_text() for tick in ax.get_xticklabels()]
    assert names == ["queue", "load\ndram", "load\nfabric", *middle, "compute", "other", "TTFT"]
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]  # bars are rectangles
    assert sum(heights[:-1]) == pytest.approx(heights[-1]) == pytest.approx(0.75)


def test_a_result_without_anything_still_draws() -> None:
    result = a_result(ttft_s=(), n_links=0)
    result.columns["tiers"] = {name: column[:0] for name, column in result.columns["tiers"].items()}
    figure = result.plot.overview()
    assert [ax.texts[0].get_text() for ax in figure.axes] == [
        "no request completed",
        "no request completed",
        "no tier with a capacity was sampled",
        "no link carried anything",
    ]


def test_miss_ratio_curves_have_a_line_for_each_policy_and_bytes_above() -> None:
    from sim.results.mrc_plot import draw_curves

    rows = [
        {"policy": policy, "capacity_blocks": blocks, "capacity_bytes": 2_000_000 * blocks, "miss_ratio": 1 / blocks}
        for policy in ("lru", "fifo")
        for blocks in (1, 4)
    ]
    ax = draw_curves(rows, Figure().subplots(), title="made up", plain=False)
    assert [line.get_label() for line in ax.lines] == ["lru", "fifo"]
    assert [line.get_ydata().tolist() for line in ax.lines] == [[100.0, 25.0]] * 2  # type: ignore[union-attr]
    assert ax.lines[0].get_linewidth() > ax.lines[1].get_linewidth()
    assert ax.get_ylabel() == "misses [% of prompt tokens]"
    assert [above.get_xlabel() for above in ax.child_axes] == ["capacity [B]"]
    without = [{**row, "capacity_bytes": None} for row in rows]
    assert not draw_curves(without, Figure().subplots(), title="made up", plain=True).child_axes
