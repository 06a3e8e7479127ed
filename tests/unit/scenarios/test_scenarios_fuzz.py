"""Whatever stands in a file or an override, the answer is a scenario that round-trips or an InputError."""

import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InputError
from scenarios.loader import load_scenario, resolved
from scenarios.run_spec import LinkSpec, Run, Slo
from scenarios.schema import Cluster, Engine, Scenario, TierSpec, Transfer
from scenarios.workload import ClosedLoop, Load, Phase, Synthetic, Wave, Workload

PARTS = (
    ClosedLoop,
    Cluster,
    Engine,
    LinkSpec,
    Load,
    Phase,
    Run,
    Scenario,
    Slo,
    Synthetic,
    TierSpec,
    Transfer,
    Wave,
    Workload,
)
KEYS = sorted({key for part in PARTS for key in part.model_fields} | {"hbm", "dram", "fabric", "base", "0", "1"})

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["ddr5", "fx100", "lru", "hbm", "64 GB", "10 us", "200 Gbit/s", "1 Gb", "8e10", ".nan", "0x1f", "a.b:C"]
    ),
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
paths = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(".".join)
BASE = {
    "name": "small",
    "llm": "llama-3.1-8b",
    "cluster": {"accelerator": "h200-sxm"},
    "tiers": {"hbm": {}, "dram": {"device": "ddr5", "capacity": "64 GB"}},
    "workload": {"synthetic": {"requests": 3}},
}


def load(text: str, overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            scenario = load_scenario(str(path), overrides=overrides)
        except InputError:
            return
    assert Scenario.model_validate(resolved(scenario)) == scenario


@given(st.dictionaries(st.sampled_from(KEYS), trees, max_size=6))
def test_any_tree_for_a_file(tree: dict[str, object]) -> None:
    load(yaml.safe_dump({**BASE, **tree}), [])


@given(paths, trees)
def test_any_override(path: str, value: object) -> None:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n").removesuffix("\n...")
    load(yaml.safe_dump(BASE), [f"{path}={text}"])


@given(st.text(max_size=60))
def test_any_text_for_a_file_and_an_override(text: str) -> None:
    load(text, [])
    load(yaml.safe_dump(BASE), [text, f"tiers={text}"])
    load(yaml.safe_dump(BASE), [f"name={text}"])
