"""Variants: what --vary and --variant mean, what they are called, and what is refused before anything runs."""

from collections.abc import Callable

import pytest

from models.errors import InputError, ScenarioError
from scenarios.comparison.variants import load_variants, split_values


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lru", ["lru"]),
        ("lru,fifo", ["lru", "fifo"]),
        (" 64 GB , 128 GB", ["64 GB", "128 GB"]),
        ("[dram, hbm],[],null", ["[dram, hbm]", "[]", "null"]),
        ("{requests: 5, length_scale: 2},{requests: 6}", ["{requests: 5, length_scale: 2}", "{requests: 6}"]),
        ("'a,b',\"c,]\"", ["'a,b'", '"c,]"']),
        ("['a,]', b],c", ["['a,]', b]", "c"]),
        ("rock'n'roll,jazz", ["rock'n'roll", "jazz"]),
    ],
)
def test_values_stand_between_commas_that_belong_to_none_of_them(text: str, parts: list[str]) -> None:
    assert split_values(text, "here") == parts


@pytest.mark.parametrize("text", ["", "a,,b", "a,", "[a,b", "a],b", "'a,b"])
def test_an_empty_value_and_an_open_bracket_are_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"^here: "):
        split_values(text, "here")


def test_one_varied_key_names_variants_by_its_values(small: str) -> None:
    found = load_variants(small, vary=["tiers.dram.capacity=64 GB, 0.5 TB"], overrides=["cluster.replicas=3"], seed=4)
    assert [variant.name for variant in found] == ["64 GB", "0.5 TB"]
    assert [variant.scenario.tiers["dram"].capacity for variant in found] == [64_000_000_000, 500_000_000_000]
    assert {variant.scenario.cluster.replicas for variant in found} == {3}
    assert {variant.scenario.run.seed for variant in found} == {4}
    assert found[0].values() == {"tiers.dram.capacity": "64 GB"}


def test_several_varied_keys_make_all_combinations_and_names_that_tell_them_apart(small: str) -> None:
    found = load_variants(small, vary=["tiers.dram.capacity=1 GB,2 GB", "tiers.fabric.capacity=1 TB", "run.warmup=0,1"])
    assert [variant.name for variant in found] == [
        "dram.capacity=1 GB, fabric.capacity=1 TB, warmup=0",
        "dram.capacity=1 GB, fabric.capacity=1 TB, warmup=1",
        "dram.capacity=2 GB, fabric.capacity=1 TB, warmup=0",
        "dram.capacity=2 GB, fabric.capacity=1 TB, warmup=1",
    ]
    assert found[3].values() == {"tiers.dram.capacity": "2 GB", "tiers.fabric.capacity": "1 TB", "run.warmup": 1}
    assert found[3].scenario.run.warmup == 1.0


def test_named_variants_come_after_the_varied_ones_and_set_all_that_they_say(small: str) -> None:
    found = load_variants(
        small,
        vary=["stack=lmcache,lmcache-serial"],
        variants=["as it is:", "big: tiers.dram.capacity = 1 TB, cluster.replicas=4,tiers.fabric=null"],
    )
    assert [variant.name for variant in found] == ["lmcache", "lmcache-serial", "as it is", "big"]
    assert found[0].scenario.transfer != found[1].scenario.transfer
    assert found[2].settings == {}
    assert found[3].scenario.cluster.replicas == 4
    assert list(found[3].scenario.tiers) == ["hbm", "dram"]


def test_a_phase_is_varied_by_its_name() -> None:
    found = load_variants("r2-fx100-c16", vary=["workload.phases.c16.wave.prompt_tokens=1000,2000"])
    lengths = [phase.wave.prompt_tokens for v in found for phase in v.scenario.workload.phases or () if phase.wave]
    assert {1000, 2000} <= set(lengths)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "needs two variants or more to compare"),
        ({"vary": ["tiers.dram.capacity=1 GB"]}, "needs two variants or more"),
        ({"vary": ["tiers.dram.capacity"]}, "--vary tiers.dram.capacity: must be KEY=VALUE,VALUE"),
        ({"vary": ["run.seed=1,2", "run.seed=3"]}, "--vary run.seed: is varied twice"),
        ({"vary": ["tiers.dram.capcity=1,2"]}, "--vary tiers.dram.capcity: unknown key; did you mean 'capacity'?"),
        (
            {"vary": ["tiers.dram.eviction=lru,lruu"]},
            "--vary tiers.dram.eviction: unknown eviction policy 'lruu'; did you mean 'lru'?",
        ),
        ({"vary": ["tiers.dram.capacity=1 GB,1 GB"]}, "two variants are called '1 GB'"),
        ({"vary": ["run.seed=1,2"], "seed": 3}, "run.seed is varied, so there is no one --seed"),
        ({"vary": ["run.seed=1,2"], "overrides": ["run.sed=1"]}, "--set run.sed: unknown key"),
        ({"variants": ["a:", "b:run.seed"]}, "--variant b:run.seed: 'run.seed' must be KEY=VALUE"),
        ({"variants": ["a:", "run.seed=1"]}, "--variant run.seed=1: must be NAME:KEY=VALUE"),
        ({"variants": ["a:", "b:run.seed=1,run.seed=2"]}, "sets run.seed twice"),
        ({"variants": ["a:", "b:run.sed=1"]}, "--variant b: run.sed: unknown key"),
    ],
)
def test_what_is_refused(small: str, options: dict[str, list[str]], line: str) -> None:
    with pytest.raises(InputError) as caught:
        load_variants(small, **options)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_holds_for_all_variants(write: Callable[..., str], tmp_path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text("")
    found = load_variants(write(), vary=["run.seed=1,2"], trace=str(trace))
    assert {variant.scenario.workload.trace for variant in found} == {str(trace)}
