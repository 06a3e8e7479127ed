"""The prefix-aware router sends a conversation back to where its KV is, although the array would serve it anywhere."""

from pathlib import Path

from scenarios.build import simulate
from scenarios.loader import load_scenario

TWO = """\
name: two
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: 2, router: %s}
tiers:
  hbm: {capacity: 10 GB}
  dram: {device: ddr5, capacity: 50 GB}
  fabric: {device: fx100, capacity: 10 TB}
workload: {synthetic: {generator: chat, requests: 300, session_rate_per_s: 0.2}}
"""


def fabric_hits(tmp_path: Path, router: str) -> int:
    path = tmp_path / f"{router}.yaml"
    path.write_text(TWO % router)
    return int(simulate(load_scenario(str(path))).summary()["tiers"]["fabric"]["hit_tokens"])


def test_prefix_aware_routing_reads_less_from_the_shared_array(tmp_path: Path) -> None:
    assert fabric_hits(tmp_path, "prefix-aware") < 0.5 * fabric_hits(tmp_path, "round-robin")
