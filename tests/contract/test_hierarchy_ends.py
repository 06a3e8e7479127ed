"""Whatever tiers a scenario stacks up, each request ends once and the books balance."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.build import simulate
from scenarios.loader import load_scenario

TEXT = """\
name: stacked
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: %(replicas)d, replicas_per_node: %(replicas)d}
transfer:
  {load: %(load)s, layerwise: %(layerwise)s, load_or_recompute: %(choice)s, store: %(store)s, staging: %(staging)s,
  lookup: %(lookup)s, insertion: %(insertion)s, prefetch: %(prefetch)s,
  storage_load: %(storage_load)s, loads_in_flight: %(at_once)s,
  copies_in_flight: %(at_once)s, eviction_software: %(eviction)s, split_chunks: true, chunk_tokens: 64,
  io_process: %(process)s, staging_timeout: %(timeout)s}
engine: {chunk_tokens: 256, kv_load_failure_policy: %(policy)s}
tiers:
  hbm: {capacity: 1.2 GB, structure: %(structure)s}
%(tiers)s
workload:
  closed_loop:
    {concurrency: 4, requests: 40, sessions: 7, prompt_tokens: %(prompt)d, output_tokens: 5, per_replica: true}
"""
PLACEMENTS = [
    "write-through",
    "write-back",
    "none",
    "write-through-selective",
    "{write-through-selective: {uses: 3}}",
]
ADMISSIONS = [
    "null",
    "null",
    "frequency",
    "{frequency: {window_s: 0.05, uses: 1}}",
    "tinylfu",
    "{min-prefix: {min_tokens: 1000}}",
    "break-even",
]
ENCODINGS = [
    "null",
    "null",
    "{format: fp8, encode_bandwidth: 9 GB/s, decode_bandwidth: 5 GB/s}",
    "{format: int4, encode_bandwidth: 9 GB/s, decode_bandwidth: 50 GB/s}",
    "{format: compressed, ratio: 0.137, encode_bandwidth: 1 GB/s, decode_bandwidth: 2 GB/s}",
]


@st.composite
def tiers(draw: st.DrawFn) -> str:
    lines = []
    for name, device in (("dram", "ddr5"), ("cache", "ddr5"), ("nvme", "nvme-gen4"), ("fabric", "fx100")):
        if not draw(st.booleans()) or (name == "cache" and draw(st.booleans())):
            continue
        placement = draw(st.sampled_from(PLACEMENTS))
        exclusive = placement == "write-back" and name != "cache" and draw(st.booleans())
        promotion = "never" if exclusive else draw(st.sampled_from(["always", "never", "second-touch", "null"]))
        lines.append(
            f"  {name}: {{device: {device}, capacity: {draw(st.sampled_from(['40 MB', '200 MB', '600 MB', '3 GB']))}, "
            f"placement: {placement}, on_full: {draw(st.sampled_from(['drop', 'wait']))}, "
            f"promotion: {promotion}, inclusion: {'exclusive' if exclusive else 'inclusive'}, "
            f"index: {draw(st.sampled_from(['process', 'filesystem']))}, "
            f"scope: {draw(st.sampled_from(['replica', 'node', 'shared']))}, "
            f"structure: {draw(st.sampled_from(['hashmap', 'leaf_constrained']))}, "
            + draw(st.sampled_from(["evicts: true", "evicts: false", "watermarks: {high: 0.7, low: 0.3}"]))
        )
        if name != "cache":
            lines[-1] += (
                f", admission: {draw(st.sampled_from(ADMISSIONS))}, encoding: {draw(st.sampled_from(ENCODINGS))}, "
                f"max_store_backlog: {draw(st.sampled_from(['null', 'null', '0 B', '100 MB']))}, "
                f"load_failure_probability: {draw(st.sampled_from([0, 0, 0.2, 1]))}"
            )
        if name == "cache":
            lines[-1] = lines[-1].replace("watermarks: {high: 0.7, low: 0.3}", "evicts: true") + ", page_cache_of: nvme"
        elif name != "dram":
            lines[-1] += f", gds: {draw(st.sampled_from(['true', 'false', 'false']))}"
        lines[-1] += "}"
    if not any("nvme:" in line for line in lines) or any("nvme" in line and "gds: true" in line for line in lines):
        lines = [line for line in lines if "page_cache_of" not in line]
    return "\n".join(lines)


@pytest.mark.parametrize("replicas", [1, 2])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    below=tiers(),
    choices=st.fixed_dictionaries(
        {
            "load": st.sampled_from(["sync", "async", "layerwise"]),
            "prefetch": st.sampled_from(
                [
                    "none",
                    "at-enqueue",
                    "{look-ahead: {requests: 2}}",
                    "{next-turn: {after_s: 1 ms}}",
                    "{hicache: {timeout_s: 2 ms, min_tokens: 0, batch_tokens: 512}}",
                    "{hicache: {policy: best_effort, batch_tokens: 256}}",
                    "{hicache: {policy: wait_complete, batch_tokens: 512, under_way_bytes: 2 GB}}",
                ]
            ),
            "choice": st.sampled_from(["always-load", "always-recompute", "quicker", "two-ended"]),
            "store": st.sampled_from(["sync", "async"]),
            "staging": st.sampled_from(["pipelined", "store-and-forward"]),
            "lookup": st.sampled_from(["any", "grouped"]),
            "insertion": st.sampled_from(["head-first", "tail-first"]),
            "storage_load": st.sampled_from(["null", "sync", "async"]),
            "at_once": st.sampled_from(["null", "1", "2"]),
            "eviction": st.sampled_from(["0 s", "3 ms"]),
            "process": st.sampled_from(["worker", "replica"]),
            "structure": st.sampled_from(["hashmap", "leaf_constrained"]),
            "prompt": st.sampled_from([300, 2000, 4500]),
            "policy": st.sampled_from(["recompute", "fail"]),
            "timeout": st.sampled_from(["null", "null", "0 s", "2 ms"]),
        }
    ),
)
def test_every_request_ends_whatever_the_tiers(
    tmp_path: Path, replicas: int, below: str, choices: dict[str, str | int]
) -> None:
    path = tmp_path / "stacked.yaml"
    if choices["load"] == "layerwise":
        choices |= {"load": "sync", "layerwise": "true", "staging": "pipelined"}
    else:
        choices |= {"layerwise": "false"}
    if choices["load"] == "sync" and choices["choice"] == "two-ended":
        choices |= {"choice": "always-load"}
    if "dram:" not in below:
        choices |= {"prefetch": "none"}
    path.write_text(TEXT % (choices | {"tiers": below, "replicas": replicas}), encoding="utf-8")
    # The run itself checks that each tier's chunks, pins, reservations and waiters, and each link's bytes, add up.
    result = simulate(load_scenario(str(path)))
    summary = result.summary()
    requests, reads_fail = summary["requests"], sum(tier["failed_loads"] for tier in summary["tiers"].values())
    assert requests["completed"] + requests["failed"] == requests["submitted"] == 40 * replicas
    # A prefetch may fail beside loads that do not; a load that does ends its request, and others that share it.
    assert not requests["failed"] or (reads_fail and choices["policy"] == "fail")
    assert requests["failed"] or not reads_fail or choices["policy"] != "fail" or choices["prefetch"] != "none"
    for name, tier in summary["tiers"].items():
        assert tier["peak_used_bytes"] <= tier["capacity_bytes"], name
    moved, tier_names = result.table("transfers"), list(summary["tiers"])
    for name in set(tier_names) & {"nvme", "fabric"}:
        # What a drive has taken in and given out is what transfers carried, in its own encoding.
        own = moved["tier"] == tier_names.index(name)
        for kind, figure in enumerate(("read_bytes", "write_bytes")):
            assert moved["n_bytes"][own & (moved["kind"] == kind)].sum() == summary["tiers"][name][figure], name
