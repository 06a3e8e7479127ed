"""The section on what `kvtier plan` found: saved with `--out`, or printed with `--json` and kept in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from models.units import format_bytes, format_rate, format_seconds
from scenarios.figure_texts import on_drives, share
from scenarios.planning.free import quantity_text
from scenarios.planning.limits import figure_text
from scenarios.planning.saved import ANSWER, MANIFEST, load_plan
from scenarios.planning.sure_texts import HEADER, known_text, odds_pairs, odds_rows
from scenarios.reporting.assumptions import assumption_chapters, warnings_text
from scenarios.reporting.drawing import HALF_IN, canvas, svg_of
from scenarios.reporting.json_files import printed
from scenarios.reporting.run_plots import distribution, timelines, waterfall
from scenarios.reporting.run_section import tables
from scenarios.reporting.section import Block, Chapter, Fact, Plot, Section, Table, Text
from scenarios.reporting.words import listed, meaning_of
from sim.results.result import SimulationResult

_KEYS: Final = frozenset({"feasible", "solution", "required", "bottleneck", "slo", "solve", "points"})


class SavedPlan:
    """A folder that holds a plan, or what `kvtier plan --json` printed."""

    name = "plan"
    saved_by = "kvtier plan SCENARIO --slo ... --solve ... --out DIR"

    def fits(self, path: Path) -> bool:
        """Return whether *path* is a plan."""
        manifest = path / MANIFEST
        if manifest.is_file():
            # What was printed may be kept under this name too; then it is a file in a folder, not a saved plan.
            kept = printed(manifest, _KEYS)
            return kept is None or "format" in kept
        return printed(path, _KEYS) is not None

    def section(self, path: Path) -> Section:
        """Return the section on a plan; raises InputError where it is damaged."""
        if path.is_file():
            return plan_section(printed(path, _KEYS) or {}, None)
        answer = path / ANSWER
        return plan_section(load_plan(path), SimulationResult.load(answer) if answer.is_dir() else None)


def plan_section(said: Mapping[str, Any], answer: SimulationResult | None) -> Section:
    """Return the section on a plan as plain values; *answer* is the run with what was found, where it was kept."""
    limits = listed([f"{limit['figure']} {_wanted(limit)}" for limit in _asked(said)])
    keys = listed([one["key"] for one in said["solve"]])
    chapters = [
        Chapter(title="What limits it there", blocks=list(_limits(said, answer))),
        Chapter(title="What was tried", blocks=list(_tried(said))),
        *_chapter("How sure this is", _sure(said)),
        *_chapter("What each tier has to do", _required(said)),
        *_chapter("What to buy next", _next(said)),
        *_chapter("Load or recompute", _break_even(said)),
        *([] if answer is None else [_over_time(answer)]),
    ]
    resolved = said.get("resolved")
    if resolved is not None:
        chapters += assumption_chapters([resolved], said["warnings"])
    elif said["warnings"]:
        chapters.append(Chapter(title="What this rests on", blocks=[warnings_text(said["warnings"])]))
    return Section(
        kind="plan",
        title=f"{said['scenario']}: {keys} for {limits}",
        about=f"{said['scenario']}, sized so that it keeps {limits}.",
        headline=_headline(said),
        facts=list(_facts(said)),
        chapters=chapters,
        tone="good" if said["feasible"] else "bad",
    )


def _asked(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [limit for limit in said["slo"] if not limit["implied"]]


def _wanted(limit: Mapping[str, Any]) -> str:
    words = {"<=": "at most", "<": "below", ">=": "at least", ">": "above"}
    return f"{words[limit['operator']]} {figure_text(limit['figure'], limit['bound'])}"


def _value(said: Mapping[str, Any], key: str, value: float | None) -> str:
    dimension = next((one["dimension"] for one in said["solve"] if one["key"] == key), None)
    return "-" if value is None else quantity_text(dimension, value)


def _headline(said: Mapping[str, Any]) -> str:
    if not said["feasible"]:
        reason = str(said["reason"])
        return f"There is no answer: {reason}."
    parts = []
    for one in said["solve"]:
        key = one["key"]
        now = "" if one["now"] is None else f" (the scenario has {_value(said, key, one['now'])})"
        word = "at most" if one["sense"] == "most" else "at least"
        parts.append(f"{key} has to be {word} {_value(said, key, said['solution'][key])}{now}")
    text = f"{listed(parts)}."
    for key, point in said["beyond"].items():
        missed = [limit for limit in said["slo"] if not _met(limit, point["figures"].get(limit["figure"]))]
        found = [
            f"{m['figure']} would be {figure_text(m['figure'], point['figures'].get(m['figure']))}" for m in missed
        ]
        if found:
            text += f" With {_value(said, key, point['values'][key])}, {listed(found)}."
    return text[0].upper() + text[1:] if len(parts) > 1 else text


def _met(limit: Mapping[str, Any], value: float | None) -> bool:
    if value is None:
        return False
    bound = limit["bound"]
    return bool({"<=": value <= bound, "<": value < bound, ">=": value >= bound, ">": value > bound}[limit["operator"]])


def _facts(said: Mapping[str, Any]) -> Iterator[Fact]:
    for key, value in said["nearest"]["values"].items():
        yield Fact(name=key, value=_value(said, key, value), note="" if said["feasible"] else "comes nearest")
    for limit in _asked(said):
        reached = figure_text(limit["figure"], limit["reached"])
        yield Fact(name=limit["figure"], value=reached, note=_wanted(limit), tone="good" if limit["met"] else "bad")
    yield Fact(name="GPUs", value=f"{said['gpus']:,}")
    for currency, amount in said["price"]["amounts"].items():
        missing = said["price"]["missing"]
        note = f"without {listed(missing)}" if missing else "all parts"
        yield Fact(name="Price", value=f"{amount:,.0f} {currency}", note=note)


def _limits(said: Mapping[str, Any], answer: SimulationResult | None) -> Iterator[Block]:
    bottleneck = said["bottleneck"]
    yield Text(lead=f"Bottleneck: {bottleneck}.", paragraphs=list(filter(None, [meaning_of(bottleneck)])))
    if answer is not None:
        yield waterfall(answer)
        yield distribution(answer)


def _tried(said: Mapping[str, Any]) -> Iterator[Block]:
    keys = [one["key"] for one in said["solve"]]
    points = [point for point in said["points"] if set(point["values"]) == set(keys)]
    points.sort(key=lambda point: [point["values"][key] for key in keys])
    limits = _asked(said)
    if len(keys) == 1:
        yield from (_curve(said, keys[0], points, limit) for limit in limits)
    rows = [
        [
            *(_value(said, key, point["values"][key]) for key in keys),
            *(figure_text(limit["figure"], point["figures"].get(limit["figure"])) for limit in limits),
            "yes" if point["meets"] else "no",
            point["error"] or point["bottleneck"],
        ]
        for point in points
    ]
    header = [*keys, *(limit["figure"] for limit in limits), "meets", "bottleneck"]
    meets = frozenset({len(keys) + len(limits)})
    folded = f"All {len(rows)} runs" if len(rows) > 20 else ""
    yield Table(caption="The runs of the search", header=header, rows=rows, marks=meets, folded=folded)
    front = said["front"]
    if front["points"]:
        yield _front(said, front, keys)


def _front(said: Mapping[str, Any], front: Mapping[str, Any], keys: Sequence[str]) -> Table:
    figure, currency = front["figure"], front["currency"]
    rows = [
        [
            *(_value(said, key, point["values"][key]) for key in keys),
            figure_text(figure, point[figure]),
            "yes" if point["meets"] else "no",
            "-" if point["cost"] is None else f"{point['cost']:,.0f} {currency}",
        ]
        for point in front["points"]
    ]
    caption = f"The front: no other design tried is better in both cost and {figure}"
    return Table(caption=caption, header=[*keys, figure, "meets", "cost"], rows=rows, marks=frozenset({len(keys) + 1}))


def _curve(said: Mapping[str, Any], key: str, points: Sequence[Mapping[str, Any]], limit: Mapping[str, Any]) -> Plot:
    name = limit["figure"]
    known = [(p["values"][key], p["figures"][name], p["meets"]) for p in points if p["figures"].get(name) is not None]
    with canvas(HALF_IN) as figure:
        ax = figure.subplots()
        ax.plot([x for x, _, _ in known], [y for _, y, _ in known], color="0.5", linewidth=1)
        for meets, color, marker in ((True, "#009E73", "o"), (False, "#D55E00", "X")):
            chosen = [(x, y) for x, y, good in known if good == meets]
            label = "meets all" if meets else "does not"
            ax.scatter(
                *(zip(*chosen, strict=True) if chosen else ([], [])), color=color, marker=marker, label=label, zorder=3
            )
        ax.axhline(limit["bound"], color="0.35", linestyle="--", linewidth=1, label=_wanted(limit))
        low, high = min(x for x, _, _ in known), max(x for x, _, _ in known)
        if low > 0 and high > 10 * low:
            ax.set_xscale("log")
            ax.xaxis.minorticks_off()
        ax.xaxis.set_major_formatter(lambda value, _: _value(said, key, float(f"{value:.4g}")))
        ax.yaxis.set_major_formatter(lambda value, _: figure_text(name, float(f"{value:.6g}")))
        ax.set(xlabel=key)
        ax.grid(visible=True, color="0.9", linewidth=0.8)
        ax.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        svg = svg_of(figure)
    ends = [f"{figure_text(name, y)} with {_value(said, key, x)}" for x, y, _ in (known[0], known[-1])]
    return Plot(
        title=f"{name} by {key}",
        caption="Every run of the search.",
        alt=f"{name} over {key}, with the limit ({_wanted(limit)}): {ends[0]} to {ends[1]}.",
        svg=svg,
    )


def _sure(said: Mapping[str, Any]) -> Iterator[Block]:
    if "sure" not in said:
        return  # of an earlier version
    if said["sure"]["uncertainty"] is None:
        hint = "The odds that the limits hold were not asked for: kvtier plan --uncertainty 64."
        yield Text(lead=f"{known_text(said)}.", paragraphs=[hint])
        return
    yield Text(lead=f"{known_text(said)}.", items=[f"{name}: {found}" for name, found in odds_pairs(said)])
    caption = "What a single measurement may be, and how likely it keeps each limit"
    yield Table(caption=caption, header=list(HEADER), rows=odds_rows(said), numbers_from=1)


def _chapter(title: str, blocks: Iterator[Block]) -> Iterator[Chapter]:
    found = list(blocks)
    if found:
        yield Chapter(title=title, blocks=found)


def _required(said: Mapping[str, Any]) -> Iterator[Block]:
    rows = []
    for tier, need in said["required"].items():
        drives = "-" if need["drives"] is None else f"{need['drives']:,} of {need['drives_provided']:,}"
        each, held = need["per_gpu"], need["capacity_bytes"]
        rows.append(
            [
                tier,
                format_rate(need["read_bytes_per_s"]),
                format_rate(need["write_bytes_per_s"]),
                format_bytes(held) + on_drives(held, need.get("raw_bytes", held)),
                format_bytes(need["provided_bytes"]),
                drives,
                format_rate(each["read_bytes_per_s"]),
                format_bytes(each["capacity_bytes"]),
            ]
        )
    if rows:
        header = ["tier", "read", "write", "room used", "room provided", "drives", "read/GPU", "room/GPU"]
        caption = "Required of each tier (99 % of the seconds stay below the rates)"
        yield Table(caption=caption, header=header, rows=rows, numbers_from=1)
    links = sorted(said["delivered"].items(), key=lambda item: -(item[1]["busy_utilisation"] or 0.0))
    rates = ("nominal_bytes_per_s", "deliverable_bytes_per_s", "read_p99_bytes_per_s", "write_p99_bytes_per_s")
    rows = [[n, *(format_rate(link[r]) for r in rates), share(link["busy_utilisation"])] for n, link in links]
    if rows:
        header = ["link", "nominal", "deliverable", "read p99", "write p99", "full while busy"]
        yield Table(caption="Delivered against nominal", header=header, rows=rows, numbers_from=1)


def _next(said: Mapping[str, Any]) -> Iterator[Block]:
    rows = []
    for one in said["next"]:
        gain = one["why_not"] or "-" if one["gain"] is None else f"{one['gain']:+.1%}"
        price = "not known" if one["price"] is None else f"{one['price']:,.0f} {one['currency']}"
        per = one["gain_per_price"]
        rows.append([one["key"], one["step"], gain, price, "-" if per is None else f"{1000.0 * per:+.2%}"])
    if rows:
        figure = said["next"][0]["figure"]
        header = ["quantity", "step", "gain", "price", "gain for 1,000"]
        caption = f"What a little more of each gains in {figure}"
        yield Table(caption=caption, header=header, rows=rows, numbers_from=2)


def _break_even(said: Mapping[str, Any]) -> Iterator[Block]:
    rows = [
        [
            f"{one['name']} ({one['tokens']:,} tokens)",
            format_bytes(one["kv_bytes"]),
            format_seconds(one["prefill_s"]),
            format_rate(one["break_even_bytes_per_s"]),
        ]
        for one in said["break_even"]
    ]
    if rows:
        caption = "A load at the break-even rate takes as long as computing the prompt; slower ones are not worth it"
        yield Table(caption=caption, header=["prompt", "KV", "to compute", "break-even"], rows=rows, numbers_from=1)


def _over_time(answer: SimulationResult) -> Chapter:
    return Chapter(title="Tiers and links", blocks=[*tables(answer.summary_values), *timelines(answer)])
