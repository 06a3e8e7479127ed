"""`kvtier compare`: variants of one scenario side by side, and which of their differences are more than noise."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from models.errors import InputError
from scenarios.commands.economics import print_compared_economics
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_pairs, print_table
from scenarios.comparison import Comparison, compare, load_variants
from scenarios.comparison.comparing import Compared
from scenarios.comparison.intervals import CONFIDENCE
from scenarios.comparison.metrics import metric_text
from scenarios.comparison.saved import check_target, save_into
from scenarios.comparison.wording import FIGURES, difference_cell
from scenarios.figure_texts import share
from scenarios.runner import available_cores
from scenarios.whole_folders import whole_folder

_PARTS: Final = tuple((f"ttft_parts_s.{part}", part) for part in ("queue", "load", "compute", "other"))
_PICTURES: Final = (".pdf", ".png", ".svg")


def compare_scenario(
    name_or_path: str,
    *,
    vary: Sequence[str],
    variants: Sequence[str],
    overrides: Sequence[str],
    trace: str | None,
    seeds: int,
    seed: int | None,
    jobs: int | None,
    plot: str | None,
    economics: bool,
    out: str | None,
    as_json: bool,
) -> int:
    """Run the variants, print and save them; return 1 if one failed, else 0. Raises KvTierError."""
    picture = None if plot is None else _picture(plot)
    if out is not None:
        check_target(Path(out))
    found = load_variants(name_or_path, vary=vary, variants=variants, overrides=overrides, trace=trace, seed=seed)
    if economics:
        found = [replace(variant, scenario=variant.scenario.with_economics()) for variant in found]
    jobs = available_cores() if jobs is None else jobs
    with ExitStack() as saving:
        folder = None if out is None else saving.enter_context(whole_folder(Path(out)))
        with Progress(found[0].scenario.name, unit=f"of {len(found) * seeds} runs", eta=True) as progress:
            comparison = compare(found, seeds=seeds, jobs=jobs, progress=progress, keep=folder)
        if folder is not None:
            save_into(comparison, folder)
    for warning in comparison.warnings():
        sys.stderr.write(f"kvtier: warning: {warning}\n")
    for failed in comparison.failed:
        sys.stderr.write(f"kvtier: {failed.variant.name}: {' '.join(str(failed.error).split())}\n")
    if as_json:
        print_json(comparison.to_dict())
    else:
        _print(comparison)
    if picture is not None and comparison.first is not None:
        from scenarios.comparison.plot import draw

        draw(comparison).savefig(picture)
        sys.stderr.write(f"kvtier: plot saved to {picture}\n")
    if out is not None:
        sys.stderr.write(f"kvtier: saved to {out}\n")
    return 1 if comparison.failed else 0


def _picture(plot: str) -> Path:
    """Return where the plot goes; InputError, said before the runs, where none can be."""
    path = Path(plot)
    if path.suffix.lower() not in _PICTURES:
        raise InputError(f"--plot {plot}: must end in {', '.join(_PICTURES)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot {plot}: there is no folder {path.parent}")
    return path


def _print(comparison: Comparison) -> None:
    ran = [found for found in comparison.variants if found.error is None]
    rows = [_row(found, [metric for metric, _ in FIGURES]) for found in comparison.variants]
    print_table(["variant", *(name for _, name in FIGURES)], rows, title=comparison.title, numbers_from=1)
    if not ran:
        return
    for header, metrics in _tables(ran):
        sys.stdout.write("\n")
        print_table(["variant", *header], [_row(found, metrics) for found in ran], numbers_from=1)
    _print_distances(comparison)
    _print_differences(comparison, ran)
    print_compared_economics(comparison)


def _row(found: Compared, metrics: Sequence[str]) -> list[str]:
    if found.error is not None:
        return [found.variant.name, "failed", *("" for _ in metrics[1:])]
    return [found.variant.name, *(metric_text(metric, found.metrics.get(metric)) for metric in metrics)]


def _tables(ran: Sequence[Compared]) -> list[tuple[list[str], list[str]]]:
    """Return header and metrics of the tables on time and on tiers."""
    mean = ("ttft_s.mean", "TTFT mean")
    tiers = list(dict.fromkeys(tier for found in ran for tier in (found.summary or {})["tiers"]))
    written = [tier for tier in tiers if any(found.metrics.get(f"tiers.{tier}.write_bytes") for found in ran)]
    return [
        ([mean[1], *(name for _, name in _PARTS)], [mean[0], *(metric for metric, _ in _PARTS)]),
        (
            [*(f"hits {tier}" for tier in tiers), *(f"written {tier}" for tier in written)],
            [*(f"tiers.{tier}.hit_ratio" for tier in tiers), *(f"tiers.{tier}.write_bytes" for tier in written)],
        ),
    ]


def _print_distances(comparison: Comparison) -> None:
    if not comparison.distances:
        return
    sys.stdout.write("\n")
    rows = []
    for distance in comparison.distances:
        text = metric_text(distance.metric, distance.distance)
        rows.append([distance.variant, distance.bound, distance.metric, share(distance.share), text])
    print_table(["variant", "bound", "metric", "of the bound", "distance"], rows, numbers_from=3)


def _print_differences(comparison: Comparison, ran: Sequence[Compared]) -> None:
    first = comparison.first
    if first is None or len(ran) < 2:
        return
    sys.stdout.write("\n")
    rows = [
        [name, *(difference_cell(metric, first.metrics.get(metric), by_metric.get(metric)) for metric, _ in FIGURES)]
        for name, by_metric in comparison.differences.items()
    ]
    print_table([f"less {first.variant.name}", *(name for _, name in FIGURES)], rows, numbers_from=1)
    sys.stdout.write("\n")
    print_pairs(
        [
            ("intervals", f"{CONFIDENCE:.0%}, {comparison.method}"),
            ("equal", "0 lies in the interval; ?: there is a difference and no interval"),
        ]
    )
