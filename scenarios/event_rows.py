"""The events of a run as a table, for the command and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from models.units import format_bytes
from scenarios.figure_texts import seconds

HEADER: Final = ("event", "at", "what it did", "warm after", "TTFT p50 / p99 before", "during", "after", "hits")
"""The last four are windows of the run before, during and after the event."""


def event_rows(events: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return what happened, what it cost, and TTFT and hits before, during and after it: a row an event."""
    return [_row(event) for event in events]


def _row(event: Mapping[str, Any]) -> list[str]:
    windows = [event["windows"][name] for name in ("before", "during", "after")]
    latencies = [f"{seconds(part['ttft_s']['p50'])} / {seconds(part['ttft_s']['p99'])}" for part in windows]
    hits = " > ".join(_share(part["hit_ratio_tokens"]) for part in windows)
    name, done = f"{event['kind']}, {event['target']}", ", ".join(_effects(event)) or "-"
    return [name, seconds(event["at_s"]), done, seconds(event["warmup_s"]), *latencies, hits]


def _effects(event: Mapping[str, Any]) -> Iterator[str]:
    for key, words in (("lost_bytes", "lost"), ("unreachable_bytes", "out of reach")):
        if event.get(key):
            yield f"{format_bytes(event[key])} {words}"
    if event.get("rebuild_s") is not None:
        yield f"rebuilt in {seconds(event['rebuild_s'])}"
    for key, words in (
        ("failed_loads", "loads failed"),
        ("requests_in_hand", "requests in hand"),
        ("served_requests", "requests served"),
    ):
        if event.get(key):
            yield f"{event[key]:,} {words}"
    if "drained_s" in event:
        yield f"drained in {seconds(event['drained_s'])}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
