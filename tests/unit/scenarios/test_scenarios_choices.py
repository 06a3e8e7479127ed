"""A policy in a scenario: by name, or by name over its parameters; in files, bases and overrides."""

import json
import sys
from types import ModuleType
from typing import get_args

import pytest
from pydantic import BaseModel

from models.errors import ScenarioError
from scenarios import cli
from scenarios.build import build, simulate
from scenarios.choices import CHOICE_KEYS, Choice, create
from scenarios.loader import load_scenario, resolved
from scenarios.schema import Cluster, Engine, Scenario, TierSpec, Transfer
from sim.policies.base import EVICTION, ROUTING
from sim.policies.eviction import Lru
from sim.policies.routing import SessionAffinity
from sim.policies.routing_by_cache import PrefixAware
from sim.policies.scheduling import Priority

ROUTER = "cluster: {accelerator: h200-sxm, replicas: 2}"


class Keen(Lru):
    """An eviction policy with parameters of several types."""

    def __init__(
        self,
        *,
        keenness: float,
        lag_s: float = 1.0,
        room_bytes: int = 0,
        rate_bytes_per_s: float = 1.0,
        twice: bool = False,
    ) -> None:
        super().__init__()
        self.values = (keenness, lag_s, room_bytes, rate_bytes_per_s, twice)


class Choosy(Lru):
    """One that refuses what its annotation allows."""

    def __init__(self, odd: int = 1) -> None:
        super().__init__()
        if odd % 2 == 0:
            raise ValueError("not odd")


@pytest.fixture(autouse=True)
def plugin(monkeypatch):
    module = ModuleType("plugin_for_choices")
    module.Keen, module.Choosy = Keen, Choosy
    monkeypatch.setitem(sys.modules, "plugin_for_choices", module)


KEEN = "plugin_for_choices:Keen"


def routed(write, text: str) -> str:
    return write((ROUTER, ROUTER.replace("}", f", router: {text}}}")))


# What may be written -------------------------------------------------------------------------------------------------


def test_a_name_stays_a_name_and_parameters_reach_the_class(write) -> None:
    assert load_scenario(routed(write, "least-loaded")).cluster.router == "least-loaded"
    scenario = load_scenario(routed(write, "{prefix-aware: {temperature: 0.5, shared_weight: 1}}"))
    assert resolved(scenario)["cluster"]["router"] == {"prefix-aware": {"temperature": 0.5, "shared_weight": 1}}
    router = create(ROUTING, scenario.cluster.router)
    assert isinstance(router, PrefixAware)
    assert (router.temperature, router.shared_weight, router.memory_weight) == (0.5, 1, 1.0)


@pytest.mark.parametrize("text", ["{random: }", "{random: {}}", "random"])
def test_a_name_over_nothing_is_the_name(write, text: str) -> None:
    assert load_scenario(routed(write, text)).cluster.router == "random"


def test_eviction_and_scheduling_take_parameters_too_with_units(write) -> None:
    parameters = "keenness: 2, lag_s: 5 ms, room_bytes: 2 GiB, rate_bytes_per_s: 100 Gbit/s, twice: true"
    text = f"eviction: {{'{KEEN}': {{{parameters}}}}}"
    path = write(
        ("scope: node", f"scope: node, {text}"),
        ("tiers:", "engine: {scheduling: {priority: {aging_s: 1 min}}}\ntiers:"),
    )
    scenario = load_scenario(path)
    policy = create(EVICTION, scenario.tiers["dram"].eviction)
    assert policy.values == (2, 0.005, 2 * 2**30, 12.5e9, True)
    assert scenario.engine.scheduling == {"priority": {"aging_s": 60.0}}
    simulation = build(scenario)
    assert simulation.cluster.tiers["dram"][0].policy.values == policy.values
    assert simulation.cluster.replicas[0]._scheduler._policy == Priority(aging_s=60.0)
    assert Scenario.model_validate(resolved(scenario)) == scenario
    json.dumps(resolved(scenario))


def test_what_the_run_supplies_comes_from_its_seed(write) -> None:
    path = routed(write, "{session-affinity: {fallback: random}}")
    drawn = []
    for seed in (1, 1, 2):
        router = build(load_scenario(path, seed=seed)).cluster._router
        assert isinstance(router, SessionAffinity)
        assert router._router.random is router.random
        drawn.append(router.random.random())
    assert drawn[0] == drawn[1] != drawn[2]


# What may not --------------------------------------------------------------------------------------------------------

WRONG = [
    ("{prefix-awar: {}}", "cluster.router: unknown router 'prefix-awar'; did you mean 'prefix-aware'?"),
    (
        "{prefix-aware: {temprature: 1}}",
        "cluster.router.prefix-aware.temprature: unknown parameter; did you mean 'temperature'? (allowed: hbm_weight, ",
    ),
    ("{round-robin: {step: 2}}", "cluster.router.round-robin.step: unknown parameter (allowed: none)"),
    ("{prefix-aware: {temperature: hot}}", "cluster.router.prefix-aware.temperature: is 'hot'; must be a number"),
    ("{prefix-aware: {temperature: true}}", "cluster.router.prefix-aware.temperature: is true; must be a number"),
    ("{prefix-aware: {temperature: -1}}", "cluster.router.prefix-aware.temperature: is -1; must be at least 0"),
    ("{prefix-aware: {hbm_weight: 2}}", "cluster.router.prefix-aware.hbm_weight: is 2; must be from 0 to 1"),
    ("{power-of-two: {choices: 2.5}}", "cluster.router.power-of-two.choices: is 2.5; must be a whole number"),
    ("{power-of-two: {choices: 0}}", "cluster.router.power-of-two.choices: is 0; must be at least 1"),
    ("{random: {random: 3}}", "cluster.router.random.random: unknown parameter (allowed: none)"),
    ("{session-affinity: {overload_tokens: -1}}", "session-affinity.overload_tokens: is -1; must be at least 0"),
    ("{session-affinity: {fallback: none}}", "cluster.router.session-affinity: unknown router 'none'"),
    ("{tier-aware: {load_weight: -1}}", "cluster.router.tier-aware.load_weight: is -1; must be at least 0"),
    ("{random: 3}", "cluster.router.random: is 3; must be a mapping of parameters"),
    ("{a: {}, b: {}}", "cluster.router: must hold one name over its parameters, such as {prefix-aware: "),
    ("{}", "cluster.router: must hold one name over its parameters, such as {prefix-aware: "),
    ("[random]", "cluster.router: is a list; must be a name, or a name over its parameters"),
    ("3", "cluster.router: is 3; must be a name, or a name over its parameters"),
    ("null", "cluster.router: is null; must be a name, or a name over its parameters"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_choice_gives_line_key_and_what_is_allowed(write, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(routed(write, text))
    assert "small.yaml:4: " in str(error.value)
    assert message in str(error.value)


SCHEDULING = [
    ("fcfss", "engine.scheduling: unknown scheduler 'fcfss'; did you mean 'fcfs'?"),
    ("{priority: {aging_s: 0}}", "engine.scheduling.priority.aging_s: is 0; must be greater than 0"),
    ("{priority: {aging_s: 1 GB}}", "engine.scheduling.priority.aging_s: "),
    ("{cache-aware: {longest_queue: 0}}", "engine.scheduling.cache-aware.longest_queue: is 0; must be at least 1"),
    ("{cache-aware: {aging_tokens_per_s: -1}}", "cache-aware.aging_tokens_per_s: is -1; must be at least 0"),
    ("{shortest-prefill-first: {aging_tokens_per_s: 3 s}}", "aging_tokens_per_s: is '3 s'; must be a number"),
]


@pytest.mark.parametrize(("text", "message"), SCHEDULING, ids=[text for text, _ in SCHEDULING])
def test_a_wrong_scheduler(write, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(write(("tiers:", f"engine: {{scheduling: {text}}}\ntiers:")))
    assert "small.yaml:5: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KEEN, f"tiers.dram.eviction.{KEEN}: needs the parameter 'keenness' (allowed: keenness, lag_s, "),
        ("{lru: {size: 1}}", "tiers.dram.eviction.lru.size: unknown parameter (allowed: none)"),
        (f"{{{KEEN}: {{keenness: 1, room_bytes: 1 s}}}}", f"tiers.dram.eviction.{KEEN}.room_bytes: "),
        ("{plugin_for_choices:Choosy: {odd: 2}}", "plugin_for_choices:Choosy: cannot be made: ValueError: not odd"),
    ],
)
def test_a_wrong_eviction(write, text: str, message: str) -> None:
    text = text.replace("{plugin", "{'plugin").replace(": {", "': {", 1) if text.startswith("{plugin") else text
    with pytest.raises(ScenarioError) as error:
        load_scenario(write(("scope: node", f"scope: node, eviction: {text}")))
    assert "small.yaml:7: " in str(error.value)
    assert message in str(error.value)


# Bases and overrides -------------------------------------------------------------------------------------------------


def test_parameters_of_the_same_policy_merge_and_another_policy_begins_anew(write) -> None:
    base = routed(write, "{prefix-aware: {temperature: 0.5, shared_weight: 1}}")
    for text, expected in (
        ("{prefix-aware: {temperature: 2}}", {"prefix-aware": {"temperature": 2, "shared_weight": 1}}),
        ("{power-of-two: {choices: 3}}", {"power-of-two": {"choices": 3}}),
        ("prefix-aware", "prefix-aware"),
    ):
        over = write(text=f"base: {base}\ncluster: {{router: {text}}}\n", name="over.yaml")
        assert load_scenario(over).cluster.router == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["cluster.router=random"], "random"),
        (["cluster.router={power-of-two: {choices: 3}}"], {"power-of-two": {"choices": 3}}),
        (["cluster.router.power-of-two.choices=3"], {"power-of-two": {"choices": 3}}),
        (
            ["cluster.router.prefix-aware.temperature=2"],
            {"prefix-aware": {"temperature": 2, "shared_weight": 1}},
        ),
        (["cluster.router.random={}"], "random"),
        (
            ["cluster.router=prefix-aware", "cluster.router.prefix-aware.temperature=2"],
            {"prefix-aware": {"temperature": 2}},
        ),
    ],
)
def test_overrides_set_a_policy_or_one_parameter_of_it(write, overrides: list[str], expected: object) -> None:
    path = routed(write, "{prefix-aware: {temperature: 0.5, shared_weight: 1}}")
    assert load_scenario(path, overrides=overrides).cluster.router == expected


def test_overrides_of_tiers_and_the_engine(small) -> None:
    scenario = load_scenario(
        small,
        overrides=["engine.scheduling.priority.aging_s=3 s", f"tiers.dram.eviction={{'{KEEN}': {{keenness: 3}}}}"],
    )
    assert scenario.engine.scheduling == {"priority": {"aging_s": 3.0}}
    assert scenario.tiers["dram"].eviction == {KEEN: {"keenness": 3}}
    with pytest.raises(ScenarioError, match=r"--set cluster.router.random.seed: unknown parameter \(allowed: none\)"):
        load_scenario(small, overrides=["cluster.router.random.seed=3"])


def test_tiers_and_links_may_be_called_like_a_policy_key(write) -> None:
    path = write(("  fabric:", "  router:"), ("scope: shared", "scope: shared\nlinks: {router: {latency: 1 us}}"))
    over = write(
        text=f"base: {path}\ntiers: {{router: {{ports: 2}}}}\nlinks: {{router: {{bandwidth: 1 GB/s}}}}\n", name="o.yaml"
    )
    scenario = load_scenario(over)
    assert (scenario.tiers["router"].device, scenario.tiers["router"].ports) == ("fx100", 2)
    assert (scenario.links["router"].latency, scenario.links["router"].bandwidth) == (1e-6, 1e9)


def test_the_choice_keys_are_those_of_the_schema() -> None:
    sections: tuple[type[BaseModel], ...] = (Cluster, Engine, TierSpec, Transfer)
    found = {
        key
        for section in sections
        for key, field in section.model_fields.items()
        if Choice in get_args(field.annotation) or any(part in field.metadata for part in Choice.__metadata__)
    }
    assert found == CHOICE_KEYS


# Showing -------------------------------------------------------------------------------------------------------------


def test_show_lists_parameters_but_not_what_the_run_supplies(capsys) -> None:
    assert cli.main(["show", "power-of-two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == {"choices": "2"}
    assert cli.main(["list", "schedulers", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["schedulers"]]
    assert names == ["cache-aware", "fcfs", "priority", "shortest-prefill-first"]


# Priorities of the workload ------------------------------------------------------------------------------------------


def drawn(path: str, seed: int = 0, sessions: int = 400) -> list[int]:
    priority_of = build(load_scenario(path, seed=seed)).cluster._priority_of
    assert priority_of is not None
    return [priority_of(session) for session in range(sessions)]


def with_priorities(write, text: str) -> str:
    return write(("  synthetic: {requests: 100}", f"  synthetic: {{requests: 100}}\n  priorities: {text}"))


def test_without_shares_all_are_alike(small) -> None:
    assert build(load_scenario(small)).cluster._priority_of is None


def test_priorities_are_drawn_by_session_in_the_shares_given(write) -> None:
    path = with_priorities(write, "[0.25, 0.5, 0.25]")
    found = drawn(path)
    assert found == drawn(path) != drawn(path, seed=1)
    assert [round(found.count(level) / 400, 1) for level in range(3)] == pytest.approx([0.25, 0.5, 0.25], abs=0.1)
    assert drawn(with_priorities(write, "[0, 1]")) == [1] * 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0.5, 0.4]", "workload.priorities: add up to 0.9; shares must add up to 1"),
        ("[1.5, -0.5]", "workload.priorities.0: is 1.5; must be at most 1"),
        ("[]", "workload.priorities: must not be empty"),
        ("0.5", "workload.priorities: is 0.5; must be a list"),
    ],
)
def test_wrong_priorities(write, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(with_priorities(write, text))
    assert message in str(error.value)


def test_urgent_sessions_wait_less_where_the_scheduler_heeds_priorities(write) -> None:
    path = with_priorities(write, "[0.3, 0.7]")
    crowded = ["workload.synthetic.session_rate_per_s=100", "engine.max_num_seqs=2", "cluster.replicas=1"]
    priority_of = build(load_scenario(path)).cluster._priority_of
    waits = {}
    for scheduler in ("fcfs", "priority"):
        result = simulate(load_scenario(path, overrides=[*crowded, f"engine.scheduling={scheduler}"]))
        requests = result.to_pandas("requests")
        urgent = requests["session_id"].map(priority_of) == 0
        waits[scheduler] = requests.loc[urgent, "ttft_s"].mean(), requests.loc[~urgent, "ttft_s"].mean()
    assert waits["priority"][0] < 0.7 * waits["fcfs"][0]
    assert waits["priority"][1] > waits["fcfs"][1]
