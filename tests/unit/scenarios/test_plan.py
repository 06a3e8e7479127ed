"""`kvtier plan` against arithmetic: a storm over one link, whose answer can be worked out by hand."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storms import ALL_BYTES, KV_BYTES, PROMPT_TOKENS, RESTORES, STORM

from models.errors import InputError
from scenarios import cli
from scenarios.build import assemble, simulate
from scenarios.loader import load_scenario
from scenarios.planning import Plan, plan
from scenarios.planning.planner import PRECISION

BANDWIDTH = "links.fabric.bandwidth"
PORTS, DRIVES = "tiers.fabric.ports", "tiers.fabric.drives"
LOAD_S = "ttft_parts_s.load"
PORT_BYTES_PER_S = 12.5e9 * 0.853  # models/catalogue/storage/fx100.yaml
DRIVE_BYTES_PER_S = 3.0e9
# The array as the catalogue has it, and a host that is quicker.
FREE_ARRAY = ["links.fabric=null", "links.fabric.drives=null", "links.host-link.bandwidth=1 TB/s"]


@pytest.fixture
def storm(write: Callable[..., str]) -> str:
    return write(text=STORM, name="storm.yaml")


def planned(storm: str, *slo: str, solve: str = BANDWIDTH, consider: Any = (), **more: Any) -> Plan:
    return plan(storm, slo=slo, solve=[solve], consider=consider, jobs=1, **more)


@pytest.mark.parametrize("within_s", [0.7, 2.0, 11.0])
def test_the_bandwidth_for_a_storm_is_bytes_over_time(storm: str, within_s: float) -> None:
    found = planned(storm, f"{LOAD_S}<={within_s}")
    needed = ALL_BYTES / within_s  # all wake at once and share the link evenly: each is there when all are
    answer = found.solution[BANDWIDTH]
    assert needed <= answer <= needed * (1.0 + PRECISION) * 1.001
    smaller = found.beyond[BANDWIDTH]
    assert answer / (1.0 + PRECISION) * 0.999 <= smaller.values[BANDWIDTH] < needed
    assert not smaller.meets
    # What `kvtier run --set` says of the answer, of the value below it and of a tenth less.
    for value, meets in ((answer, True), (smaller.values[BANDWIDTH], False), (0.9 * answer, False)):
        summary = simulate(load_scenario(storm, overrides=[f"{BANDWIDTH}={value!r}"])).summary()
        assert (summary["ttft_parts_s"]["load"] <= within_s) is meets
    assert found.bottleneck.startswith("load from fabric: fabric link")
    assert found.warnings == tuple(warning for warning in found.warnings if "rests on" in warning)


def test_a_finer_answer_takes_more_runs_and_is_nearer(storm: str) -> None:
    rough, fine = (planned(storm, f"{LOAD_S}<=2", precision=precision) for precision in (0.3, 0.005))
    needed = ALL_BYTES / 2.0
    assert needed <= fine.solution[BANDWIDTH] <= needed * 1.0051
    assert rough.solution[BANDWIDTH] > needed * 1.0051
    assert len(rough.points) < len(fine.points)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.floats(0.6, 40.0), min_size=2, max_size=3))
def test_a_looser_limit_never_needs_more(storm: str, levels: list[float]) -> None:
    answers = [planned(storm, f"{LOAD_S}<={level}").solution[BANDWIDTH] for level in sorted(levels)]
    assert answers == sorted(answers, reverse=True)


def test_of_two_limits_both_are_kept(storm: str) -> None:
    first, second = f"{LOAD_S}<=4", "makespan_s<=3"
    alone = [planned(storm, limit).solution[BANDWIDTH] for limit in (first, second)]
    both = planned(storm, first, second)
    assert alone[0] < alone[1] == both.solution[BANDWIDTH]
    assert [(row["figure"], row["met"]) for row in both.to_dict()["slo"][:2]] == [(LOAD_S, True), ("makespan_s", True)]
    assert set(both.point.figures) == {LOAD_S, "makespan_s", "requests.rejected", "requests.failed"}


@pytest.mark.parametrize("within_s", [0.45, 0.6, 1.5])
def test_ports_are_whole(storm: str, within_s: float) -> None:
    found = planned(storm, f"{LOAD_S}<={within_s}", solve=PORTS, overrides=FREE_ARRAY)
    ports = math.ceil(ALL_BYTES / within_s / PORT_BYTES_PER_S)
    assert found.solution == {PORTS: ports}
    assert isinstance(found.solution[PORTS], int)
    if ports > 1:
        assert found.beyond[PORTS].values == {PORTS: ports - 1}
    else:
        assert any("is the lower bound of what was sought, 1" in warning for warning in found.warnings)


def test_where_more_is_worse_the_answer_is_the_most(storm: str) -> None:
    key = "workload.phases.storm.wave.requests"
    # All of these contexts are on the array, which has more of them than wake.
    more = ["workload.phases.fill.closed_loop.requests=24"]
    found = planned(storm, f"{LOAD_S}<=3", solve=f"{key}=1:20", overrides=more)
    assert found.solution == {key: math.floor(3.0 * 5e9 / KV_BYTES)}
    assert found.found[key].sense == "most"
    assert any("the answer is the most" in warning for warning in found.warnings)
    tried = found.to_pandas()
    assert list(tried[key]) == sorted(point.values[key] for point in found.points)
    assert tried.loc[tried[key] == found.solution[key], "meets"].all()
    assert not tried.loc[tried[key] > found.solution[key], "meets"].any()
    # Also where all that was sought is good enough.
    loose = planned(storm, f"{LOAD_S}<=100", solve=f"{key}=1:20", overrides=more)
    assert loose.solution == {key: 20}


def test_infeasible_is_an_answer_with_its_reason(storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Two drives read 6 GB/s, whatever the ports.
    options = ["--set", f"{DRIVES}=2", "--set", "links.fabric.drives=null", "--no-margins"]
    arguments = ["plan", storm, "--slo", f"{LOAD_S}<=2", "--solve", BANDWIDTH, *options]
    assert cli.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["feasible"], found["solution"], found["required"]) == (False, {}, {})
    assert found["nearest"]["values"][BANDWIDTH] == 5e9 * 64
    assert found["nearest"]["figures"][LOAD_S] == pytest.approx(ALL_BYTES / 6e9)
    assert "fabric.drives link" in found["bottleneck"]
    assert "ttft_parts_s.load is 3.579 s, not <= 2 s" in found["reason"]
    assert cli.main(arguments) == 0
    assert "\ninfeasible  no value within reach meets it" in capsys.readouterr().out


def test_what_changes_nothing_is_said(storm: str) -> None:
    found = planned(storm, f"{LOAD_S}<=2", solve="tiers.fabric.capacity=100 GB:900 GB")
    assert not found.is_feasible
    assert any("changes none of these figures" in warning for warning in found.warnings)


def test_who_turns_requests_away_meets_nothing(storm: str) -> None:
    # With less HBM than one prompt needs, none is served, and no latency is long.
    key = "tiers.hbm.capacity"
    low = round(0.5 * KV_BYTES)
    found = planned(storm, "ttft_s.max<=1000", solve=f"{key}={low}:{round(4.3 * KV_BYTES)}")
    assert found.solution[key] >= KV_BYTES
    beyond = found.beyond[key]
    assert beyond.error is not None
    assert "can be served" in beyond.error
    assert beyond.bottleneck.startswith("cannot run: none of the")


def test_a_scenario_that_cannot_run_at_all_is_an_error(storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "engine.max_model_len=1", "--slo", f"{LOAD_S}<=2", "--solve", BANDWIDTH]
    assert cli.main(["plan", storm, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "none of the" in err.splitlines()[-1]


def test_what_is_required_follows_from_the_storm(storm: str) -> None:
    found = planned(storm, f"{LOAD_S}<=2", overrides=[f"{DRIVES}=8", "links.fabric.drives=null"])
    need, rate = found.needs["fabric"], found.solution[BANDWIDTH]
    assert need.read_bytes_per_s == pytest.approx(rate, rel=1e-6)
    assert need.write_bytes_per_s == 0.0
    assert need.capacity_bytes == ALL_BYTES
    assert need.provided_bytes == pytest.approx(1e12, rel=1e-3)
    assert need.drives == math.ceil(rate / DRIVE_BYTES_PER_S)
    assert (need.drives_provided, need.drives_for) == (8, "rate")
    piece = KV_BYTES / PROMPT_TOKENS * 256  # one chunk of LMCache's size: one GPU holds all of it
    assert need.read_iops == pytest.approx(rate / piece, rel=1e-6)
    assert found.gpus == 1
    fabric = found.delivered["fabric"]
    assert (fabric["nominal_bytes_per_s"], fabric["deliverable_bytes_per_s"]) == pytest.approx((rate, rate))


def test_what_is_delivered_is_less_than_nominal(storm: str) -> None:
    found = planned(storm, f"{LOAD_S}<=2", overrides=["links.fabric.delivered_fraction=0.8"])
    fabric = found.delivered["fabric"]
    assert fabric["nominal_bytes_per_s"] == pytest.approx(found.solution[BANDWIDTH])
    assert fabric["deliverable_bytes_per_s"] == pytest.approx(0.8 * found.solution[BANDWIDTH])
    needed = ALL_BYTES / 2.0 / 0.8
    assert needed <= found.solution[BANDWIDTH] <= needed * (1.0 + PRECISION) * 1.001


def test_long_runs_are_metered_as_short_ones(storm: str) -> None:
    short, long = (planned(storm, f"{LOAD_S}<={within_s}").needs["fabric"] for within_s in (2.0, 60.0))
    # By what transfers moved, and by what the link metered: both are the rate of the link.
    assert short.read_bytes_per_s / long.read_bytes_per_s == pytest.approx(30.0, rel=2 * PRECISION)


def test_no_link_is_asked_for_more_than_it_gave(storm: str) -> None:
    # Writes join each other on the way: spread over the time that each takes, they seem quicker than the link.
    room = "tiers.fabric.capacity=500 GB,1 TB"
    overrides = ["run.measure=fill", f"{BANDWIDTH}=1 GB/s"]
    need = planned(storm, "ttft_s.p50<=1000", solve=room, overrides=overrides).needs["fabric"]
    assert need.write_bytes_per_s == 1e9
    # In a longer run the link itself says it.
    found = plan("quickstart", slo=["ttft_s.p50<=1000"], solve=["tiers.dram.capacity=100 GB,200 GB"], consider=[])
    need = found.needs["nvme"]
    assert need.write_bytes_per_s == pytest.approx(4.24e9, rel=1e-4)  # models/catalogue/storage/nvme-gen4.yaml
    assert need.drives == need.drives_provided == 1
    assert found.point.ran is not None
    summary = found.point.ran.summary
    mean = summary["links"]["nvme"]["write_bytes"] / summary["makespan_s"]
    assert need.write_mean_bytes_per_s == pytest.approx(mean, rel=2e-3)  # but for the bins that the ends cut


def test_loading_and_computing_break_even_in_closed_form(storm: str) -> None:
    found = planned(storm, f"{LOAD_S}<=2")
    tokens = PROMPT_TOKENS + 16
    assert {context.tokens for context in found.contexts} == {tokens}
    context = found.contexts[0]
    computed_s = assemble(load_scenario(storm)).prefill_s(tokens)
    assert context.break_even_bytes_per_s == pytest.approx(KV_BYTES / PROMPT_TOKENS * tokens / computed_s)
    # One load at that rate takes what computing takes.
    alone = load_scenario(
        storm,
        overrides=[
            f"{BANDWIDTH}={context.break_even_bytes_per_s}",
            "workload.phases.storm.wave.requests=1",
        ],
    )
    loaded_s = simulate(alone).summary()["ttft_parts_s"]["load"]
    assert loaded_s == pytest.approx(computed_s, rel=2e-3)  # 16 tokens of 20,496 are computed anyway


def test_what_to_buy_next_is_measured(storm: str) -> None:
    price = f"{BANDWIDTH}=100 EUR per GB/s"
    found = planned(storm, f"{LOAD_S}<=2", consider=[BANDWIDTH, "cluster.replicas"], prices=[price])
    more, replicas = found.margins
    assert (more.key, replicas.key) == (BANDWIDTH, "cluster.replicas")
    answer, after = found.solution[BANDWIDTH], more.values[BANDWIDTH]
    assert more.gain == pytest.approx(1.0 - answer / after, rel=1e-3)
    assert answer * 1.02 < after <= answer * 1.25
    assert after in [point.values[BANDWIDTH] for point in found.points]  # it was on the way: no run more
    step = after - answer
    assert more.price == pytest.approx(step / 1e9 * 100.0)
    assert more.gain_per_price == pytest.approx((more.gain or 0.0) / (more.price or 1.0))
    assert replicas.gain == pytest.approx(0.0, abs=1e-6)  # they share the link
    assert (replicas.price, replicas.currency) == (40_000.0, "USD")  # an H100 and its server; it has no card
    coarse = planned(storm, f"{LOAD_S}<=2", consider=[BANDWIDTH], precision=0.5)
    assert coarse.margins[0].values[BANDWIDTH] == pytest.approx(1.1 * coarse.solution[BANDWIDTH], rel=1e-3)
    full = planned(storm, f"{LOAD_S}<=100", consider=[PORTS])
    assert full.margins[0].gain is None
    assert "must be 1 to 6" in (full.margins[0].why_not or "")


def test_by_default_memory_drives_and_replicas_are_considered() -> None:
    from scenarios.planning.margins import candidates

    scenario = load_scenario("mooncake-conversation")
    below = ["tiers.dram.capacity", "tiers.nvme.count"]
    # 4 ports deliver 42.6 GB/s, 16 drives 48.
    assert candidates(scenario, assemble(scenario), []) == [*below, PORTS, "cluster.replicas"]
    assert candidates(scenario, assemble(scenario), [BANDWIDTH]) == [BANDWIDTH, *below, "cluster.replicas"]
    fewer = load_scenario("mooncake-conversation", overrides=[f"{DRIVES}=8"])
    assert candidates(fewer, assemble(fewer), []) == [*below, DRIVES, "cluster.replicas"]


def test_the_number_of_processes_changes_nothing(storm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.planning.trials._PROCESS_S", 0.0)  # so that short runs are made in processes too
    asked: dict[str, Any] = {"slo": [f"{LOAD_S}<=2"], "solve": [f"{BANDWIDTH}=8 GB/s:14 GB/s"], "consider": []}
    alone, many = (plan(storm, jobs=jobs, **asked).to_dict() for jobs in (1, 2))
    assert json.dumps(alone) == json.dumps(many)


# Several quantities --------------------------------------------------------------------------------------------------


def several(storm: str, *slo: str, **more: Any) -> Plan:
    overrides = [*FREE_ARRAY, f"{PORTS}=3", f"{DRIVES}=12"]
    return plan(storm, slo=slo, solve=[PORTS, DRIVES], overrides=overrides, consider=[], jobs=1, **more)


def test_with_two_quantities_neither_can_be_less(storm: str) -> None:
    found = several(storm, f"{LOAD_S}<=0.6")
    rate = ALL_BYTES / 0.6
    # Ports and drives lie behind each other: each must carry it all.
    assert found.solution == {
        PORTS: math.ceil(rate / PORT_BYTES_PER_S),
        DRIVES: math.ceil(rate / DRIVE_BYTES_PER_S),
    }
    assert {key: point.values[key] for key, point in found.beyond.items()} == {
        key: value - 1 for key, value in found.solution.items()
    }
    assert found.currency is None
    assert found.unpriced == (PORTS, DRIVES)  # the catalogue knows a full box only


def test_the_front_holds_what_nothing_beats(storm: str) -> None:
    prices = [f"{PORTS}=3000 EUR", f"{DRIVES}=800 EUR"]
    found = several(storm, "ttft_s.p90<=2", prices=prices)
    assert (found.currency, found.front_figure) == ("EUR", "ttft_s.p90")

    def cost(point: Any) -> float:
        return 3000.0 * point.values[PORTS] + 800.0 * point.values[DRIVES]

    assert list(found.costs) == [cost(point) for point in found.front]
    rated = [(cost(point), point.figure("ttft_s.p90")) for point in found.front]
    assert rated == sorted(rated)
    assert [figure for _, figure in rated] == sorted((figure for _, figure in rated), reverse=True)
    for point in found.points:
        assert any(price <= cost(point) and figure <= point.figure("ttft_s.p90") for price, figure in rated)
    assert len({price for price, _ in rated}) == len({figure for _, figure in rated}) == len(rated) >= 3
    meeting = [cost(point) for point in found.points if point.meets]
    assert cost(found.point) == min(meeting)


def test_two_quantities_that_do_not_suffice(storm: str) -> None:
    found = several(storm, f"{LOAD_S}<=0.1")
    assert not found.is_feasible
    # 24 drives give 72 GB/s, 6 ports 64: with all of both it is still the ports.
    assert found.point.figures[LOAD_S] == pytest.approx(ALL_BYTES / (6 * PORT_BYTES_PER_S))
    assert found.point.values == {PORTS: 6, DRIVES: 24}
    assert f"{PORTS} from 1 to 6" in (found.reason or "")


def test_what_makes_no_difference_is_not_to_blame(storm: str) -> None:
    room = "tiers.fabric.capacity"
    overrides = [*FREE_ARRAY, f"{DRIVES}=24"]
    solve = [PORTS, f"{room}=100 GB:2 TB"]
    found = plan(storm, slo=[f"{LOAD_S}<=0.1"], solve=solve, overrides=overrides, consider=[], jobs=1)
    assert found.point.values == {PORTS: 6, room: 2 * 10**12}  # of equals, the one with most of everything


def test_the_grid_grows_where_the_answer_is_far_from_what_the_scenario_has(storm: str) -> None:
    # 5 GB/s and 4 drives; a tenth of that time takes 53.7 GB/s and 18 drives.
    overrides = ["links.fabric.drives=null", f"{DRIVES}=4", "links.host-link.bandwidth=1 TB/s"]
    solve = [BANDWIDTH, DRIVES]
    found = plan(storm, slo=[f"{LOAD_S}<=0.4"], solve=solve, overrides=overrides, consider=[], jobs=1)
    needed = ALL_BYTES / 0.4
    assert needed <= found.solution[BANDWIDTH] <= needed * (1.0 + PRECISION) * 1.001
    assert found.solution[DRIVES] == math.ceil(needed / DRIVE_BYTES_PER_S)


def test_too_many_quantities(storm: str) -> None:
    keys = ["cluster.replicas", PORTS, DRIVES, "tiers.hbm.capacity", "tiers.fabric.capacity"]
    with pytest.raises(InputError, match="at most 4"):
        plan(storm, slo=[f"{LOAD_S}<=2"], solve=keys)


# The command ---------------------------------------------------------------------------------------------------------


def test_json_has_what_scripts_rely_on(storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", storm, "--slo", f"{LOAD_S}<=2", "--solve", BANDWIDTH, "--jobs", "1", "--json"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["feasible"] is True
    assert found["reason"] is None
    assert isinstance(found["solution"][BANDWIDTH], float)
    assert set(found["required"]) == {"fabric"}
    need = found["required"]["fabric"]
    assert {"read_bytes_per_s", "write_bytes_per_s", "capacity_bytes"} <= set(need)
    assert need["per_gpu"]["capacity_bytes"] == need["capacity_bytes"]  # one GPU
    assert found["bottleneck"].startswith("load from fabric")
    assert [point["bottleneck"] != "" for point in found["points"]] == [True] * len(found["points"])
    assert {margin["key"] for margin in found["next"]} == {BANDWIDTH, "cluster.replicas"}
    assert "kvtier: warning: h100-sxm rests on" in err


def test_tables(storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    prices = ["--price", f"{PORTS}=3000 EUR", "--price", f"{DRIVES}=800 EUR"]
    options = [option for text in (*FREE_ARRAY, f"{PORTS}=3", f"{DRIVES}=12") for option in ("--set", text)]
    solve = ["--solve", PORTS, "--solve", DRIVES]
    assert cli.main(["plan", storm, "--slo", "ttft_s.p90<=2", *solve, *prices, *options]) == 0
    out, _ = capsys.readouterr()
    for text in (
        "wanted      ttft_s.p90 <= 2 s (reached: ",
        f"answer      {PORTS} = ",
        "front of what was tried: cost against ttft_s.p90",
        "required of each tier",
        "delivered against nominal",
        "what to buy next: gain in ttft_s.p90",
        "3,000 EUR",
        "load or recompute",
        "1 x h100-sxm at 30,000 USD",
        "1 x fx100 at 371,200 CNY",
    ):
        assert text in out


def test_restores_a_second_are_a_figure(storm: str) -> None:
    found = planned(storm, "restores_per_s>=4")
    point = found.point
    assert point.ran is not None
    assert point.figures["restores_per_s"] == pytest.approx(RESTORES / point.ran.summary["makespan_s"])
