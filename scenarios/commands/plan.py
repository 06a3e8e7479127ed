"""`kvtier plan`: the least of some quantities with which a scenario meets its limits, printed."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from models.units import format_bytes, format_rate, format_seconds
from scenarios.commands.plan_sureness import print_odds, sure_line
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_pairs, print_table
from scenarios.commands.uncertainty import warn_of_failed
from scenarios.figure_texts import on_drives
from scenarios.planning.answer import Plan
from scenarios.planning.free import Quantity
from scenarios.planning.limits import figure_text
from scenarios.planning.margins import Margin
from scenarios.planning.planner import plan, with_uncertainty
from scenarios.planning.saved import check_target, save_plan
from scenarios.planning.trials import Point
from scenarios.uncertainty.draws import check_draws

_LINKS_SHOWN: Final = 8


def plan_scenario(
    name_or_path: str,
    *,
    slo: Sequence[str],
    solve: Sequence[str],
    overrides: Sequence[str],
    trace: str | None,
    seed: int | None,
    prices: Sequence[str],
    consider: Sequence[str] | None,
    precision: float,
    uncertainty: int | None,
    jobs: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Size a scenario, print the answer, feasible or not, and save it; warnings go to stderr. Raises KvTierError."""
    if uncertainty is not None:
        check_draws(uncertainty, "--uncertainty")
    if out is not None:
        check_target(Path(out))
    with Progress(f"plan {name_or_path}", unit="runs") as progress:
        found = plan(
            name_or_path,
            slo=slo,
            solve=solve,
            overrides=overrides,
            trace=trace,
            seed=seed,
            prices=prices,
            consider=consider,
            precision=precision,
            jobs=jobs,
            progress=progress,
        )
    if uncertainty is not None:
        with Progress(f"{found.name}, uncertainty", unit="runs", eta=True) as progress:
            found = with_uncertainty(found, uncertainty, jobs=jobs, progress=progress)
        assert found.sure.uncertainty is not None
        warn_of_failed(found.sure.uncertainty.prediction)
    for warning in found.warnings:
        sys.stderr.write(f"kvtier: warning: {warning}\n")
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if out is not None:
        save_plan(found, Path(out))
        sys.stderr.write(f"kvtier: saved to {out}\n")


def _print(found: Plan) -> None:
    print_pairs([*_answer(found), *sure_line(found)], title=found.name)
    print_odds(found)
    _print_points(found)
    _print_front(found)
    _print_needs(found)
    _print_links(found)
    _print_margins(found)
    _print_contexts(found)
    sys.stdout.write("\n")
    print_pairs(_prices(found))


def _answer(found: Plan) -> Iterator[tuple[str, str]]:
    for limit in found.limits:
        if not limit.implied:
            yield "wanted", f"{limit} (reached: {limit.value_text(found.point.figures[limit.figure])})"
    if found.reason is not None:
        yield "infeasible", found.reason
        return
    for quantity in found.quantities:
        value = found.point.values[quantity.key]
        now = "" if quantity.now is None else f" (the scenario has {quantity.text(quantity.now)})"
        yield "answer", f"{quantity.key} = {quantity.text(value)}{now}"
    for key, point in found.beyond.items():
        quantity = next(one for one in found.quantities if one.key == key)
        missed = [limit for limit in found.limits if not limit.is_met(point.figures[limit.figure])]
        reached = ", ".join(f"{limit.figure} {limit.value_text(point.figures[limit.figure])}" for limit in missed)
        yield "not", f"{quantity.text(point.values[key])}: {reached or point.bottleneck}"
    yield "bottleneck", found.bottleneck


def _print_points(found: Plan) -> None:
    sys.stdout.write("\n")
    keys = [quantity.key for quantity in found.quantities]
    # What was run for the margins has other keys too, and stands in their table.
    points = sorted(
        (point for point in found.points if set(point.values) == set(keys)),
        key=lambda point: [point.values[key] for key in keys],
    )
    limits = [limit for limit in found.limits if not limit.implied]
    rows = [
        [
            *_values(found.quantities, point),
            *(limit.value_text(point.figures[limit.figure]) for limit in limits),
            "yes" if point.meets else "no",
            point.bottleneck,
        ]
        for point in points
    ]
    header = [*keys, *(limit.figure for limit in limits), "meets", "bottleneck"]
    print_table(header, rows, title="tried")


def _values(quantities: Sequence[Quantity], point: Point) -> list[str]:
    return [quantity.text(point.values[quantity.key]) for quantity in quantities]


def _print_front(found: Plan) -> None:
    if not found.front:
        return
    sys.stdout.write("\n")
    figure = found.front_figure
    rows = []
    for point, cost in zip(found.front, found.costs, strict=True):
        row = [*_values(found.quantities, point), figure_text(figure, point.figure(figure))]
        rows.append([*row, "yes" if point.meets else "no", "-" if cost is None else f"{cost:,.0f} {found.currency}"])
    keys = [quantity.key for quantity in found.quantities]
    title = f"front of what was tried: cost against {figure}"
    if found.currency is None:
        title = f"front of what was tried: quantities against {figure} (no price in one currency for all of them)"
    print_table([*keys, figure, "meets", "cost"], rows, title=title)


def _print_needs(found: Plan) -> None:
    if not found.needs:
        return
    sys.stdout.write("\n")
    header = [
        "tier",
        "read",
        "write",
        "read IOPS",
        "write IOPS",
        "room",
        "drives",
        "read/GPU",
        "room/GPU",
        "drives/GPU",
    ]
    rows = []
    for tier, need in found.needs.items():
        gpus = found.gpus
        drives = "-" if need.drives is None else f"{need.drives:,} of {need.drives_provided:,} (for {need.drives_for})"
        rows.append(
            [
                tier,
                format_rate(need.read_bytes_per_s),
                format_rate(need.write_bytes_per_s),
                f"{need.read_iops:,.0f}" if need.drives is not None else "-",
                f"{need.write_iops:,.0f}" if need.drives is not None else "-",
                f"{format_bytes(need.capacity_bytes)} of {format_bytes(need.provided_bytes)}"
                f"{on_drives(need.capacity_bytes, need.raw_bytes)}",
                drives,
                format_rate(need.read_bytes_per_s / gpus),
                format_bytes(need.capacity_bytes / gpus),
                "-" if need.drives is None else f"{need.drives / gpus:.3g}",
            ]
        )
    title = f"required of each tier (rates: 99 % of the seconds stay below; GPUs: {found.gpus:,})"
    print_table(header, rows, title=title, numbers_from=1)


def _print_links(found: Plan) -> None:
    links = sorted(found.delivered.items(), key=lambda item: -(item[1]["busy_utilisation"] or 0.0))
    if not links:
        return
    sys.stdout.write("\n")
    rates = ("nominal_bytes_per_s", "deliverable_bytes_per_s", "read_p99_bytes_per_s", "write_p99_bytes_per_s")
    rows = [
        [name, *(format_rate(link[rate]) for rate in rates), f"{link['busy_utilisation'] or 0.0:.0%}"]
        for name, link in links[:_LINKS_SHOWN]
    ]
    more = f", the {_LINKS_SHOWN} fullest of {len(links)}" if len(links) > _LINKS_SHOWN else ""
    header = ["link", "nominal", "deliverable", "read p99", "write p99", "full while busy"]
    print_table(header, rows, title=f"delivered against nominal{more}", numbers_from=1)


def _print_margins(found: Plan) -> None:
    if not found.margins:
        return
    sys.stdout.write("\n")
    figure = found.margins[0].figure
    rows = [[margin.key, margin.text, *_gain(margin)] for margin in found.margins]
    title = f"what to buy next: gain in {figure}"
    print_table(["quantity", "step", "gain", "price", "gain for 1,000"], rows, title=title, numbers_from=2)


def _gain(margin: Margin) -> list[str]:
    if margin.gain is None:
        return [margin.why_not or "-", "-", "-"]
    per_price = margin.gain_per_price
    price = "not known" if margin.price is None else f"{margin.price:,.0f} {margin.currency}"
    return [f"{margin.gain:+.1%}", price, "-" if per_price is None else f"{1000.0 * per_price:+.2%}"]


def _print_contexts(found: Plan) -> None:
    if not found.contexts:
        return
    sys.stdout.write("\n")
    rows = [
        [
            f"{context.name} ({context.tokens:,} tokens)",
            format_bytes(context.kv_bytes),
            format_seconds(context.prefill_s),
            format_rate(context.break_even_bytes_per_s),
        ]
        for context in found.contexts
    ]
    title = "load or recompute: one load at the break-even rate takes as long as computing"
    print_table(["prompt", "KV", "to compute", "break-even"], rows, title=title, numbers_from=1)


def _prices(found: Plan) -> Iterator[tuple[str, str]]:
    for line in found.price.lines:
        yield "price", line
    if found.price.missing:
        yield "price not known", ", ".join(found.price.missing)
    if found.unpriced:
        yield "no price depends on", f"{', '.join(found.unpriced)} (give one with --price)"
