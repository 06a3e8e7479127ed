import json
import os
from pathlib import Path

import pytest

from models.errors import ScenarioError, UnknownNameError
from scenarios.loader import json_schema, library, load_scenario, resolved, stacks
from scenarios.schema import Scenario

PHASES = """\
workload:
  phases:
    - {name: populate, closed_loop: {concurrency: 1, requests: 34, prompt_tokens: 30235, output_tokens: 64}}
    - {name: c8, clear: [hbm], wave: {requests: 8, prompt_tokens: 30235, output_tokens: 64, arrival_jitter: 30 ms}}
"""
SYNTHETIC = "workload:\n  synthetic: {requests: 100}\n"


def test_quantities_become_si(write) -> None:
    links = "links: {fabric: {bandwidth: 200 Gbit/s, latency: 10 us}}\nslo: {ttft: 2 s, tpot: 50 ms}\nworkload:"
    scenario = load_scenario(write(("workload:", links)))
    assert scenario.tiers["dram"].capacity == 500_000_000_000
    assert scenario.tiers["fabric"].capacity == 80_000_000_000
    assert type(scenario.tiers["fabric"].capacity) is int
    assert scenario.links["fabric"].bandwidth == 25e9
    assert scenario.links["fabric"].latency == pytest.approx(10e-6, rel=1e-15)
    assert scenario.slo is not None
    assert (scenario.slo.ttft, scenario.slo.tpot) == (2.0, 0.05)


def test_defaults_and_order(small) -> None:
    scenario = load_scenario(small)
    assert list(scenario.tiers) == ["hbm", "dram", "fabric"]
    assert scenario.engine.block_tokens == 16
    assert scenario.engine.version == "0.33.0"
    assert scenario.cluster.nic == "connectx-7"
    assert scenario.transfer.reads_in_flight == 32
    assert scenario.workload.rate_scale == 1.0
    assert scenario.run.percentiles == "linear"


def test_resolved_round_trips_through_json(write) -> None:
    fallback = ("workload:\n", "workload:\n  trace:\n")
    for path in (write(), write(fallback, name="b.yaml"), write((SYNTHETIC, PHASES), name="c.yaml")):
        scenario = load_scenario(path, overrides=["cluster.nic=null", "transfer.process_bandwidth=5.3 GB/s"])
        text = json.dumps(resolved(scenario), allow_nan=False)
        again = Scenario.model_validate(json.loads(text))
        assert again == scenario
        assert resolved(again) == resolved(scenario)
        assert again.workload.is_fallback == scenario.workload.is_fallback
        assert again.cluster.nic is None


def test_a_resolved_file_loads_again(small, tmp_path) -> None:
    scenario = load_scenario(small)
    (tmp_path / "again.yaml").write_text(json.dumps(resolved(scenario)))
    assert load_scenario(str(tmp_path / "again.yaml")) == scenario


def test_overrides(small) -> None:
    scenario = load_scenario(
        small,
        overrides=[
            "tiers.dram.capacity=64 GB",
            "tiers.dram.eviction=lru",
            "cluster.replicas=8",
            "slo.ttft=2 s",
            "links.fabric.latency=80 us",
            "tiers.cxl={device: ddr5, capacity: 1 TB}",
            "workload.synthetic.requests=7",
            "stack=",
        ],
        seed=5,
    )
    assert scenario.tiers["dram"].capacity == 64e9
    assert scenario.cluster.replicas == 8
    assert scenario.slo is not None
    assert scenario.slo.ttft == 2.0
    assert scenario.links["fabric"].latency == pytest.approx(80e-6)
    assert list(scenario.tiers) == ["hbm", "dram", "fabric", "cxl"]
    assert scenario.workload.synthetic is not None
    assert scenario.workload.synthetic.requests == 7
    assert scenario.run.seed == 5


def test_a_later_override_wins_and_an_index_addresses_a_list(write) -> None:
    path = write((SYNTHETIC, PHASES))
    scenario = load_scenario(
        path, overrides=["workload.phases.1.wave.requests=9", "workload.phases.1.wave.requests=16"]
    )
    assert scenario.workload.phases is not None
    assert scenario.workload.phases[1].wave is not None
    assert scenario.workload.phases[1].wave.requests == 16
    assert scenario.workload.phases[1].clear == ("hbm",)
    assert scenario.workload.kind == "phases"
    assert scenario.workload.phases[1].kind == "wave"


def test_names_of_links_may_hold_dots(small) -> None:
    overrides = [
        "links.fabric.drives.bandwidth=9 GB/s",
        "links.nic.0={latency: 3 us}",
        "links.nic.0.delivered_fraction=0.9",
    ]
    links = load_scenario(small, overrides=overrides).links
    assert links["fabric.drives"].bandwidth == 9e9
    assert links["nic.0"].delivered_fraction == 0.9
    assert list(load_scenario(small, overrides=[*overrides, "links.nic.0=null"]).links) == ["fabric.drives"]
    with pytest.raises(ScenarioError, match=r"^--set links.nic.0.latncy: unknown key; did you mean 'latency'\?"):
        load_scenario(small, overrides=["links.nic.0.latncy=1"])


def test_null_takes_a_tier_away(small) -> None:
    assert list(load_scenario(small, overrides=["tiers.dram=null"]).tiers) == ["hbm", "fabric"]


def test_trace_replaces_the_synthetic_workload(write) -> None:
    path = write(("workload:\n", "workload:\n  trace:\n"))
    fallback = load_scenario(path).workload
    assert fallback.kind == "synthetic"
    assert fallback.is_fallback
    traced = load_scenario(path, trace="x.jsonl").workload
    assert traced.kind == "trace"
    assert traced.trace == "x.jsonl"
    assert not traced.is_fallback
    assert not load_scenario(write()).workload.is_fallback
    with pytest.raises(ScenarioError, match=r"^--trace x.jsonl: the workload of this scenario is phases"):
        load_scenario(write((SYNTHETIC, PHASES)), trace="x.jsonl")


def test_base_merges_mappings_and_replaces_workload_and_lists(write) -> None:
    write(("  synthetic: {requests: 100}", "  synthetic: {requests: 100}\n  limit: 3"))
    child = write(
        text="base: small.yaml\ncluster: {replicas: 4}\ntiers: {dram: {capacity: 1 TB}, fabric: null}\n" + PHASES,
        name="child.yaml",
    )
    scenario = load_scenario(child)
    assert scenario.name == "child"
    assert scenario.description == ""
    assert scenario.cluster.replicas == 4
    assert scenario.cluster.accelerator == "h200-sxm"
    assert list(scenario.tiers) == ["hbm", "dram"]
    assert scenario.tiers["dram"].capacity == 1e12
    assert scenario.tiers["dram"].device == "ddr5"
    assert scenario.workload.synthetic is None
    assert scenario.workload.limit is None
    third = load_scenario(write(text="base: child.yaml\nname: third\n", name="third.yaml"))
    assert (third.name, third.cluster.replicas) == ("third", 4)


def test_a_file_that_names_every_tier_of_its_base_sets_their_order(write) -> None:
    write()
    text = "base: small.yaml\ntiers: {hbm: {}, fabric: {}, nvme: {device: nvme-gen4, capacity: 2 TB}, dram: {}}\n"
    assert list(load_scenario(write(text=text, name="b.yaml")).tiers) == ["hbm", "fabric", "nvme", "dram"]
    text = "base: small.yaml\ntiers: {nvme: {device: nvme-gen4, capacity: 2 TB}}\n"
    assert list(load_scenario(write(text=text, name="c.yaml")).tiers) == ["hbm", "dram", "fabric", "nvme"]


def test_base_that_goes_round(write) -> None:
    write(text="base: b.yaml\n", name="a.yaml")
    with pytest.raises(ScenarioError, match=r"a\.yaml:1: base: 'b.yaml' is based on itself"):
        load_scenario(write(text="base: a.yaml\n", name="b.yaml"))


def test_stack_lies_under_the_scenario(write) -> None:
    write(
        text="description: d\ntransfer: {load: sync, reads_in_flight: 1}\ntier: {index: process, placement: none}\n",
        name="mine.yaml",
    )
    own = "stack: mine.yaml\ntransfer: {reads_in_flight: 4}\nworkload:"
    path = write(("workload:", own), ("scope: node", "scope: node, placement: write-back"))
    scenario = load_scenario(path)
    assert (scenario.transfer.load, scenario.transfer.reads_in_flight) == ("sync", 4)
    assert scenario.tiers["dram"].placement == "write-back"
    assert scenario.tiers["fabric"].placement == "none"
    assert {name: tier.index for name, tier in scenario.tiers.items()} == {
        "hbm": "filesystem",  # a profile is for what lies below hbm
        "dram": "process",
        "fabric": "process",
    }
    without = load_scenario(path, overrides=["stack=null"])
    assert without.transfer.load == "async"
    overridden = load_scenario(path, overrides=["transfer.load=async", "tiers.fabric.placement=write-back"])
    assert overridden.transfer.load == "async"
    assert overridden.tiers["fabric"].placement == "write-back"


def test_errors_in_a_stack_name_the_stack_file(write) -> None:
    write(text="description: d\ntransfer:\n  reads_in_flihgt: 1\n", name="mine.yaml")
    path = write(("workload:", "stack: mine.yaml\nworkload:"))
    with pytest.raises(ScenarioError, match=r"mine\.yaml:3: transfer.reads_in_flihgt: unknown key; did you mean"):
        load_scenario(path)
    write(text="description: d\ntransfer:\n  reads_in_flight: 0\n", name="mine.yaml")
    with pytest.raises(ScenarioError, match=r"mine\.yaml:3: transfer.reads_in_flight: is 0; must be at least 1"):
        load_scenario(path)


def test_shipped_names(ship, write) -> None:
    text = Path(write()).read_text()
    ship("library/tiny.yaml", text.replace("name: small\n", ""))
    ship("library/child.yaml", "base: tiny\ndescription: >\n  two\n  lines\nstack: fast\n")
    ship("stacks/fast.yaml", "description: quick\nversion: '1'\ntransfer: {load: sync}\n")
    assert library() == [("child", "two lines"), ("tiny", "for tests")]
    assert stacks() == [("fast", "quick")]
    assert load_scenario("tiny").name == "tiny"
    assert load_scenario("child").transfer.load == "sync"
    with pytest.raises(UnknownNameError, match="unknown scenario 'tinny'; did you mean 'tiny'"):
        load_scenario("tinny")
    with pytest.raises(
        ScenarioError, match=r"^--set stack: stack: unknown stack 'slow'|^--set stack: unknown stack 'slow'"
    ):
        load_scenario("tiny", overrides=["stack=slow"])


def test_files_are_found_beside_the_scenario(write, tmp_path, monkeypatch) -> None:
    path = write(("  synthetic: {requests: 100}", "  trace: t.jsonl"), name="in/s.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_scenario(path).workload.trace == "t.jsonl"
    (tmp_path / "in" / "t.jsonl").write_text("")
    assert load_scenario(path).workload.trace == str(tmp_path / "in" / "t.jsonl")
    assert load_scenario(os.path.relpath(path), trace="t.jsonl").workload.trace == "t.jsonl"


def test_json_schema_is_stable_and_says_what_a_file_may_say() -> None:
    schema = json_schema()
    assert schema == json_schema()
    assert schema["anyOf"][0] == {"required": ["base"]}
    assert schema["additionalProperties"] is False
    assert "base" in schema["properties"]
    stored = Path(__file__).with_name("scenario.schema.json")
    # After a wanted change: kvtier show schema > tests/unit/scenarios/scenario.schema.json
    assert json.loads(json.dumps(schema)) == json.loads(stored.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [name for name, _ in library()])
def test_every_shipped_scenario_loads(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.description


@pytest.mark.parametrize("name", [name for name, _ in stacks()])
def test_every_shipped_stack_loads_under_a_scenario(name: str, small: str) -> None:
    assert load_scenario(small, overrides=[f"stack={name}"]).stack == name


@pytest.mark.parametrize("name", [name for name, _ in library()])
def test_every_shipped_scenario_as_resolved_is_the_same_scenario(name: str) -> None:
    scenario = load_scenario(name)
    assert Scenario.model_validate(json.loads(json.dumps(resolved(scenario)))) == scenario
