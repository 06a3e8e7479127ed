"""`kvtier gate`: acceptance thresholds against evidence, printed and written as a report."""

import sys
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from models.errors import InputError, UnknownNameError
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_pairs, print_table
from scenarios.gates.criteria import SHARES, Check, Gates, gates_text, load_gates
from scenarios.gates.evidence import gather
from scenarios.gates.judging import Decision, Judged, judge
from scenarios.planning.limits import figure_text
from scenarios.whole_files import write_whole_text

EXIT_NOT_PASSED: Final = 1
_HEADER: Final = ("gate", "point", "figure", "wanted", "found", "margin", "sure", "verdict")


def print_template(name: str) -> None:
    """Print a file of gates that ships. Raises UnknownNameError."""
    sys.stdout.write(gates_text(name))


def judge_gates(
    name_or_path: str,
    *,
    only: Sequence[str],
    measured: str | None,
    baseline: str | None,
    candidate: str | None,
    points: str | None,
    seeds: int,
    jobs: int | None,
    out: str | None,
    as_json: bool,
) -> int:
    """Judge the gates of a file, print the verdict, and return 0 if they are passed, else 1. Raises KvTierError."""
    gates = _changed(load_gates(name_or_path), baseline=baseline, candidate=candidate, points=points)
    for name in only:
        if name not in gates.gates:
            raise UnknownNameError("gate", name, gates.gates)
    report = None if out is None else _report_file(out)
    chosen = list(dict.fromkeys(only)) or list(gates.gates)
    with Progress(f"gate {gates.name}", unit="runs", eta=True) as progress:
        evidence = gather(gates, chosen, measured=measured, seeds=seeds, jobs=jobs, progress=progress)
    decision = judge(gates, chosen, evidence, required=bool(only))
    if as_json:
        print_json(decision.to_dict())
    else:
        _print(decision)
    if report is not None:
        write_whole_text(report, markdown(decision))
        sys.stderr.write(f"kvtier: report written to {report}\n")
    return 0 if decision.passed else EXIT_NOT_PASSED


def markdown(decision: Decision) -> str:
    """Return the verdicts, every check, and the evidence that they rest on, as a report to attach."""
    gates = decision.gates
    lines = [
        f"# {gates.name}: {_overall(decision)}",
        "",
        gates.description,
        "",
        "| gate | | verdict |",
        "|---|---|---|",
    ]
    lines += [f"| {gate} | {gates.gates[gate].title} | {decision.verdict(gate)} |" for gate in decision.judged]
    lines += ["", f"| {' | '.join(_HEADER)} |", f"|{'---|' * len(_HEADER)}"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(decision)]
    lines += ["", "## Evidence", "", "| of | from | figure | values |", "|---|---|---|---|"]
    for name, found in decision.evidence.items():
        for figure, values in found.figures.items():
            shown = ", ".join(figure_text(figure, value) for value in values)
            lines.append(f"| {name} | {found.kind} | {figure} | {shown} |")
    return "\n".join([*lines, "", *_notes(decision)]) + "\n"


def _changed(gates: Gates, *, baseline: str | None, candidate: str | None, points: str | None) -> Gates:
    changes: dict[str, Any] = {}
    if baseline is not None:
        changes["baseline"] = baseline
    if candidate is not None:
        changes["candidate"] = candidate
    if points is not None:
        changes["points"] = [point.strip() for point in points.split(",")]
    return gates.model_copy(update=changes)


def _report_file(out: str) -> Path:
    path = Path(out)
    if path.suffix.lower() != ".md":
        raise InputError(f"--out {out}: must end in .md")
    if not path.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {path.parent}")
    return path


def _print(decision: Decision) -> None:
    print_table(_HEADER, list(_rows(decision)))
    sys.stdout.write("\n")
    titles = ((gate, f"{decision.verdict(gate)}  {decision.gates.gates[gate].title}") for gate in decision.judged)
    print_pairs([*titles, ("all", _overall(decision))])
    sys.stdout.write("\n" + "\n".join(_notes(decision)) + "\n")


def _overall(decision: Decision) -> str:
    left = [gate for gate in decision.judged if decision.verdict(gate) == "NO EVIDENCE"]
    if decision.passed and left:
        return f"PASS, but for what has no evidence: {', '.join(left)}"
    return "PASS" if decision.passed else "FAIL"


def _rows(decision: Decision) -> Iterator[list[str]]:
    for gate, checks in decision.judged.items():
        for judged in checks:
            sure = "-" if judged.chance is None else f"{judged.chance:.0%}"
            yield [
                gate,
                judged.point,
                f"{judged.check.figure}, {judged.check.measure}",
                _wanted(judged.check),
                _text(judged.check, judged.value),
                _margin(judged),
                sure,
                judged.verdict,
            ]


def _wanted(check: Check) -> str:
    low = "" if check.low == -inf else f"{'>' if check.above is not None else '>='} {_text(check, check.low)}"
    high = "" if check.high == inf else f"<= {_text(check, check.high)}"
    rounded = f"(to {_text(check, check.precision)})" if check.precision else ""
    return " ".join(filter(None, (low, high, rounded)))


def _text(check: Check, value: float | None) -> str:
    if value is None:
        return "-"
    is_share = check.measure in SHARES or check.figure.startswith("drift.")
    return f"{value:.1%}" if is_share else figure_text(check.figure, value)


def _margin(judged: Judged) -> str:
    if judged.margin is None:
        return "-"
    sign = "-" if judged.margin < 0 else "+"
    return sign + _text(judged.check, abs(judged.margin))


def _notes(decision: Decision) -> Iterator[str]:
    kinds = {found.kind for found in decision.evidence.values()}
    gates = decision.gates
    yield "Sure: the probability that the true figure passes, given the scatter of the evidence."
    if "measured" in kinds:
        yield f"Measured figures that were not repeated three times are taken to scatter by {gates.noise:.0%}."
    if kinds - {"measured"}:
        yield f"Simulated figures are taken to be off by {gates.model_error:.0%} beside the scatter of their seeds."
