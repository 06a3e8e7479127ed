"""Every key of cluster.decode moves the result that it should, in the right direction."""

from typing import Any

import pytest
from engine_kit import Row, Rows, scenario, serve

from models.errors import InputError
from scenarios.loader import load_scenario
from scenarios.schema import DecodePool

LOAD = [Row(0.2 * (n // 2), 2000, 60) for n in range(30)]  # two at a time
UNEVEN = [Row(0.2 * n, 8000 if n % 2 else 500, 200) for n in range(30)]


def figures(load=LOAD, **decode) -> dict[str, Any]:
    cluster = {"replicas": 2, "decode": {"replicas": 2} | decode}
    return serve(scenario(cluster=cluster), Rows(load)).summary()


def of(*path):
    def figure(found):
        for key in path:
            found = found[key]
        return found

    return figure


# key, value, value for which the figure is higher
KNOBS = [
    ("replicas", 3, 1, of("itl_s", "mean")),
    ("accelerator", "h200-sxm", "h100-sxm", of("itl_s", "mean")),
    ("accelerator", "h100-sxm", "h200-sxm", of("tiers", "hbm", "capacity_bytes")),
    ("tensor_parallel", 4, 1, of("itl_s", "mean")),
    ("tensor_parallel", 1, 4, of("tiers", "hbm", "capacity_bytes")),
    ("pipeline_parallel", 1, 2, of("tiers", "hbm", "capacity_bytes")),
    ("nodes", "shared", "own", of("ttft_parts_s", "handover")),
    ("replicas_per_node", 1, 2, of("ttft_parts_s", "handover")),  # one card for both
    ("router", "least-loaded", "round-robin", of("itl_s", "p99")),  # which puts all long prompts on one of them
    ("handover_software", 0.0, 0.01, of("ttft_parts_s", "handover")),
]


@pytest.mark.parametrize(("key", "lower", "higher", "figure"), KNOBS, ids=[f"{k[0]}-{n}" for n, k in enumerate(KNOBS)])
def test_knob(key, lower, higher, figure):
    load = UNEVEN if key == "router" else LOAD
    low, high = (figure(figures(load, **{key: value})) for value in (lower, higher))
    assert low < high


def test_no_knob_is_forgotten():
    assert {knob[0] for knob in KNOBS} == set(DecodePool.model_fields)


def test_software_time_comes_before_the_first_byte():
    first, second = (figures(handover_software=s)["ttft_parts_s"]["handover"] for s in (0.0, 0.125))
    assert second - first == pytest.approx(0.125, rel=0.05)


@pytest.mark.parametrize(
    ("override", "where", "problem"),
    [
        ("router=least-busy", "cluster.decode.router", "least-busy"),
        ("accelerator=h900", "cluster.decode.accelerator", "h900"),
        ("replicas_per_node=2", "cluster.decode.replicas_per_node", "at most cluster.decode.replicas"),
        ("replicas=0", "cluster.decode.replicas", "must be at least 1"),
        ("nodes=apart", "cluster.decode.nodes", "apart"),
        ("tiers=2", "cluster.decode.tiers", "unknown"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(override, where, problem):
    with pytest.raises(InputError) as caught:
        load_scenario("quickstart", overrides=[f"cluster.decode.{override}"])
    assert where in str(caught.value)
    assert problem in str(caught.value)
