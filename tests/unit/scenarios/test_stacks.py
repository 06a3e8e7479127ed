"""Stack profiles: each key has a reason, a scenario's own parts win, and mistakes are said at their line."""

import json
from pathlib import Path

import pytest

from models.errors import ScenarioError
from scenarios import cli
from scenarios.loader import load_scenario, stacks
from scenarios.profiles import read_profile, settings

NAMES = [name for name, _ in stacks()]
WANTED = {
    "lmcache": 256,
    "lmcache-serial": 256,
    "lmcache-fs": 256,
    "lmcache-mp": 256,
    "vllm-native": 16,
    "dynamo-kvbm": 16,
    "sglang-hicache": 64,
    "trtllm": 32,
    "mooncake": 512,
}


def test_the_stacks_that_ship_and_their_chunks(small: str) -> None:
    assert set(NAMES) == set(WANTED)
    for name, chunk_tokens in WANTED.items():
        assert load_scenario(small, overrides=[f"stack={name}"]).transfer.chunk_tokens == chunk_tokens


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_says_why_for_each_key_and_what_it_leaves_out(name: str) -> None:
    profile = read_profile(name)
    found = list(settings(profile))
    assert [setting.key for setting in found if not setting.why] == []
    keys = profile.plain()
    assert set(keys["why"]) == {setting.key for setting in found}  # no reason for what is not set
    assert keys["version"]
    assert keys["not_modelled"]


@pytest.mark.parametrize("name", NAMES)
def test_show_prints_keys_reasons_and_limits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "stack", name]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    profile = read_profile(name)
    for setting in settings(profile):
        assert setting.key in text
        assert setting.why.split()[0] in words
    assert "Not modelled:" in text
    assert cli.main(["show", "stack", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": name, **profile.plain()}


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_can_be_overridden(name: str, small: str) -> None:
    """A value of the scenario's wins over every value of the profile's, one at a time."""
    plain = load_scenario(small)
    for setting in settings(read_profile(name)):
        section, field = setting.key.split(".")
        if section in {"engine", "transfer"}:
            key, own = f"{section}.{field}", getattr(getattr(plain, section), field)
        else:
            tier = {"hbm": "hbm", "storage": "fabric"}.get(section, "dram")
            key, own = f"tiers.{tier}.{field}", getattr(plain.tiers[tier], field)
        overrides = [f"stack={name}", f"{key}={json.dumps(own)}"]
        if key in {"transfer.load", "transfer.staging"}:
            overrides.append("transfer.layerwise=false")  # it goes with both
        found = load_scenario(small, overrides=overrides)
        part = getattr(found, section) if section in {"engine", "transfer"} else found.tiers[key.split(".")[1]]
        assert getattr(part, field) == own


def test_sections_hold_for_tiers_of_their_kind(write) -> None:
    write(
        text="engine: {block_tokens: 32}\nhbm: {structure: leaf_constrained}\ntier: {index: process, evicts: false}\n"
        "memory: {scope: worker, evicts: true}\nstorage: {admission: frequency}\n",
        name="mine.yaml",
    )
    cache = "  cache: {device: ddr5, capacity: 1 GB, page_cache_of: fabric}\n"
    path = write(("workload:", "stack: mine.yaml\nworkload:"), ("  fabric:\n", cache + "  fabric:\n"))
    path_text = Path(path).read_text().replace(", scope: node", "")
    scenario = load_scenario(write(text=path_text))
    assert scenario.engine.block_tokens == 32
    tiers = scenario.tiers
    assert tiers["hbm"].structure == "leaf_constrained"
    assert {name: tier.index for name, tier in tiers.items() if name != "hbm"} == dict.fromkeys(
        ("dram", "cache", "fabric"), "process"
    )
    assert (tiers["dram"].scope, tiers["dram"].evicts, tiers["dram"].admission) == ("worker", True, None)
    assert (tiers["fabric"].evicts, tiers["fabric"].admission) == (False, "frequency")
    assert (tiers["cache"].scope, tiers["cache"].admission) == (None, None)  # the kernel's, not the stack's


def test_a_profile_changes_another_one(write) -> None:
    write(
        text="transfer: {load: sync, reads_in_flight: 8}\nwhy: {transfer.load: old}\nnot_modelled: [one]\n",
        name="a.yaml",
    )
    write(
        text="base: a.yaml\ndescription: b\ntransfer: {reads_in_flight: 1}\nwhy: {transfer.reads_in_flight: new}\n"
        "not_modelled: [two]\n",
        name="b.yaml",
    )
    scenario = load_scenario(write(("workload:", "stack: b.yaml\nworkload:")))
    assert (scenario.transfer.load, scenario.transfer.reads_in_flight) == ("sync", 1)
    profile = read_profile("b.yaml", Path(write()).parent)
    assert {setting.key: setting.why for setting in settings(profile)} == {
        "transfer.load": "old",
        "transfer.reads_in_flight": "new",
    }
    assert profile.plain()["not_modelled"] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("trasnfer: {}\n", r"mine\.yaml:1: trasnfer: unknown key; did you mean 'transfer'"),
        ("memory:\n  promote: always\n", r"mine\.yaml:2: memory.promote: unknown key; did you mean 'promotion'"),
        ("storage: 5\n", r"mine\.yaml:1: storage: must be a mapping"),
        ("why:\n  transfer.laod: x\n", r"mine\.yaml:2: why.transfer.laod: is no key of a profile"),
        ("why:\n  transfer.load: 5\n", r"mine\.yaml:2: why.transfer.load: must be a text"),
        ("why: {1: x}\n", r"mine\.yaml:1: "),
        ("not_modelled: nothing\n", r"mine\.yaml:1: not_modelled: must be a list of texts"),
        ("base: mine.yaml\n", r"mine\.yaml:1: base: 'mine.yaml' is based on itself"),
        ("base: lmcash\n", r"mine\.yaml:1: base: unknown stack 'lmcash'; did you mean 'lmcache'"),
        ("base: [lmcache]\n", r"mine\.yaml:1: base: must be the name or the path"),
        ("storage: {scope: worker}\n", r"tiers.fabric.scope: worker is for memory only"),
    ],
)
def test_mistakes_in_a_profile(write, text: str, problem: str) -> None:
    write(text=text, name="mine.yaml")
    path = write(("workload:", "stack: mine.yaml\nworkload:"), ("    scope: shared\n", ""))
    with pytest.raises(ScenarioError, match=problem):
        load_scenario(path)


def test_a_drive_of_one_node_is_not_mounted_by_two(write) -> None:
    nvme = "    device: nvme-gen4\n"
    two_nodes = write(("    device: fx100\n", nvme))
    with pytest.raises(ScenarioError, match=r"scope: shared, but nvme-gen4 is a drive of one node"):
        load_scenario(two_nodes)
    one_node = load_scenario(two_nodes, overrides=["cluster.replicas_per_node=2"])
    assert one_node.tiers["fabric"].scope == "shared"
