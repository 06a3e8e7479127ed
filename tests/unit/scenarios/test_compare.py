"""`kvtier compare`, from the command line to the figures: fair, sure of what it says, the same on any machine."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.errors import InputError
from scenarios import cli
from scenarios.build import build, run
from scenarios.comparison import compare, load_variants
from scenarios.comparison.bounds import distances
from scenarios.comparison.intervals import Difference
from scenarios.comparison.metrics import medians, metric_text, metrics_of
from scenarios.comparison.sample import sample_of
from scenarios.comparison.wording import difference_text
from scenarios.loader import load_scenario
from sim.recording import WindowedIntervals

# A slice of HBM, so that a short run evicts from it.
CHAT = """\
name: chat
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
tiers:
  hbm: {capacity: 8 GB}
  dram: {device: ddr5, capacity: 60 GB}
workload:
  synthetic: {requests: 400, session_rate_per_s: 0.5, length_scale: 0.5}
"""


@pytest.fixture
def chat(write: Callable[..., str]) -> str:
    return write(text=CHAT, name="chat.yaml")


def by_metric(found: dict[str, Any], variant: str) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in found["differences"] if row["variant"] == variant}


def called(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["compare", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_equal_variants_are_equal_and_a_better_tier_is_better(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = called(capsys, chat, "--vary", "tiers.dram.capacity=2 GB,2e9,60 GB")
    assert found["first"] == "2 GB"
    assert [variant["name"] for variant in found["variants"]] == ["2 GB", "2e9", "60 GB"]
    assert found["variants"][2]["settings"] == {"tiers.dram.capacity": "60 GB"}
    assert found["variants"][2]["tiers"] == found["variants"][2]["summary"]["tiers"]
    same, more = by_metric(found, "2e9"), by_metric(found, "60 GB")
    # Common random numbers: nothing at all is left over.
    assert all((row["difference"], row["low"], row["high"]) == (0.0, 0.0, 0.0) for row in same.values())
    assert all(row["equal"] is True for row in same.values())
    for metric, sign in (("ttft_s.mean", -1), ("ttft_parts_s.compute", -1), ("tiers.dram.hit_ratio", 1)):
        row = more[metric]
        assert row["equal"] is False
        assert row["low"] <= row["difference"] <= row["high"]
        assert sign * row["low"] > 0.0
        assert sign * row["high"] > 0.0
    assert more["throughput.output_tokens_per_s"]["equal"]  # the requests come when they come
    assert set(more) == set(found["variants"][0]["metrics"])
    assert all(row["low"] is not None for row in more.values())


def test_nothing_is_claimed_of_other_requests(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", chat, "--vary", "run.seed=1,2", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = [row for row in json.loads(out)["differences"] if row["difference"] != 0.0]
    assert len(rows) > 10
    assert all((row["low"], row["high"], row["equal"]) == (None, None, None) for row in rows)
    assert "2: other requests than the first variant's, so no interval; give several --seeds" in err


def test_any_number_of_processes_gives_the_same_bits(chat: str) -> None:
    variants = load_variants(chat, vary=["tiers.dram.capacity=2 GB,8 GB,60 GB"])
    alone, many = compare(variants, jobs=1).to_dict(), compare(variants, jobs=2).to_dict()
    for found in (alone, many):
        for variant in found["variants"]:
            assert variant.pop("engine")
            del variant["summary"]["engine"]  # how long it took is another each time
    assert json.dumps(alone) == json.dumps(many)


def test_seeds_are_the_same_for_all_variants_and_give_intervals_where_a_run_is_too_short() -> None:
    variants = load_variants("r2-fx100-c8", vary=["links.fx100.latency=0 s,1 s"])
    short = compare(variants).to_dict()
    assert short["method"].startswith("none: the run is too short")
    assert by_metric(short, "1 s")["ttft_s.p50"]["equal"] is None
    found = compare(variants, seeds=3)
    assert [one.seeds for one in found.variants] == [(0, 1, 2)] * 2
    assert found.title == "r2-fx100-c8 by links.fx100.latency, medians over 3 seeds"
    p50 = found.differences["1 s"]["ttft_s.p50"]
    assert p50.equal is False
    assert p50.low is not None
    assert p50.low > 0.0
    # An average of differences seed by seed, and the summary is of the run in the middle.
    firsts, others = ([run["ttft_s.p50"] for run in one.runs] for one in found.variants)
    assert p50.difference == pytest.approx(np.mean(np.subtract(others, firsts)))
    assert found.variants[0].summary is not None
    assert found.variants[0].summary["ttft_s"]["p50"] == sorted(firsts)[1] == found.variants[0].metrics["ttft_s.p50"]
    assert len(set(firsts)) == 3  # arrivals jitter


def test_seeds_cannot_be_counted_and_varied(chat: str) -> None:
    with pytest.raises(InputError, match=r"run\.seed is varied"):
        compare(load_variants(chat, vary=["run.seed=1,2"]), seeds=2)


def test_a_failed_variant_is_a_row_and_the_others_are_shown(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [chat, "--variant", "short:engine.max_model_len=1", "--vary", "cluster.replicas=1,2"]
    found = called(capsys, *options, code=1)
    broken = found["variants"][2]
    assert set(broken) == {"name", "settings", "error"}
    assert "none of the 400 requests can be served" in broken["error"]
    assert {row["variant"] for row in found["differences"]} == {"2"}
    assert cli.main(["compare", *options]) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^short +failed$", out, flags=re.MULTILINE)
    assert "kvtier: short: none of the 400 requests" in err


def test_what_all_variants_fail_for_is_one_error(chat: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [1]}\n')
    assert cli.main(["compare", chat, "--trace", str(trace), "--vary", "cluster.replicas=1,2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "t.jsonl:1: " in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--vary", "tiers.dram.eviction=lru,lruu"],
            "--vary tiers.dram.eviction: unknown eviction policy",
        ),
        ([], "needs two variants or more"),
        (["--vary", "run.seed=1,2", "--plot", "p.bmp"], "--plot p.bmp: must end in .pdf, .png, .svg"),
        (["--vary", "run.seed=1,2", "--plot", "no/such/p.png"], "there is no folder no/such"),
        (["--vary", "run.seed=1,2", "--jobs", "0"], "'--jobs'"),
        (["--vary", "run.seed=1,2", "--seeds", "0"], "'--seeds'"),
    ],
)
def test_bad_input_is_told_before_anything_runs(
    chat: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], line: str
) -> None:
    monkeypatch.setattr("scenarios.comparison.comparing.run_tasks", None)
    assert cli.main(["compare", chat, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err


def test_tables_plot_and_warnings(chat: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "p.svg"
    assert cli.main(["compare", chat, "--vary", "tiers.dram.capacity=2 GB,60 GB", "--plot", str(plot)]) == 0
    out, err = capsys.readouterr()
    for text in (
        "TTFT p99",
        "TPOT mean",
        "hits dram",
        "written dram",
        "queue",
        "less 2 GB",
        " to +",
        "equal",
        "95%, block",
    ):
        assert text in out
    assert "written hbm" not in out
    assert err.count("h100-sxm rests on") == 1
    assert f"plot saved to {plot}" in err
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("metric", "base", "found", "text"),
    [
        # Longer to one side: half its width on both sides of the difference would hold 0, and the interval does not.
        ("ttft_s.p90", 2.0, (-0.141, -0.224, -0.0014, False), "-7.05% (-11.2 to -0.07)"),
        ("ttft_s.p90", 0.001, (0.02, 0.01, 0.0999, False), "+2,000% (+1,000 to +9,990)"),
        ("hit_ratio_tokens", 0.5, (0.1, 1e-7, 0.2, False), "+10 pt (+1e-05 to +20)"),
        ("ttft_s.p90", 2.0, (-0.141, -0.224, 0.0, True), "equal"),
        ("ttft_s.p90", 2.0, (-0.141, None, None, None), "-7.05% ?"),
    ],
)
def test_a_difference_is_told_with_the_ends_of_its_interval(
    metric: str, base: float, found: tuple[float, float | None, float | None, bool | None], text: str
) -> None:
    difference, low, high, equal = found
    told = Difference(difference=difference, low=low, high=high, equal=equal)
    assert difference_text(metric, base, told) == text


def test_a_plot_shows_every_variant_and_which_are_equal(chat: str) -> None:
    from matplotlib.colors import to_hex

    from scenarios.comparison.plot import draw

    figure = draw(compare(load_variants(chat, vary=["tiers.dram.capacity=2 GB,2e9,60 GB"])))
    assert len(figure.axes) == 4
    names = [[tick.get_text() for tick in ax.get_yticklabels()] for ax in figure.axes]
    assert names == [["2 GB", "2e9", "60 GB"]] * 3 + [["2e9", "60 GB"]]
    dots = [dots.get_facecolor() for dots in figure.axes[3].collections if dots.get_offsets().size]
    grey = [to_hex(color[0]) == "#999999" for color in dots if len(color)]
    assert any(grey)
    assert not all(grey)


def test_blocks_add_up_to_the_run(chat: str) -> None:
    simulation = build(load_scenario(chat, overrides=["run.warmup=30 s"]))
    simulation.intervals = intervals = WindowedIntervals(simulation.clock)
    result = run(simulation)
    sample = sample_of(result, intervals)
    figures = metrics_of(result.summary())
    assert sample.blocks == 30
    assert sample.workload[:, 2].sum() == 400  # those of the warm-up too: which these are may depend on the variant
    for metric, ratio in sample.ratios.items():
        assert ratio.above.sum() / ratio.below.sum() == pytest.approx(figures[metric]), metric
    for name in ("ttft_s", "itl_s"):
        reached = np.cumsum(sample.ranked[name].counts.sum(axis=0))
        for q in (50, 90, 99):
            value = sample.ranked[name].ends[np.searchsorted(reached, q / 100 * reached[-1])]
            assert value == pytest.approx(figures[f"{name}.p{q}"] if q == 99 or name == "ttft_s" else value, rel=0.15)
    measured = [metric for metric, value in figures.items() if value is not None]
    assert set(measured) <= set(sample.ratios) | {f"{name}.p{q}" for name in sample.ranked for q in (50, 90, 99)}
    # Sessions are whole: their first requests come in the order of the blocks.
    assert result.table("requests")["session_id"].max() > 30


def test_short_runs_and_long_sessions_have_fewer_blocks(chat: str) -> None:
    def blocks(requests: int) -> int:
        simulation = build(load_scenario(chat, overrides=[f"workload.synthetic.requests={requests}"]))
        simulation.intervals = intervals = WindowedIntervals(simulation.clock)
        return sample_of(run(simulation), intervals).blocks

    assert [blocks(requests) for requests in (90, 150)] == [0, 15]


def test_the_distance_to_a_bound_is_told_for_variants_that_share_all_else() -> None:
    def variant(policy: str, capacity: str, ratio: float) -> Any:
        settings = {"tiers.dram.eviction": policy, "tiers.dram.capacity": capacity}
        return f"{policy} {capacity}", settings, {"tiers.dram.hit_ratio": ratio, "ttft_s.mean": 1.0 / ratio}

    found = distances([variant("lru", "small", 0.2), variant("belady", "small", 0.4), variant("lru", "big", 0.3)])
    assert [(row.variant, row.bound, row.metric) for row in found] == [
        ("lru small", "belady small", "tiers.dram.hit_ratio"),
        ("lru small", "belady small", "ttft_s.mean"),
    ]
    assert found[0].share == pytest.approx(0.5)
    assert found[0].distance == pytest.approx(-0.2)
    assert found[1].distance == pytest.approx(2.5)
    assert distances([variant("lru", "small", 0.2), variant("fifo", "small", 0.4)]) == []


def test_metrics_by_hand() -> None:
    assert medians([{"a": 1.0, "b": None}, {"a": 5.0, "b": 2.0}, {"a": 3.0}]) == {"a": 3.0, "b": 2.0}
    texts = [metric_text(*pair) for pair in (("x.hit_ratio", 0.25), ("x.write_bytes", 2e9), ("ttft_s.p50", None))]
    assert texts == ["25.0%", "2 GB", "-"]
