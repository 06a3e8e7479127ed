"""How sure a plan is: odds worked out by hand, that move as they should and do not depend on processes."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student
from storms import ALL_BYTES, STORM

from scenarios import cli
from scenarios.loader import load_scenario
from scenarios.planning import Plan, plan
from scenarios.planning.limits import parse_limits
from scenarios.planning.planner import with_uncertainty
from scenarios.planning.sureness import Uncertainty, simulate_limited, uncertainty_of
from scenarios.planning.trials import Point
from scenarios.uncertainty import Prediction, predict
from scenarios.uncertainty.fit import STAND_IN, read_fit

BANDWIDTH = "links.fabric.bandwidth"
LOAD_S = "ttft_parts_s.load"
AT_10_S = ALL_BYTES / 1e10
TOO_FEW = ["plan", "quickstart", "--slo", "ttft_s.p90<=2", "--solve", "workload.rate_scale", "--uncertainty", "7"]


@pytest.fixture
def storm(write: Callable[..., str]) -> str:
    return write(text=STORM, name="storm.yaml")


def planned(
    storm: str, *slo: str, draws: int | None = 16, values: str = "10 GB/s,11 GB/s,12 GB/s", **more: Any
) -> Plan:
    solve = more.pop("solve", f"{BANDWIDTH}={values}")
    return plan(storm, slo=slo, solve=[solve], consider=[], uncertainty=draws, **{"jobs": 1} | more)


def drawn(found: Plan) -> Uncertainty:
    assert found.sure.uncertainty is not None
    return found.sure.uncertainty


def below(ratio: float) -> float:
    """Return how likely the error of the model alone stays below *ratio*."""
    error = read_fit(STAND_IN).model_error
    return float(student(error.degrees_of_freedom).cdf(math.log(ratio) / error.sd))


@pytest.mark.parametrize("slack", [1.005, 1.03, 1.08, 1.3])
def test_the_odds_of_a_link_that_is_known_are_those_of_the_model(storm: str, slack: float) -> None:
    # The scenario states the rate of the link, and nothing else matters: what is left is the error of the model.
    found = planned(storm, f"{LOAD_S}<={slack * AT_10_S!r}")
    assert found.solution == {BANDWIDTH: 1e10}
    assert drawn(found).together == pytest.approx(below(slack), abs=0.01)
    assert found.sure.kept_by == pytest.approx(1.0 - 1.0 / slack, rel=1e-6)
    interval = drawn(found).odds[0].interval
    assert interval is not None
    assert interval["p95"] / AT_10_S == pytest.approx(1.0 + found.sure.model_error.within, rel=3e-3)
    assert below(1.0 + found.sure.model_error.within) == pytest.approx(0.95)


def test_a_figure_that_spreads_makes_it_less_sure(storm: str) -> None:
    odds, widths = [], []
    for spread in (0.01, 0.1, 0.4):
        delivered = f"figures.fx100.read_bandwidth={{value: 3 GB/s, spread: {spread}}}"
        free = ["links.fabric.drives=null", "tiers.fabric.drives=4", delivered]
        # Four drives of 3 GB/s behind a wider link.
        found = planned(storm, f"{LOAD_S}<={1.25 * ALL_BYTES / 12e9!r}", values="20 GB/s,30 GB/s", overrides=free)
        odds.append(drawn(found).together)
        interval = drawn(found).odds[0].interval
        assert interval is not None
        widths.append(interval["p95"] / interval["p5"])
    assert odds == sorted(odds, reverse=True)
    assert odds[0] > 0.99
    assert odds[-1] < 0.8
    assert widths == sorted(widths)


def test_an_announced_accelerator_is_less_sure_than_a_measured_one(write: Callable[..., str]) -> None:
    text = """\
name: cold
llm: llama-3.1-8b
cluster: {accelerator: GPU}
tiers: {hbm: {capacity: 40 GB}}
workload:
  closed_loop: {concurrency: 2, requests: 12, prompt_tokens: 16384, output_tokens: 1}
"""
    odds = {}
    for gpu in ("h100-sxm", "rubin"):
        path = write(text=text.replace("GPU", gpu), name=f"{gpu}.yaml")
        takes_s = simulate_limited(load_scenario(path), lambda *_: None).figures["ttft_s.mean"]
        solve = "engine.max_num_batched_tokens=8192,16384"
        found = planned(path, f"ttft_s.mean<={1.2 * takes_s!r}", solve=solve)
        odds[gpu] = drawn(found).together
    assert odds["h100-sxm"] > odds["rubin"] + 0.1


def test_limits_hold_together_in_the_same_draw_with_the_same_seed_and_error(storm: str) -> None:
    makespan_s = simulate_limited(load_scenario(storm, overrides=[f"{BANDWIDTH}=1e10"]), lambda *_: None).figures[
        "makespan_s"
    ]
    bound_s = 1.02 * makespan_s
    # The same said three ways: a time, a rate, and restores, all of whose errors are one.
    slo = [
        f"makespan_s<={bound_s!r}",
        f"throughput.requests_per_s>={8 / bound_s!r}",
        f"restores_per_s>={8 / bound_s!r}",
    ]
    found = drawn(planned(storm, *slo))
    each = [one.probability for one in found.odds if not one.limit.implied]
    assert 0.5 < each[0] < 0.8
    assert each == pytest.approx([found.together] * 3, abs=1e-3)
    # Of two on one figure, the tighter one says it.
    two = drawn(planned(storm, f"makespan_s<={bound_s!r}", f"makespan_s<={1.1 * bound_s!r}"))
    assert two.together == pytest.approx(each[0])
    assert two.odds[1].probability > two.together


def test_what_would_be_sure_enough_is_what_draws_there_say(storm: str) -> None:
    slo = f"{LOAD_S}<={1.01 * AT_10_S!r}"
    found = planned(storm, slo, values="10 GB/s,11.5 GB/s")
    estimate = drawn(found).estimate
    assert estimate is not None
    assert (estimate.key, estimate.value) == (BANDWIDTH, 11.5e9)
    there = predict(load_scenario(storm, overrides=[f"{BANDWIDTH}=11.5 GB/s"]), 16, jobs=1)
    assert there.probability(LOAD_S, 1.01 * AT_10_S) == pytest.approx(estimate.probability, abs=0.01)
    assert drawn(found).together < 0.9 <= (estimate.probability or 0.0)
    loose = drawn(planned(storm, f"{LOAD_S}<={2 * AT_10_S!r}")).estimate
    assert loose is not None
    assert loose.value == 1e10  # the answer itself
    tight = drawn(planned(storm, slo, values="9.9 GB/s,10 GB/s")).estimate
    assert tight is not None
    assert (tight.value, tight.probability) == (None, None)


def test_where_more_is_worse_less_is_surer(storm: str) -> None:
    key = "workload.phases.storm.wave.requests"
    more = ["workload.phases.fill.closed_loop.requests=12", f"{BANDWIDTH}=10 GB/s"]
    bound_s = 8.05 / 8 * AT_10_S
    found = planned(storm, f"{LOAD_S}<={bound_s!r}", solve=f"{key}=6,8,9", overrides=more)
    assert found.solution == {key: 8}
    estimate = drawn(found).estimate
    assert estimate is not None
    assert estimate.value == 6


def test_what_cannot_run_beyond_the_answer_makes_it_no_less_sure() -> None:
    # 32 heads: 3 is tried between 2 and 4, and cannot run.
    found = plan(
        "quickstart",
        slo=["ttft_s.p90<=2"],
        solve=["cluster.tensor_parallel=1:4"],
        overrides=["workload.limit=40"],
        consider=[],
        uncertainty=8,
        jobs=1,
    )
    assert {point.values["cluster.tensor_parallel"]: point.can_run for point in found.points}[3] is False
    estimate = drawn(found).estimate
    assert estimate is not None
    assert estimate.value == found.solution["cluster.tensor_parallel"] < 3
    assert drawn(found).together > 0.9


def test_what_is_infeasible_has_odds_too(storm: str) -> None:
    found = planned(storm, f"{LOAD_S}<={AT_10_S * 10 / 12 * 0.97!r}")
    assert not found.is_feasible
    assert found.sure.kept_by == pytest.approx(1.0 - 1.0 / 0.97, rel=1e-6)
    assert drawn(found).together == pytest.approx(below(0.97), abs=0.01)


def test_draws_that_serve_nobody_or_fail_keep_no_limit(storm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario(storm, overrides=[f"{BANDWIDTH}=1e10"])
    whole = predict(scenario, 16, jobs=1, work=simulate_limited, swings=False)
    limits = parse_limits([f"{LOAD_S}<={2 * AT_10_S!r}"], [LOAD_S])

    def odds(prediction: Prediction, rivals: Mapping[float, Point]) -> Uncertainty:
        monkeypatch.setattr("scenarios.planning.sureness.predict", lambda *_, **__: prediction)
        return uncertainty_of(scenario, limits, rivals, BANDWIDTH, draws=16, jobs=1, progress=None)

    none: dict[float, Point] = {}
    assert odds(whole, none).together == 1.0
    silent = [{name: value for name, value in whole.draws[0].items() if name != LOAD_S}] * 4
    assert odds(replace(whole, draws=(*silent, *whole.draws[4:])), none).together == 0.75
    failed = [{"run": f"draw {at}", "error": "no"} for at in range(2)]
    assert odds(replace(whole, draws=whole.draws[2:], failed=failed), none).together == 0.875
    lost = replace(whole, seeds=whole.seeds[:6], failed=[{"run": f"seed {at}", "error": "no"} for at in (6, 7)])
    assert odds(lost, none).together == 0.75
    nobody = odds(replace(whole, seeds=({}, *whole.seeds[1:])), none)
    assert (nobody.together, nobody.odds[0].interval) == (0.0, None)


def test_the_number_of_processes_changes_no_bit(storm: str) -> None:
    alone, many = (planned(storm, f"{LOAD_S}<={1.05 * AT_10_S!r}", draws=8, jobs=jobs).to_dict() for jobs in (1, 2))
    assert json.dumps(alone["sure"]) == json.dumps(many["sure"])
    assert alone["sure"]["uncertainty"]["n"] == 8


def test_it_can_be_asked_afterwards_and_needs_no_runs_for_drivers(storm: str) -> None:
    slo = f"{LOAD_S}<={1.05 * AT_10_S!r}"
    ended: list[int] = []
    later = with_uncertainty(planned(storm, slo, draws=None), 8, jobs=1, progress=lambda _, n: ended.append(n))
    assert ended[-1] == 8 + 4  # draws and seeds
    assert later.to_dict()["sure"] == planned(storm, slo, draws=8).to_dict()["sure"]
    table = drawn(later).to_pandas()
    assert list(table["figure"]) == [LOAD_S, "requests.rejected", "requests.failed"]
    assert np.all(table["probability"] <= 1.0)


def test_every_plan_says_the_least_that_is_known(storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", storm, "--slo", f"{LOAD_S}<=2", "--solve", f"{BANDWIDTH}=11 GB/s,12 GB/s", "--no-margins"]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert f"how sure    {LOAD_S} keeps its limit by 2.4%; were every figure exact, 90% of measured runs would" in out
    assert "lie within 9% of the model at best" in out
    assert "--uncertainty 64 tells the odds" in out
    assert cli.main([*arguments, "--json"]) == 0
    sure = json.loads(capsys.readouterr().out)["sure"]
    assert sure["uncertainty"] is None
    assert sure["nearest"] == {"figure": LOAD_S, "kept_by": pytest.approx(1 - ALL_BYTES / 22e9), "is_timed": True}
    counted = planned(storm, "hit_ratio_tokens>=0.1", draws=None)
    assert not counted.sure.is_timed


def test_the_command_prints_keeps_and_reports_the_odds(
    storm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "planned"
    slo = ["--slo", f"{LOAD_S}<={1.02 * AT_10_S!r}"]
    options = ["--no-margins", "--jobs", "1", "--uncertainty", "8", "--out", str(folder)]
    assert cli.main(["plan", storm, *slo, "--solve", f"{BANDWIDTH}=10 GB/s,12 GB/s", *options]) == 0
    out = capsys.readouterr().out
    for text in ("odds that the limits hold with the answer", "all hold with", "90% sure", f"{BANDWIDTH} = 12 GB/s"):
        assert text in out
    assert "nothing here has been held against a measurement" in out
    assert "tells the odds" not in out
    kept = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["sure"]["uncertainty"]
    assert kept["estimate"]["value"] == 12e9
    assert cli.main(["report", str(folder)]) == 0
    page = next(tmp_path.rglob("*.html")).read_text(encoding="utf-8")
    assert "How sure this is" in page
    assert f"all hold with: {kept['probability']:.0%}" in page


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_draws_that_are_no_power_of_two_are_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert cli.main([*TOO_FEW, *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "kvtier: --uncertainty is 7; must be a power of two from 8 to 65536, such as 8\n"
