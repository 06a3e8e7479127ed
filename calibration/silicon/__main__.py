"""``python -m calibration.silicon fit --csv FILE``: fit step times and say how far they hold."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from calibration.silicon.efficiencies import write_entry
from calibration.silicon.rows import ENGINES, Row, read_rows
from calibration.silicon.splits import SPLITS, SplitResult, as_json, engines_of, run_split, table
from models.errors import InputError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calibration.silicon")
    fit = parser.add_subparsers(required=True).add_parser("fit", help="fit efficiencies and report errors")
    fit.add_argument("--csv", required=True, help="the measurements (silicon.csv)")
    fit.add_argument("--engine", action="append", choices=ENGINES, help="only these engines")
    fit.add_argument("--split", action="append", choices=tuple(SPLITS), help="only these splits")
    fit.add_argument("--rows-per-group", type=int, default=12, help="most rows of a group that are fitted")
    fit.add_argument("--jobs", type=int, help="processes (default: one a core)")
    fit.add_argument("--json", type=Path, help="write fits, groups and rows here")
    fit.add_argument("--out", type=Path, help="write fitted accelerator entries to this folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        read = read_rows(given.csv)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(read.left_out.items()))
    sys.stderr.write(f"{len(read.rows)} rows; left out: {left_out or 'none'}\n")
    results = []
    for engine in given.engine or engines_of(read.rows):
        for split in given.split or SPLITS:
            results.append(_timed(engine, split, given, read.rows))
            sys.stdout.write(table(results[-1:]) + "\n")
            sys.stdout.flush()
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(results), indent=1) + "\n", encoding="utf-8")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        for result in results:
            for accelerator in sorted({row.accelerator for row in result.rows}):
                name = f"{accelerator}-{result.engine}-{result.split}.yaml"
                write_entry(given.out / name, accelerator, result.fitted.values)
    return 0


def _timed(engine: str, split: str, given: argparse.Namespace, rows: Sequence[Row]) -> SplitResult:
    began_s = time.monotonic()

    def log(line: str) -> None:
        sys.stderr.write(f"{engine}, {split}: {line} ({time.monotonic() - began_s:.0f} s)\n")
        sys.stderr.flush()

    result = run_split(engine, split, rows, rows_per_group=given.rows_per_group, jobs=given.jobs, log=log)
    for name, value in result.fitted.values.items():
        log(
            f"{name} {value:.4g} +- {100 * result.fitted.deviations[name]:.0f} %, "
            f"{100 * result.fitted.from_data[name]:.0f} % from data"
        )
    return result


if __name__ == "__main__":
    sys.exit(main())
