"""What users of the stacks report comes out of their profiles; and what makes their times differ, part by part."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from scenarios import cli
from scenarios.build import simulate
from scenarios.loader import load_scenario

# 24 contexts of 1.07 GB, each asked about three times in turn: memory holds three of them, the drive all.
IN_TURN = """\
name: stacks
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
tiers:
  hbm: {capacity: 6 GB}
  dram: {device: ddr5, capacity: 4 GB, scope: node}
  nvme: {device: nvme-gen4, capacity: 100 GB}
workload:
  closed_loop: {concurrency: 4, requests: 72, sessions: 24, prompt_tokens: 8200, output_tokens: 16}
"""
ALONE = "workload.closed_loop.concurrency=1"
# Two replicas of one node and an array; the second time, the contexts meet the other replica after a restart or not.
TWO_REPLICAS = """\
name: replicas
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: 2, replicas_per_node: 2, router: round-robin}
tiers:
  hbm: {capacity: 3 GB}
  dram: {device: ddr5, capacity: 1.2 GB, scope: node}
  fabric: {device: fx100, capacity: 50 GB}
workload:
  phases:
    - {name: fill, closed_loop: {concurrency: 1, requests: %d, sessions: 7, prompt_tokens: 8200, output_tokens: 1}}
    - name: again
      restart: %s
      closed_loop: {concurrency: 1, requests: %d, sessions: 7, prompt_tokens: 8200, output_tokens: 1}
run: {measure: again}
"""
# Report R3: 8 sessions of 7.67 GB a replica at once, from one port of an array; memory empty, so that all is staged.
R3 = ["workload.phases.c16.clear=[dram]", "tiers.dram.scope=worker"]


def test_compare_shows_why_stacks_differ(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["vllm-native", "lmcache", "dynamo-kvbm", "sglang-hicache"]
    command = ["compare", "mooncake-conversation", "--vary", f"stack={','.join(names)}", "--json"]
    assert cli.main([*command, "--set", "workload.limit=1500"]) == 0
    found = json.loads(capsys.readouterr().out)
    summaries = {variant["name"]: variant["summary"] for variant in found["variants"]}
    assert list(summaries) == names
    tiers = {name: summary["tiers"] for name, summary in summaries.items()}
    parts = {name: summary["ttft_parts_s"] for name, summary in summaries.items()}
    # The array's index is shared by vLLM's file tier and HiCache's storage, and not by the other two.
    assert {name: rows["fabric"]["hit_tokens"] > 0 for name, rows in tiers.items()} == {
        "vllm-native": True,
        "lmcache": False,
        "dynamo-kvbm": False,
        "sglang-hicache": True,
    }
    assert tiers["dynamo-kvbm"]["nvme"]["write_bytes"] < 0.5 * tiers["lmcache"]["nvme"]["write_bytes"]
    assert parts["dynamo-kvbm"]["compute"] > max(parts["vllm-native"]["compute"], parts["sglang-hicache"]["compute"])
    assert parts["vllm-native"]["load"] > parts["lmcache"]["load"] > parts["dynamo-kvbm"]["load"]


@cache
def of_text(text: str, *overrides: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(text, encoding="utf-8")
        summary = simulate(load_scenario(str(file), overrides=list(overrides))).summary()
    assert summary["requests"]["completed"] == summary["requests"]["submitted"]
    return summary


def run(stack: str, *overrides: str) -> dict[str, Any]:
    return of_text(IN_TURN, f"stack={stack}", *overrides)


def part(name: str, stack: str, *overrides: str) -> float:
    return float(run(stack, *overrides)["ttft_parts_s"][name])


def tier(figure: str, name: str, stack: str, *overrides: str) -> float:
    return float(run(stack, *overrides)["tiers"][name][figure])


# What makes TTFT differ ----------------------------------------------------------------------------------------------


def test_lmcache_stops_the_batch_and_the_others_do_not() -> None:
    longest = {name: run(name)["itl_s"]["max"] for name in ("lmcache", "vllm-native", "dynamo-kvbm", "sglang-hicache")}
    assert longest.pop("lmcache") > 2 * max(longest.values())


def test_load_is_the_part_that_tells_the_stacks_apart() -> None:
    """32 chunks at once, one thread a request, block by block, and one thread for everybody."""
    load = {name: part("load", name) for name in ("lmcache", "vllm-native", "sglang-hicache")}
    assert load["lmcache"] < load["vllm-native"] < load["sglang-hicache"]
    # Alone, one thread is one thread: 1.07 GB at 1 GB/s and the software's time, against 32 chunks at once.
    alone = {name: part("load", name, ALONE) for name in load}
    assert alone["sglang-hicache"] == pytest.approx(alone["vllm-native"], rel=0.1)
    assert alone["lmcache"] < 0.3 * alone["vllm-native"]
    # Two of three requests load; the first computes.
    assert alone["sglang-hicache"] == pytest.approx(2 / 3 * 8192 * 131072 / 1e9, rel=0.01)


def test_dynamo_computes_what_its_filter_kept_from_the_disk() -> None:
    assert part("compute", "dynamo-kvbm", ALONE) > 1.5 * part("compute", "lmcache", ALONE)
    assert tier("hit_tokens", "nvme", "dynamo-kvbm") < 0.6 * tier("hit_tokens", "nvme", "lmcache")
    without = "tiers.nvme.admission=null"
    assert part("compute", "dynamo-kvbm", ALONE, without) == pytest.approx(part("compute", "lmcache", ALONE), rel=0.01)


def test_a_batch_waits_for_hicache_layer_by_layer_and_for_trtllm_at_admission() -> None:
    """With all in memory, HiCache hides loads behind the forward pass, and TensorRT-LLM does not."""
    big = ["tiers.dram.capacity=60 GB", ALONE]
    assert tier("hit_tokens", "dram", "sglang-hicache", *big) == tier("hit_tokens", "dram", "trtllm", *big) > 0
    whole = part("load", "sglang-hicache", *big, "transfer.layerwise=false")
    assert part("load", "sglang-hicache", *big) < 0.7 * whole
    assert part("load", "trtllm", *big) == pytest.approx(whole, rel=0.05)


def test_trtllm_pays_for_the_copy_when_it_needs_the_room() -> None:
    """Write-back is on the way of who needs the room; write-through has long ended then."""
    assert part("queue", "trtllm", ALONE) > 0.05
    assert part("queue", "trtllm", ALONE, "tiers.dram.placement=write-through") < 0.001


def test_mooncake_reads_many_pieces_and_hides_them() -> None:
    others = ("lmcache", "lmcache-mp", "vllm-native", "sglang-hicache")
    assert part("load", "mooncake", ALONE) < min(part("load", name, ALONE) for name in others)


# What users report ---------------------------------------------------------------------------------------------------


def test_serial_reads_take_as_much_longer_as_there_are_chunks() -> None:
    """One chunk of 32 MiB at a time gets one stream's 1 GB/s (LMCache before pull request 3961)."""
    load_s = run("lmcache-serial", ALONE)["load_by_tier_s"]["nvme"]
    assert load_s == pytest.approx(2 / 3 * 32 * (256 * 131072 / 1e9 + 50e-6), rel=0.03)  # then the copy into HBM
    assert load_s > 4 * run("lmcache", ALONE)["load_by_tier_s"]["nvme"]


def test_a_trace_with_large_blocks_is_read_in_the_stacks_pieces() -> None:
    """Residency in chunks of 512 tokens, as of Mooncake's trace, takes one thread as long as in blocks of 16."""
    coarse = "engine.chunk_tokens=512"
    blocks = part("load", "vllm-native", ALONE)
    assert part("load", "vllm-native", ALONE, coarse) == pytest.approx(blocks, rel=1e-3)
    assert part("load", "vllm-native", ALONE, coarse, "transfer.split_chunks=false") < 0.97 * blocks


def test_one_io_thread_caps_hicaches_third_tier() -> None:
    """Four clients get no more out of the drive than one does: about a stream's 1 GB/s; LMCache gets the drive's."""

    def rate(stack: str, *overrides: str) -> float:
        found = run(stack, *overrides)
        return float(found["tiers"]["nvme"]["read_bytes"] / found["makespan_s"])

    assert rate("sglang-hicache") < 1e9
    assert rate("sglang-hicache") > 0.7e9  # and the thread is hardly ever idle
    faster = ["tiers.nvme.device=nvme-gen5"]
    assert rate("sglang-hicache", *faster) == pytest.approx(rate("sglang-hicache"), rel=0.02)
    assert rate("sglang-hicache", "transfer.loads_in_flight=null") > 1.5 * rate("sglang-hicache")
    assert run("sglang-hicache")["itl_s"]["max"] < 0.5 * run("lmcache-serial")["itl_s"]["max"]  # nobody else waits


def test_hicaches_prefetch_policies_trade_waiting_for_computing() -> None:
    """From a drive that takes a second a context, which this GPU computes in 0.3 s: the less it waits, the better."""
    hicache = "transfer.prefetch.hicache"
    patience = [f"{hicache}.timeout_s=0.2", f"{hicache}.timeout_per_1024_tokens_s=0"]
    waits, gives_up, starts = (
        run("sglang-hicache", ALONE, f"{hicache}.policy={policy}", *patience)
        for policy in ("wait_complete", "timeout", "best_effort")
    )
    assert waits["ttft_s"]["mean"] > gives_up["ttft_s"]["mean"] > starts["ttft_s"]["mean"]
    # The same thread reads the same bytes as the loads of the profile do, before the request is admitted.
    assert waits["ttft_parts_s"]["queue"] == pytest.approx(part("load", "sglang-hicache", ALONE), rel=0.01)
    # Where computing takes longer than the drive, waiting is better.
    waits, starts = (
        run("sglang-hicache", ALONE, f"{hicache}.policy={policy}", "cluster.accelerator=h20-96gb")
        for policy in ("wait_complete", "best_effort")
    )
    assert waits["ttft_s"]["mean"] < starts["ttft_s"]["mean"]


def test_a_file_tier_without_admission_fills_the_disk() -> None:
    """Each context once: write-through stores what nobody asks for again, a filter of two uses nothing."""
    once = ["workload.closed_loop.requests=24", "tiers.nvme.capacity=20 GB"]
    for name in ("lmcache", "lmcache-fs", "lmcache-mp", "vllm-native", "sglang-hicache", "mooncake"):
        found = run(name, *once)["tiers"]["nvme"]
        assert found["peak_used_bytes"] > 0.99 * found["capacity_bytes"], name
    assert tier("write_bytes", "nvme", "dynamo-kvbm", *once) == 0
    assert tier("write_bytes", "nvme", "vllm-native", *once, "tiers.nvme.admission=frequency") == 0


def test_fs_never_evicts() -> None:
    """A full fs:// keeps its first contexts; LMCache's own disk backend keeps the last."""
    small = ["tiers.nvme.capacity=5 GB", ALONE]
    found = run("lmcache-fs", *small)
    assert found["tiers"]["nvme"]["evicted_bytes"] == 0
    assert found["tiers"]["nvme"]["refused_bytes"] > 0
    assert any("were not stored in nvme" in warning for warning in found["warnings"])
    assert tier("evicted_bytes", "nvme", "lmcache", *small) > 0
    # Contexts that come round in turn: what never goes is hit, what was used longest ago is not.
    assert tier("hit_tokens", "nvme", "lmcache-fs", *small) > 0.1 * 48 * 8192
    assert tier("hit_tokens", "nvme", "lmcache", *small) == 0


def test_evictions_of_one_file_at_a_time_make_stores_wait() -> None:
    """With a slow unlink, a full disk that was quick enough while it was empty delays what waits for its stores."""
    full = ["tiers.nvme.capacity=5 GB", "tiers.dram.placement=none", ALONE]
    slow = "transfer.eviction_software=20 ms"
    waits_s = run("lmcache", *full, slow)["makespan_s"] - run("lmcache", *full)["makespan_s"]
    evictions = tier("evicted_bytes", "nvme", "lmcache", *full) / (256 * 131072)
    assert waits_s == pytest.approx(evictions * (20e-3 - 100e-6), rel=0.05)
    never_full = run("lmcache", *full, "tiers.nvme.capacity=100 GB")["makespan_s"]
    assert run("lmcache", *full, slow, "tiers.nvme.capacity=100 GB")["makespan_s"] == never_full


@pytest.mark.parametrize(
    ("stack", "same_replica", "other_replica", "after_restart"),
    [("lmcache", True, False, False), ("lmcache-fs", True, True, True), ("vllm-native", True, True, True)],
)
def test_whose_index_knows_what_is_stored(
    stack: str, *, same_replica: bool, other_replica: bool, after_restart: bool
) -> None:
    """Seven contexts go to two replicas by turns: the eighth request is the first one's, at the other replica."""

    def hit(fill: int, again: int, *, restart: bool) -> bool:
        text = TWO_REPLICAS % (fill, str(restart).lower(), again)
        summary = of_text(text, f"stack={stack}", "tiers.dram.placement=none", "tiers.dram.promotion=never")
        return bool(summary["tiers"]["fabric"]["hit_tokens"])

    assert hit(14, 7, restart=False) is same_replica  # both replicas have had each context
    assert hit(7, 7, restart=False) is other_replica
    assert hit(14, 7, restart=True) is after_restart


def test_lmcaches_pool_is_per_worker() -> None:
    """4 GiB a worker are 16 at TP4; the same words give one pool of a node to a server of its own."""
    text = IN_TURN.replace(", scope: node", "")
    four = "cluster.tensor_parallel=4"
    held = {name: of_text(text, f"stack={name}", four)["tiers"]["dram"] for name in ("lmcache", "lmcache-mp")}
    assert held["lmcache"]["capacity_bytes"] == pytest.approx(4 * held["lmcache-mp"]["capacity_bytes"], rel=0.02)


def r3(stack: str, pool: str, *more: str) -> dict[str, Any]:
    overrides = [*R3, f"stack={stack}", f"tiers.dram.capacity={pool}", *more]
    return simulate(load_scenario("r3-fx100-c16", overrides=overrides)).summary()


def test_a_pool_smaller_than_what_is_in_flight_stalls_loads() -> None:
    """Pins and staging share the pool: loads wait for each other in a small one, and a large one heals it."""
    small, large = r3("vllm-native", "2 GiB"), r3("vllm-native", "64 GiB")
    assert small["tiers"]["fx100"]["hit_tokens"] == large["tiers"]["fx100"]["hit_tokens"]  # the same bytes
    assert small["ttft_s"]["p90"] > 3 * large["ttft_s"]["p90"]
    # With room for all of them they share the port and end together; in turn, the first has ended long before the last.
    assert small["ttft_s"]["p90"] > 1.5 * small["ttft_s"]["p50"]
    assert large["ttft_s"]["p90"] < 1.05 * large["ttft_s"]["p50"]


def test_requests_diverge_where_not_even_one_fits_the_pool() -> None:
    """Synchronous loads that pass unstaged: those that are served decode while the rest stall them, up to 64 GB."""
    patient = "transfer.staging_timeout=null"
    small, large = r3("lmcache-fs", "1 GiB", patient), r3("lmcache-fs", "64 GiB", patient)
    assert any("without staging room" in warning for warning in small["warnings"])
    assert not any("without staging room" in warning for warning in large["warnings"])
    assert small["tpot_s"]["p50"] > 3 * large["tpot_s"]["p50"]  # R3: 82 ms against 23 to 27
    assert small["ttft_s"]["p90"] > 1.3 * small["ttft_s"]["p50"]  # R3: 14.4 s against 10.6
    assert large["ttft_s"]["p90"] < 1.05 * large["ttft_s"]["p50"]


# The sessions that were written last, two of which a pool of 4 GiB still holds, all in one step, those two at its end.
LAST = ["workload.phases.c16.wave.first_session=16", "workload.phases.c16.wave.arrival_jitter=0 s"]


def test_a_retrieve_that_finds_no_room_beside_pins_times_out() -> None:
    """fs:// at concurrency 16, 8 a replica: six wait 10 s each for what the look-up of the other two has pinned."""
    warm = ["workload.phases.c16.clear=[]", *LAST]
    failing, small, large = (
        r3("lmcache-fs", pool, *warm, f"engine.kv_load_failure_policy={policy}")
        for policy, pool in (("fail", "4 GiB"), ("recompute", "4 GiB"), ("fail", "64 GiB"))
    )
    assert failing["requests"] == {"submitted": 16, "completed": 4, "rejected": 0, "failed": 12}
    assert 60.0 < failing["ttft_s"]["p50"] < 63.0  # six waits, and the handling of a request
    assert small["requests"]["completed"] == large["requests"]["completed"] == 16
    assert small["tiers"]["fx100"]["failed_loads"] == 12
    assert small["ttft_s"]["p50"] > 60.0
    assert small["ttft_s"]["p90"] > 1.2 * small["ttft_s"]["p50"]
    assert small["tpot_s"]["p50"] > 5 * large["tpot_s"]["p50"]
    assert large["ttft_s"]["p90"] == pytest.approx(large["ttft_s"]["p50"])


def test_pins_that_are_read_first_are_in_nobodys_way() -> None:
    """R3's own wave begins with sessions that the pool has lost: nobody pins, and 4 GiB do as well as 64."""
    small, large = r3("lmcache-fs", "4 GiB"), r3("lmcache-fs", "64 GiB")
    assert small["tiers"]["fx100"]["failed_loads"] == 0
    assert small["ttft_s"] == large["ttft_s"]


def test_block_storage_that_several_nodes_share_is_warned_about() -> None:
    text = TWO_REPLICAS % (1, "false", 1)
    apart = "cluster.replicas_per_node=1"

    def warned(*overrides: str) -> bool:
        return any("gives out block devices" in warning for warning in of_text(text, *overrides)["warnings"])

    assert warned(apart, "stack=lmcache-fs")
    assert not warned("stack=lmcache-fs")  # one node
    assert not warned(apart)  # nobody says that it is mounted
    assert not warned(apart, "stack=lmcache-fs", "tiers.fabric.device=weka-amg")  # a file system of its own
