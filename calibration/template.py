"""Files to begin a calibration of one's own with: measured figures as CSV, and what to fit to them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from calibration.measurements import COLUMNS
from calibration.metrics import NAMES
from models.errors import InputError

_MEASURED: Final = f"""\
# Measured figures, one a row. Replace these examples.
# source: who measured, where and when
# licence: how others may use the figures
# id: any unique name. group: rows that are reported together. scenario: a shipped name, or the path of yours (seen from
# the folder where you run kvtier); settings: what this row changes in it, key=value; key=value.
# metric: {", ".join(NAMES[:9])},
#   {", ".join(NAMES[9:])}.
# unit: s or ms; tok/s; GB/s, or iostat GB/s where kB of iostat were divided by 1e6 (kB there are 1024 B).
# noise: relative standard deviation where it is not that of fit.yaml. client_s: seconds that the measured wall clock
# runs before the first request (throughput only). note: what else is to be said.
{",".join(COLUMNS)}
array-c8-ttft,array,r2-fx100-c8,,ttft_p50,7.5,s,,,
array-c8-rate,array,r2-fx100-c8,,throughput,57,tok/s,,,
array-c8-busy,array,r2-fx100-c8,,disk_busy_mean,7.5,iostat GB/s,,,
array-c32-ttft,array,r2-fx100-c8,run.measure=c32,ttft_p50,26,s,,,
recompute-ttft,gpu,r2-recompute-c16,,ttft_p50,149,s,0.1,,a single run
"""

_FIT: Final = """\
# What to fit to measured.csv: kvtier calibrate fit.yaml -o mine.yaml; then `parameters: mine.yaml` in a scenario.
name: mine
description: our array and our GPUs
data: measured.csv
noise: 0.05      # relative standard deviation of a measurement; repeat some to know it
seeds: 5
# Each key is one of a scenario (engine.KEY, transfer.KEY) or a figure of a catalogue entry (figures.ENTRY.FIGURE; see
# `kvtier show storage fx100`). prior: what you believe without the data; sd: how firmly, of its logarithm (0.1: 10 %).
parameters:
  figures.fx100.port_delivered_fraction: {prior: 0.85, sd: 0.1, bounds: [0.5, 1.0], why: "datasheet of the network"}
  figures.mi308x.fp8_efficiency: {prior: 0.5, sd: 1.0, bounds: [0.02, 1.0], why: "a wide guess"}
  engine.request_latency: {unit: s, prior: 0.3, sd: 0.7, bounds: [0.01, 3.0], why: "order of magnitude"}
"""


def write_template(folder: Path) -> list[Path]:
    """Write fit.yaml and measured.csv into *folder* and return their paths; InputError where one is there already."""
    texts = {folder / "measured.csv": _MEASURED, folder / "fit.yaml": _FIT}
    for path in texts:
        if path.exists():
            raise InputError(f"--template: {path} is there already; it is not overwritten")
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
