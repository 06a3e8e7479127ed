"""One law for one chunk in flight and for several, on a machine that no parameter has seen.

LMCache pull request 2850 (hb-lee, 2026-03-23): 20K tokens of Qwen2.5-7B read from a local disk, one chunk after another
and through a pool of 4 threads: 2.300 -> 2.7573 GB/s, and a TTFT of 0.640 -> 0.555 s. The drive is not named. A ceiling
between the two rates means PCIe Gen3, so the catalogue's drive of that class stands in for it.
"""

from pathlib import Path

import pytest
import yaml
from scipy.optimize import brentq

from scenarios.build import simulate
from scenarios.loader import load_scenario

SERIAL_BYTES_PER_S, PARALLEL_BYTES_PER_S = 2.300e9, 2.7573e9
SERIAL_TTFT_S, PARALLEL_TTFT_S = 0.640, 0.555
WAVE = {"requests": 1, "prompt_tokens": 20_000, "output_tokens": 1}
SCENARIO = {
    "base": "r1-serial",
    "llm": "qwen2.5-7b",
    "parameters": None,
    "tiers": {"fx100": None, "nvme": {"device": "nvme-gen3", "capacity": "1 TB", "scope": "node"}},
    "workload": {
        "phases": [
            {"name": "populate", "closed_loop": {**WAVE, "concurrency": 1}},
            {"name": "cold", "clear": ["dram"], "wave": WAVE},
        ]
    },
}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("law") / "machine.yaml"
    path.write_text(yaml.safe_dump(SCENARIO), encoding="utf-8")
    return str(path)


def retrieved(scenario: str, stream_bytes_per_s: float, reads_in_flight: int) -> tuple[float, float]:
    """Return what LMCache logs as the rate of a retrieve [B/s], and the TTFT [s]."""
    settings = {"read_stream_bandwidth": f"{stream_bytes_per_s} B/s", "reads_in_flight": reads_in_flight}
    overrides = [f"transfer.{key}={value}" for key, value in settings.items()]
    result = simulate(load_scenario(str(Path(scenario)), overrides=overrides))
    transfers, requests = result.table("transfers"), result.table("requests")
    cold = transfers["request_id"] == 1
    moved_s = (transfers["finished_at_s"] - transfers["started_at_s"])[cold].sum()
    return float(transfers["n_bytes"][cold].sum() / moved_s), float(requests["ttft_s"][1])


def test_four_reads_in_flight_are_predicted_from_one(scenario: str) -> None:
    stream = brentq(lambda rate: retrieved(scenario, rate, 1)[0] - SERIAL_BYTES_PER_S, 1e9, 9e9, rtol=1e-4)
    serial, parallel = (retrieved(scenario, stream, reads) for reads in (1, 4))
    assert serial[0] == pytest.approx(SERIAL_BYTES_PER_S, rel=0.01)
    assert parallel[0] == pytest.approx(PARALLEL_BYTES_PER_S, rel=0.15)
    assert serial[1] - parallel[1] == pytest.approx(SERIAL_TTFT_S - PARALLEL_TTFT_S, rel=0.15)
