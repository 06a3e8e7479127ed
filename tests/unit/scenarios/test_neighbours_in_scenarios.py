"""Traffic of others in a scenario: every key moves the figure that it should, wrong ones are refused, one heals."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from models.errors import InputError
from scenarios.build import build, simulate
from scenarios.cli import app
from scenarios.loader import load_scenario
from scenarios.neighbours import Bursts, Neighbour
from scenarios.reporting.run_section import tables

# Two replicas on nodes of their own bring back contexts of 1 GB from an array, over and over, for about six seconds.
SMALL = """\
name: beside others
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: 2}
tiers:
  hbm: {capacity: 2 GB}
  local: {device: nvme-gen4, capacity: 2 GB, placement: none}
  fabric: {device: fx100, capacity: 100 GB}
workload:
  phases:
    - {name: fill, closed_loop: {concurrency: 2, requests: 8, sessions: 8, prompt_tokens: 8000, output_tokens: 1}}
    - name: use
      restart: true
      closed_loop: {concurrency: 2, requests: 48, sessions: 8, prompt_tokens: 8000, output_tokens: 4}
run: {measure: use}
"""
ON_ARRAY = "neighbours.other={tier: fabric, direction: read, rate: 8 GB/s}"
IN_BURSTS = "neighbours.other={tier: fabric, direction: read, bursts: {bytes: 6 GB}}"
PHASE = "neighbours.other.phase"
OFTEN = "neighbours.other={tier: fabric, direction: read, bursts: {bytes: 6 GB, every: 4 s}}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("beside") / "small.yaml"
    file.write_text(SMALL)
    return str(file)


def summary(path: str, *overrides: str) -> dict[str, Any]:
    return simulate(load_scenario(path, overrides=overrides)).summary()


def ttft_s(found: dict[str, Any]) -> float:
    return float(found["ttft_s"]["mean"])


def moved_bytes(found: dict[str, Any]) -> float:
    return float(found["neighbours"]["other"]["moved_bytes"])


def asked_bytes(found: dict[str, Any]) -> float:
    return float(found["neighbours"]["other"]["asked_bytes"])


def on_drives(found: dict[str, Any]) -> float:
    return float(found["links"]["fabric.drives"]["neighbour_read_bytes"])


def longest_s(found: dict[str, Any]) -> float:
    return float(found["neighbours"]["other"]["bursts"]["max_s"])


# Key, the neighbour, its smaller and its larger value, the figure, and whether that grows.
KNOBS = [
    ("rate", ON_ARRAY, "2 GB/s", "8 GB/s", ttft_s, True),
    ("rate", ON_ARRAY, "2 GB/s", "8 GB/s", asked_bytes, True),
    ("rate", IN_BURSTS, "2 GB/s", "4 GB/s", longest_s, False),
    ("bursts.bytes", IN_BURSTS, "1 GB", "6 GB", longest_s, True),
    ("bursts.bytes", OFTEN, "1 GB", "6 GB", ttft_s, True),
    ("bursts.every", OFTEN, "2 s", "5 s", moved_bytes, False),
    ("senders", ON_ARRAY, "1", "16", ttft_s, True),
    ("weight", ON_ARRAY, "0.1", "10", ttft_s, True),
    ("weight", IN_BURSTS, "0.1", "10", longest_s, False),
    ("limit", "neighbours.other={tier: fabric, direction: read, rate: 8 GB/s, senders: 9}", "0.1", "1", ttft_s, True),
    ("limit", IN_BURSTS, "0.1", "1", longest_s, False),
    (
        "reserved",
        "neighbours.other={tier: fabric, direction: read, rate: 99 GB/s, senders: 9}",
        "0.1",
        "0.9",
        ttft_s,
        False,
    ),
    (
        "reserved",
        "neighbours.other={tier: fabric, direction: read, rate: 99 GB/s, senders: 9, stop: 3 s}",
        "0.1",
        "0.9",
        moved_bytes,
        False,
    ),
    ("reserved", IN_BURSTS.replace("}}", "}, senders: 9}"), "0.1", "0.9", longest_s, True),
    ("io_bytes", "neighbours.other={tier: fabric, direction: read, rate: 8 GB/s}", "1 kB", "1 MB", moved_bytes, True),
    ("start", ON_ARRAY, "0", "4 s", moved_bytes, False),
    ("stop", ON_ARRAY, "3 s", "6 s", moved_bytes, True),
]


@pytest.mark.parametrize(("key", "neighbour", "less", "more", "figure", "grows"), KNOBS)
def test_every_key_moves_its_figure(path, key, neighbour, less, more, figure, grows) -> None:
    low, high = (
        figure(summary(path, neighbour, f"{PHASE}=use", f"neighbours.other.{key}={value}")) for value in (less, more)
    )
    assert (high > 1.1 * low) if grows else (low > 1.1 * high)


def test_all_keys_are_asked_about() -> None:
    keys = {key for key, *_ in KNOBS} | {"tier", "link", "direction", "phase", "bursts.lasts"}
    fields = set(Neighbour.model_fields) - {"bursts"} | {f"bursts.{name}" for name in Bursts.model_fields}
    assert keys == fields


def test_bursts_may_say_how_long_they_would_last(path) -> None:
    by_time = "neighbours.other={tier: fabric, direction: read, rate: 2 GB/s, phase: use, bursts: {lasts: %s s}}"
    for lasts_s in (1, 3):
        assert asked_bytes(summary(path, by_time % lasts_s)) == 2e9 * lasts_s


def test_writes_take_of_the_drives_and_not_of_the_ports_of_loads(path) -> None:
    reads = summary(path, ON_ARRAY)
    writes = summary(path, ON_ARRAY.replace("read", "write"))
    link = writes["links"]["fabric.drives"]
    assert link["neighbour_write_bytes"] > 0.0 == link["neighbour_read_bytes"]
    assert reads["links"]["fabric.drives"]["neighbour_read_bytes"] > 0.0
    assert ttft_s(writes) > ttft_s(summary(path))
    # On ports alone, which are duplex, writes are in nobody's way.
    assert (
        summary(path, "neighbours.w={link: fabric, direction: write, rate: 9 GB/s}")["ttft_s"]
        == (summary(path)["ttft_s"])
    )


def test_a_neighbour_comes_and_goes_with_its_phase(path) -> None:
    def ran(*overrides: str) -> tuple[float, float]:
        """What it moved in the measured phase and in all [B]."""
        simulation = build(load_scenario(path, overrides=[ON_ARRAY, *overrides]))
        found = simulation.run().summary()
        in_all = simulation.neighbours.link_bytes(simulation.network.moved_until_now())
        return moved_bytes(found), sum(map(max, in_all)) / 2  # it crosses drives and ports

    in_use, in_fill, throughout = (ran(*more) for more in ([f"{PHASE}=use"], [f"{PHASE}=fill"], []))
    # A piece that is under way when a phase ends goes on to its end.
    assert 0.0 < in_use[0] <= in_use[1] <= in_use[0] + 8e9
    assert in_fill[0] <= 8e9 < in_fill[1]
    assert throughout[0] == pytest.approx(in_use[0], rel=0.1)
    assert throughout[1] > throughout[0] + 8e9


def test_the_summary_tells_theirs_from_the_tiers(path) -> None:
    found = summary(path, ON_ARRAY, "neighbours.tenant={link: nic, direction: write, rate: 1 GB/s}")
    assert found["neighbours"]["other"]["links"] == ["fabric.drives", "fabric"]
    assert found["neighbours"]["tenant"]["links"] == ["nic.0", "nic.1"]
    drives, tiers = found["links"]["fabric.drives"], found["tiers"]
    assert drives["neighbour_read_bytes"] == pytest.approx(moved_bytes(found), rel=1e-9)
    assert drives["read_bytes"] - drives["neighbour_read_bytes"] == pytest.approx(
        tiers["fabric"]["read_bytes"], rel=1e-6
    )
    nics = [found["links"][name]["neighbour_write_bytes"] for name in ("nic.0", "nic.1")]
    assert nics[0] == nics[1] == pytest.approx(found["neighbours"]["tenant"]["moved_bytes"] / 2)
    assert found["neighbours"]["tenant"]["mean_bytes_per_s"] == pytest.approx(2e9, rel=0.1)  # 1 GB/s on each node's
    assert "of its bytes others'" in found["bottleneck"]


def test_each_node_has_the_neighbours_of_a_local_tier(path) -> None:
    found = summary(path, "neighbours.other={tier: local, direction: write, rate: 1 GB/s}")
    assert found["neighbours"]["other"]["links"] == ["local.0", "local.1"]


def test_what_was_before_the_measured_time_is_left_out(path) -> None:
    """A burst that comes and goes while contexts are computed and stored."""
    found = summary(path, IN_BURSTS.replace("6 GB", "6 MB"))["neighbours"]["other"]
    assert (found["asked_bytes"], found["moved_bytes"]) == (0.0, 0.0)
    assert found["bursts"] == {"ended": 0, "mean_s": None, "max_s": None}


def test_a_report_has_a_table_of_them(path) -> None:
    result = simulate(load_scenario(path, overrides=[IN_BURSTS, f"{PHASE}=use"]))
    *_, links, others = tables(result.summary())
    assert links.header[3] == "of it others'"
    assert all(len(row) == len(links.header) for row in links.rows)
    assert others.rows[0][:3] == ["other", "6 GB", "6 GB"]


def test_without_neighbours_nothing_is_said_of_them(path) -> None:
    found = summary(path)
    assert "neighbours" not in found
    assert not [key for link in found["links"].values() for key in link if "neighbour" in key]


def test_one_that_never_comes_changes_no_time(path) -> None:
    """A path more does not change how the others share."""
    found, alone = summary(path, ON_ARRAY, "neighbours.other.start=1 h"), summary(path)
    assert found["ttft_s"] == alone["ttft_s"]
    assert found["makespan_s"] == alone["makespan_s"]


def test_the_clock_does_not_wait_for_the_next_burst(path) -> None:
    simulation = build(load_scenario(path, overrides=[OFTEN, "neighbours.other.bursts.every=9 d"]))
    simulation.run()
    assert simulation.clock.now_s < 100.0


def test_beside_idle_tiers_a_neighbour_moves_as_much_as_if_nothing_were_kept_from_it(path) -> None:
    """Contexts stay in HBM, so that the array is asked for nothing."""
    greedy = "neighbours.other={tier: fabric, direction: read, rate: 99 GB/s, phase: use}"
    warm = ["tiers.hbm.capacity=40 GB", "workload.phases.use.restart=false"]
    free, kept, limited = (
        summary(path, *warm, greedy, *more)
        for more in ([], ["neighbours.other.reserved=0.75"], ["neighbours.other.limit=0.25"])
    )
    assert free["tiers"]["fabric"]["read_bytes"] == 0.0
    assert moved_bytes(kept) == moved_bytes(free) > 2.0 * moved_bytes(limited)


def test_what_is_left_of_a_tier_that_lost_drives_is_shared_as_the_whole_was(path) -> None:
    greedy = "neighbours.other={tier: fabric, direction: read, rate: 99 GB/s, senders: 99}"
    lost = "events=[{at: 0, kind: drive, tier: fabric, number: 2}]"
    layout = "tiers.fabric.layout={data: 2, parity: 2}"
    plain, kept = (summary(path, layout, greedy, lost, *more) for more in ([], ["neighbours.other.reserved=0.9"]))
    alone = summary(path, layout, lost)
    assert ttft_s(plain) > 5.0 * ttft_s(alone)
    assert ttft_s(kept) < 1.3 * ttft_s(alone)


# Said wrongly --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbour", "message"),
    [
        (
            "{tier: fabrik, direction: read, rate: 1 GB/s}",
            "tier: is 'fabrik'; must be a tier with a device: local, fabric",
        ),
        ("{tier: hbm, direction: read, rate: 1 GB/s}", "tier: is 'hbm'; must be a tier with a device: local, fabric"),
        ("{link: nick, direction: read, rate: 1 GB/s}", "link: no such link here; allowed: fabric, "),
        ("{tier: fabric, link: nic, direction: read, rate: 1 GB/s}", "tier: or link: give exactly one of them"),
        ("{direction: read, rate: 1 GB/s}", "tier: or link: give exactly one of them"),
        ("{tier: fabric, rate: 1 GB/s}", "direction: is missing"),
        ("{tier: fabric, direction: read}", "rate: is missing; only bursts of so many bytes go without"),
        ("{tier: fabric, direction: read, bursts: {lasts: 1 s}}", "rate: is missing; only bursts of so many bytes"),
        ("{tier: fabric, direction: read, bursts: {}}", "bursts.bytes: or lasts: give exactly one of them"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, limit: 2}", "limit: is 2; must be at most 1"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, reserved: 0}", "reserved: is 0; must be greater than 0"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, reserved: 1}", "reserved: is 1; must be less than 1"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, reserved: 75}", "reserved: is 75; must be less than 1"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, reserved: half}", "reserved: is 'half'; must be "),
        ("{tier: fabric, direction: read, rate: 1 GB/s, weight: 0}", "weight: is 0; must be greater than 0"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, stop: 0}", "stop: is 0 s; must be after start (0 s)"),
        ("{tier: fabric, direction: read, rate: 1 GB/s, phase: us}", "phase: is 'us'; must name a phase: fill, use"),
        ("{link: nic, direction: read, rate: 1 GB/s, io_bytes: 4 kB}", "io_bytes: is for tier: a link knows no I/Os"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(path, neighbour: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        summary(path, f"neighbours.other={neighbour}")
    assert "neighbours.other." in str(refused.value)
    assert message in str(refused.value)


# What ships ----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_spoils_the_nights_ttft_and_a_share_of_the_array_heals_most_of_it() -> None:
    spoiled, healed, alone = (
        summary("nightly-checkpoint", *overrides)
        for overrides in ([], ["neighbours.checkpoint.limit=0.25"], ["neighbours={}"])
    )
    p99_s = [found["ttft_s"]["p99"] for found in (spoiled, healed, alone)]
    assert p99_s[0] > 20 * p99_s[2]
    assert p99_s[0] - p99_s[1] > 0.95 * (p99_s[0] - p99_s[2])
    took_s = [found["neighbours"]["checkpoint"]["bursts"]["max_s"] for found in (spoiled, healed)]
    # 16 drives write 1.6 GB/s each: 156 s alone, and a quarter of that takes four times as long whoever else is there.
    assert took_s[0] > 4e12 / 25.6e9
    assert took_s[1] == pytest.approx(4 * 4e12 / 25.6e9, rel=1e-3)


def test_what_is_kept_for_the_tiers_heals_as_much_and_the_checkpoint_hardly_takes_longer() -> None:
    """A limit holds it back when nobody restores; what is kept does not."""
    found = {
        key: summary("nightly-checkpoint", *([key] if key else []))
        for key in ("", "neighbours.checkpoint.limit=0.25", "neighbours.checkpoint.reserved=0.75")
    }
    spoiled, limited, kept = ((one["ttft_s"]["p99"], longest_s_of(one)) for one in found.values())
    assert kept[0] < limited[0] < 0.05 * spoiled[0]
    assert kept[1] < 1.05 * spoiled[1] < 0.5 * limited[1]


def longest_s_of(found: dict[str, Any]) -> float:
    return float(found["neighbours"]["checkpoint"]["bursts"]["max_s"])


def test_run_prints_what_neighbours_moved(path) -> None:
    command = ["run", path, "--set", IN_BURSTS, "--set", f"{PHASE}=use"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert next(row for row in rows if "fabric.drives," in row)[:5] == ["other", "6", "GB", "6", "GB"]
    assert ["link", "read", "written", "others'", "busy", "busy", "mean", "peak"] in rows
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert found["neighbours"]["other"]["moved_bytes"] == pytest.approx(6e9)
