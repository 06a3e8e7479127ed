"""A scenario of a few milliseconds and a file of fitted parameters for it, to draw from."""

from pathlib import Path

# One column and row of the covariance each: 20, 10, 10 and 5 %, the first two going together.
FITTED = """\
name: mine
noise: 0.05
parameters:
  engine.request_latency: {value: 500 ms, spread: 0.2, bounds: 1 to 60000 ms}
  figures.mi308x.host_link_delivered_fraction: {value: 0.5, spread: 0.1, bounds: 0.05 to 1}
  figures.fx100.port_delivered_fraction: {value: 0.3, spread: 0.1, bounds: 0.1 to 1}
  transfer.request_software: {value: 0.02 s, spread: 0.05}
covariance:
  order: [engine.request_latency, figures.mi308x.host_link_delivered_fraction, figures.fx100.port_delivered_fraction,
          transfer.request_software]
  matrix:
  - [0.04, 0.012, 0, 0]
  - [0.012, 0.01, 0, 0]
  - [0, 0, 0.01, 0]
  - [0, 0, 0, 0.0025]
"""
SCENARIO = """\
name: storm
llm: llama-3.1-8b
cluster: {accelerator: mi308x, nic: null}
stack: lmcache
parameters: fitted.yaml
tiers:
  hbm: {}
  dram: {device: ddr5, capacity: 4 GiB, scope: worker}
  fx100: {device: fx100, ports: 1, drives: 8, capacity: 1 TB, scope: shared}
engine: {prefix_caching: false}
workload:
  phases:
    - {name: fill, closed_loop: {concurrency: 1, requests: 8, prompt_tokens: 8000, output_tokens: 1}}
    - {name: storm, clear: [dram], wave: {requests: 8, prompt_tokens: 8000, output_tokens: 8, arrival_jitter: 200 ms}}
run: {measure: storm}
"""


def write_storm(folder: Path, fitted: str = FITTED, scenario: str = SCENARIO) -> str:
    """Write both files and return the path of the scenario."""
    (folder / "fitted.yaml").write_text(fitted, encoding="utf-8")
    path = folder / "storm.yaml"
    path.write_text(scenario, encoding="utf-8")
    return str(path)
