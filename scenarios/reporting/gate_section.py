"""The section on what `kvtier gate --json` printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scenarios.figure_texts import share
from scenarios.planning.limits import figure_text
from scenarios.reporting.json_files import printed
from scenarios.reporting.section import Chapter, Fact, Section, Table, Text, Tone
from scenarios.reporting.words import counted, listed

_KEYS: Final = frozenset({"name", "passed", "gates", "evidence"})
_READING: Final = (
    "Margin: how far inside the bounds a figure lies. Sure: how likely the true figure passes, given the scatter of "
    "the evidence. A bound “to 1.0%” is written in whole per cent, so that 28.9% counts as the 29% that it would be "
    "reported as."
)
_TONES: Final[Mapping[str, Tone]] = {"PASS": "good", "FAIL": "bad"}


class PrintedGate:
    """What `kvtier gate --json` printed, in a file."""

    name = "gate"
    saved_by = "kvtier gate --json > gate.json"

    def fits(self, path: Path) -> bool:
        """Return whether *path* is such a file."""
        return printed(path, _KEYS) is not None

    def section(self, path: Path) -> Section:
        """Return the section on the gates in a file."""
        return gate_section(printed(path, _KEYS) or {})


def gate_section(said: Mapping[str, Any]) -> Section:
    """Return the section on gates that were judged."""
    gates = said["gates"]
    return Section(
        kind="gate",
        title=said["name"],
        about=f"{counted(len(gates), 'gate')} held against evidence: {listed(_kinds(said))}.",
        headline=_headline(said),
        facts=[
            Fact(
                name=f"Gate {name}", value=gate["verdict"].capitalize(), note=gate["title"], tone=_tone(gate["verdict"])
            )
            for name, gate in gates.items()
        ],
        chapters=[
            Chapter(title="How to read it", blocks=[Text(paragraphs=[_READING])]),
            *(Chapter(title=f"{name}: {gate['title']}", blocks=[_checks(gate)]) for name, gate in gates.items()),
            Chapter(title="The evidence", blocks=[_evidence(said["evidence"])]),
        ],
        tone="good" if said["passed"] else "bad",
    )


def _tone(verdict: str) -> Tone:
    return _TONES.get(verdict, "warn")


def _kinds(said: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(found["kind"] for found in said["evidence"].values())) or ["none"]


def _headline(said: Mapping[str, Any]) -> str:
    by_verdict: dict[str, list[str]] = {}
    for name, gate in said["gates"].items():
        by_verdict.setdefault(gate["verdict"], []).append(name)
    text = "The gates are passed." if said["passed"] else "The gates are not passed."
    texts = {"PASS": "Passed", "FAIL": "Failed", "NO EVIDENCE": "Without evidence"}
    text += "".join(
        f" {label}: {listed(by_verdict[verdict])}." for verdict, label in texts.items() if verdict in by_verdict
    )
    failed = [check for gate in said["gates"].values() for check in gate["checks"] if check["verdict"] == "FAIL"]
    if failed:
        worst = min(failed, key=lambda check: check["margin"])
        found = _text(worst, worst["value"])
        text += f" {worst['figure']} ({worst['measure']}) at {worst['point']} is {found}, wanted {_wanted(worst)}."
    return text


def _checks(gate: Mapping[str, Any]) -> Table:
    rows = []
    for check in gate["checks"]:
        margin, chance = check["margin"], check["chance"]
        sign = "" if margin is None else "-" if margin < 0 else "+"
        rows.append(
            [
                f"{check['figure']}, {check['measure']}",
                check["point"],
                _wanted(check),
                _text(check, check["value"]),
                "-" if margin is None else sign + _text(check, abs(margin)),
                share(chance),
                check["verdict"],
            ]
        )
    header = ["figure", "point", "wanted", "found", "margin", "sure", "verdict"]
    caption = "Checks"
    return Table(caption=caption, header=header, rows=rows, marks=frozenset({6}))


def _wanted(check: Mapping[str, Any]) -> str:
    low, high = check["at_least"], check["at_most"]
    least = "above" if check.get("above") else "at least"
    parts = [
        *([] if low is None else [f"{least} {_text(check, low)}"]),
        *([] if high is None else [f"at most {_text(check, high)}"]),
    ]
    rounded = f" (to {_text(check, check['precision'])})" if check.get("precision") else ""
    return " and ".join(parts) + rounded


def _text(check: Mapping[str, Any], value: float | None) -> str:
    if value is None:
        return "-"
    is_share = check["is_share"] or check["figure"].startswith("drift.")
    return f"{value:.1%}" if is_share else figure_text(check["figure"], value)


def _evidence(evidence: Mapping[str, Any]) -> Table:
    def rows() -> Iterator[list[str]]:
        for name, found in evidence.items():
            for figure, values in found["figures"].items():
                yield [name, found["kind"], figure, ", ".join(figure_text(figure, value) for value in values)]

    listed_rows = list(rows())
    folded = f"All {len(listed_rows)} figures" if len(listed_rows) > 20 else ""
    header = ["of", "from", "figure", "values"]
    return Table(caption="Figures that were judged", header=header, rows=listed_rows, folded=folded)
