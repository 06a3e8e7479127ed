"""Events in a scenario file: what is refused, what ships, and what a run prints."""

import json

import pytest
from typer.testing import CliRunner

from models.errors import ScenarioError
from scenarios.build import simulate
from scenarios.cli import app
from scenarios.loader import load_scenario
from scenarios.reporting.run_section import tables

REFUSED = [
    ("{at: 5 s, kind: drive, tier: nvm}", "tier: is 'nvm'; must be one of dram, nvme"),
    ("{at: 5 s, kind: drive, tier: dram}", "tier: is 'dram', which is memory; write kind: restart"),
    ("{at: 5 s, kind: drive, tier: nvme, number: 3}", "number: is 3; nvme has 1"),
    ("{at: 5 s, kind: target, tier: nvme, number: 2}", "number: is 2; nvme has 1"),
    ("{at: 5 s, kind: drive, tier: nvme, instance: 2}", "instance: is 2; there are 2 of nvme"),
    ("{at: 5 s, kind: port, tier: nvme}", "kind: is port; nvme-gen4 has none"),
    ("{at: 5 s, kind: drive}", "tier: is missing; kind: drive needs it"),
    ("{at: 5 s, kind: drive, tier: nvme, replica: 0}", "replica: is not for kind: drive, which takes at and instance"),
    ("{at: 5 s, kind: drive, tier: nvme, rebuild_bandwidth: 1 GB/s}", "rebuild_bandwidth: there is nothing to rebuild"),
    ("{at: 5 s, kind: restart, replica: 0}", "lasts: is missing; kind: restart needs it"),
    ("{at: 5 s, kind: restart, lasts: 3 s}", "replica: or node: give exactly one"),
    ("{at: 5 s, kind: restart, replica: 0, node: 0, lasts: 3 s}", "replica: or node: give exactly one"),
    ("{at: 5 s, kind: restart, replica: 2, lasts: 3 s}", "replica: is 2; must be below cluster.replicas (2)"),
    ("{at: 5 s, kind: restart, node: 2, lasts: 3 s}", "node: is 2; must be below the number of nodes (2)"),
    ("{at: 5 s, kind: drain, replica: 0, lasts: 3 s}", "lasts: is not for kind: drain"),
    ("{at: 5 s, kind: add, replica: 1}", "lasts: is missing; kind: add needs it"),
    ("{at: -5 s, kind: drain, replica: 1}", "at: is -5.0; must be at least 0"),
    ("{at: 5 s, kind: dirve, tier: nvme}", "kind: is 'dirve'; did you mean 'drive'?"),
    ("{at: 5 s, kind: drive, tier: nvme, lats: 3 s}", "lats: unknown key; did you mean 'lasts'?"),
]


def written(folder, events, more=""):
    path = folder / "broken.yaml"
    path.write_text(f"base: quickstart\ncluster: {{replicas: 2}}\n{more}events:\n  - {events}\n")
    return str(path)


@pytest.mark.parametrize(("event", "problem"), REFUSED)
def test_a_wrong_event_is_reported_at_its_line(event, problem, tmp_path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(written(tmp_path, event))
    assert f"broken.yaml:4: events.0.{problem}" in str(caught.value)


def test_what_does_not_go_together_is_refused(tmp_path) -> None:
    restart = "{at: 5 s, kind: restart, replica: 0, lasts: 3 s}"
    for more, problem in (
        ("transfer: {prefetch: at-enqueue}\n", "prefetch: none"),
        ("transfer: {load_or_recompute: two-ended}\n", "not for transfer.load_or_recompute: two-ended"),
        ("tiers: {nvme: {layout: {data: 4}}}\n", "has 4 + 0 pieces a chunk, each on its own drive; nvme has 1"),
        ("tiers: {dram: {layout: {parity: 1}}}\n", "is for drives; dram is memory"),
    ):
        with pytest.raises(ScenarioError, match=problem.replace("+", r"\+")):
            load_scenario(written(tmp_path, restart, more))
    drains = "{at: 5 s, kind: drain, replica: 0}\n  - {at: 6 s, kind: drain, replica: 1}"
    with pytest.raises(ScenarioError, match="leave no replica in the end"):
        load_scenario(written(tmp_path, drains))
    with pytest.raises(ScenarioError, match="decode replicas"):
        load_scenario("mooncake-disaggregated", overrides=["events=[{at: 1 s, kind: drain, replica: 0}]"])


def test_the_shipped_loss_costs_hits_and_a_copy_saves_them() -> None:
    lost = simulate(load_scenario("drive-loss")).summary()
    drive, restart = lost["events"]
    assert drive["lost_bytes"] > 0
    assert drive["rebuild_s"] is None
    assert drive["warmup_s"] > 0
    assert restart["requests_in_hand"] > 0
    assert lost["requests"]["failed"] == 0
    saved = simulate(load_scenario("drive-loss", overrides=["tiers.fabric.layout.parity=1"])).summary()
    assert saved["events"][0]["lost_bytes"] == 0
    assert saved["events"][0]["rebuild_s"] > 0
    assert saved["hit_ratio_tokens"] > lost["hit_ratio_tokens"]
    failed = simulate(load_scenario("drive-loss", overrides=["engine.kv_load_failure_policy=fail"])).summary()
    assert failed["requests"]["failed"] >= restart["requests_in_hand"]
    # What happens later, or nowhere, changes nothing before it.
    for name, part in failed["events"][0]["windows"]["before"].items():
        assert part == drive["windows"]["before"][name]


def test_a_run_prints_its_events_and_says_nothing_without_any() -> None:
    command = ["run", "drive-loss", "--set", "workload.synthetic.requests=1700"]
    text = CliRunner().invoke(app, command).stdout
    assert "drive, fabric" in text
    assert "lost" in text
    summary = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert [event["kind"] for event in summary["events"]][:1] == ["drive"]
    (table,) = [table for table in tables(summary) if table.caption == "What happened, and what it cost"]
    assert [row[0] for row in table.rows] == [f"{event['kind']}, {event['target']}" for event in summary["events"]]
    bare = CliRunner().invoke(app, [*command, "--set", "events=null"]).stdout
    assert "drive, fabric" not in bare


def test_events_that_all_come_after_the_end_take_no_table() -> None:
    command = ["run", "drive-loss", "--set", "workload.synthetic.requests=60"]
    late = CliRunner().invoke(app, [*command, "--set", "events=[{at: 9 d, kind: drive, tier: fabric}]"])
    assert "event drive, fabric at 9 d did not happen" in late.stderr
    assert "warm after" not in late.stdout
    there = CliRunner().invoke(app, [*command, "--set", "events=[{at: 1 s, kind: drive, tier: fabric}]"])
    assert "warm after" in there.stdout
