"""`kvtier sweep`: a scenario at many points, as one table; what was done before is taken over."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from models.errors import InputError
from models.units import format_seconds
from scenarios.commands.plots import check_plot_file
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_table
from scenarios.comparison.metrics import metric_text
from scenarios.sweeping import Point, Sample, SweepResult, load_points, run_points
from scenarios.sweeping.table import refuse_foreign

_FIGURES: Final = (
    ("ttft_s.p50", "TTFT p50"),
    ("ttft_s.p90", "TTFT p90"),
    ("ttft_s.p99", "TTFT p99"),
    ("itl_s.p99", "ITL p99"),
    ("throughput.output_tokens_per_s", "tokens/s out"),
    ("hit_ratio_tokens", "hit ratio"),
)
# The file has all; more rows than fit a screen say nothing there.
_SHOWN_ROWS: Final = 40
_SHOWN_ERRORS: Final = 5


def sweep_scenario(
    name_or_path: str,
    *,
    grid: Sequence[str],
    rows: str | None,
    sample: Sample | None,
    trace: str | None,
    overrides: Sequence[str],
    seed: int | None,
    jobs: int | None,
    dask: str | None,
    out: str,
    resume: bool,
    plot: str | None,
    as_json: bool,
) -> int:
    """Run all points, write the table and print it; return 1 if a point failed, else 0. Raises KvTierError."""
    began_s = time.monotonic()
    _check(out, plot, jobs=jobs, dask=dask, trace=trace)
    with Progress(f"{name_or_path}: checking", unit="points", eta=True) as progress:
        points = load_points(
            name_or_path,
            grid=grid,
            rows=rows,
            sample=sample,
            overrides=overrides,
            trace=trace,
            seed=seed,
            progress=progress,
        )
    name = points[0].scenario.name
    ended = 0

    def report(fraction: float | None, count: int) -> None:
        nonlocal ended
        ended = count
        progress(fraction, count)

    runs = len({point.key for point in points})
    try:
        with Progress(name, unit=f"of {runs} runs", eta=True) as progress:
            result = run_points(points, jobs=jobs, dask=dask, out=out, resume=resume, progress=report)
    except KeyboardInterrupt:
        sys.stderr.write(f"kvtier: {ended} of {runs} runs are kept, and --resume takes them over\n")
        raise
    wall_s = time.monotonic() - began_s
    _say_what_was_found(result)
    if as_json:
        print_json(_as_json(result, out, wall_s))
    else:
        _print(points, result)
        sys.stdout.write(f"\n{_summary_line(result, wall_s)}; {out}\n")
    if plot is not None and result.failed < len(result):
        result.plot.overview().savefig(plot)
        sys.stderr.write(f"kvtier: plot saved to {plot}\n")
    return 1 if result.failed else 0


def _check(out: str, plot: str | None, *, jobs: int | None, dask: str | None, trace: str | None) -> None:
    """Raise InputError for what can be known before the scenario is read."""
    refuse_foreign(Path(out))
    if plot is not None:
        check_plot_file(Path(plot))
    if dask is not None and jobs is not None:
        raise InputError("--jobs is for processes of this machine; how many a Dask cluster has, its workers say")
    if dask is not None and trace == "-":
        raise InputError("--trace -: workers of a Dask cluster cannot read this standard input; write it to a file")


def _say_what_was_found(result: SweepResult) -> None:
    if result.dropped:
        sys.stderr.write(
            f"kvtier: {result.dropped} lines of the journal were cut off or damaged; their runs were redone\n"
        )
    if result.strangers:
        sys.stderr.write(f"kvtier: the journal also holds {result.strangers} runs of other points; they stay there\n")
    pairs = zip(result.column("point"), result.column("error"), strict=True)
    errors = [(point, error) for point, error in pairs if error is not None]
    for point, error in errors[:_SHOWN_ERRORS]:
        sys.stderr.write(f"kvtier: point {point}: {error}\n")
    if len(errors) > _SHOWN_ERRORS:
        sys.stderr.write(f"kvtier: {len(errors) - _SHOWN_ERRORS} more points failed; the column error says why\n")
    _say_warnings(result)


def _say_warnings(result: SweepResult) -> None:
    """Say what all points warn of, and how many of them of more: each may have a number of its own."""
    if result.failed == len(result):
        return
    said = [text.splitlines() for text in result.column("warnings") if text is not None]
    common = [line for line in said[0] if all(line in lines for lines in said)]
    for warning in common:
        sys.stderr.write(f"kvtier: warning: {warning}\n")
    more = sum(len(lines) > len(common) for lines in said)
    if more:
        sys.stderr.write(
            f"kvtier: warning: {more} points warn of something of their own; the column warnings says what\n"
        )


def _as_json(result: SweepResult, out: str, wall_s: float) -> dict[str, object]:
    return {
        "scenario": result.name,
        "out": out,
        "keys": list(result.keys),
        "points": len(result),
        "ok": len(result) - result.failed,
        "failed": result.failed,
        "taken_over": result.taken_over,
        "wall_s": wall_s,
    }


def _summary_line(result: SweepResult, wall_s: float) -> str:
    number = len(result)
    parts = [f"{number} point{'s' * (number != 1)}", f"{number - result.failed} ok", f"{result.failed} failed"]
    origin = f"{result.taken_over} taken over, {number - result.taken_over} run"
    return f"{', '.join(parts)}; {origin}; {format_seconds(wall_s)}"


def _print(points: Sequence[Point], result: SweepResult) -> None:
    keys = result.keys
    columns = [result.column(figure) if figure in result.table.column_names else [] for figure, _ in _FIGURES]
    status = result.column("status")
    rows = []
    for at, point in enumerate(points[:_SHOWN_ROWS]):
        named = [point.written.get(key, "") for key in keys]
        if status[at] == "ok":
            figures = [metric_text(figure, column[at]) for (figure, _), column in zip(_FIGURES, columns, strict=True)]
        else:
            figures = ["failed", *("" for _ in columns[1:])]
        rows.append([str(at), *named, *figures])
    header = ["point", *_short(keys), *(name for _, name in _FIGURES)]
    print_table(header, rows, title=result.name, numbers_from=0)
    if len(points) > _SHOWN_ROWS:
        sys.stdout.write(f"... and {len(points) - _SHOWN_ROWS} more\n")


def _short(keys: Sequence[str]) -> list[str]:
    from scenarios.comparison.variants import short_names

    names = short_names(keys)
    return [names[key] for key in keys]
