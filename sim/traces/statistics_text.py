"""The figures of a trace as rows for a table."""

from collections.abc import Iterator
from typing import Any

_NOT_KNOWN = "n/a"
_SHOWN_ROOTS = 5


def format_statistics(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of `sim.traces.statistics` as rows (what, value with its unit)."""
    rows = [*_arrival_rows(statistics), *_length_rows(statistics)]
    if not statistics["has_prefixes"]:
        rows.append(("prefixes", "none in this trace: no request can hit"))
    else:
        rows += _block_rows(statistics)
    if statistics["session_figures"] is not None:
        rows += _session_rows(statistics["sessions_are"], statistics["session_figures"])
    return rows


def _arrival_rows(statistics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "trace", str(statistics["name"])
    yield "requests", text(statistics["requests"])
    if statistics["sessions"] is not None:
        inferred = " (inferred from shared blocks)" if statistics["sessions_are"] == "inferred" else ""
        yield "sessions", text(statistics["sessions"]) + inferred
    if not statistics["starts_known"]:
        yield "arrivals", "the trace does not say when its sessions start (--starts gives them times)"
        return
    arrivals = statistics["arrivals"]
    yield "duration", text(statistics["duration_s"], "s")
    yield "rate", text(statistics["rate_requests_per_s"], "requests/s")
    yield "distinct arrival stamps", text(arrivals["distinct_stamps"])
    yield "CV of inter-arrival times", text(arrivals["inter_arrival_cv"])
    yield (
        "arrivals a minute",
        f"CV {text(arrivals['per_60_s_cv'])}, dispersion {text(arrivals['per_60_s_dispersion'])}",
    )


def _length_rows(statistics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "prompt", figures_text(statistics["prompt_tokens"], "tokens")
    yield "output", figures_text(statistics["output_tokens"], "tokens")
    if statistics["zero_output_requests"]:
        yield "requests without output", text(statistics["zero_output_requests"])


def _block_rows(statistics: dict[str, Any]) -> Iterator[tuple[str, str]]:
    full = statistics["full_blocks_only"]
    yield "block", text(statistics["block_tokens"], "tokens")
    for what, key in (
        ("block references", "block_references"),
        ("distinct blocks", "unique_blocks"),
        ("infinite-cache hit ratio, blocks", "infinite_cache_hit_ratio_blocks"),
        ("infinite-cache hit ratio, tokens", "infinite_cache_hit_ratio_tokens"),
        ("requests that hit 1 block at most", "share_of_requests_hitting_at_most_one_block"),
    ):
        value, value_full = text(statistics[key]), text(full[key])
        yield what, value if value == value_full else f"{value} ({value_full} without partial last blocks)"
    yield "hit ratio of requests", figures_text(statistics["hit_ratio_of_requests"])
    yield "blocks by number of references", bins_text(statistics["share_of_blocks_by_references"])
    yield "time between uses of a block", figures_text(statistics["reuse_time_s"], "s")
    yield "used again after idle seconds", bins_text(statistics["reused_later_given_idle_s"])
    if statistics["starts_known"]:
        yield "LRU stack distance", figures_text(statistics["stack_distance_blocks"], "blocks")
        yield "working set", figures_text(statistics["working_set_blocks"], "blocks")
    roots = statistics["first_blocks"]
    most = ", ".join(text(count) for count in roots["sessions"][:_SHOWN_ROOTS])
    yield "distinct first blocks", f"{text(roots['distinct'])} (sessions of the commonest: {most or 'none'})"


def _session_rows(how: str, figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "requests a session", figures_text(figures["turns"])
    yield "sessions by their requests", bins_text(figures["share_of_sessions_by_turns"])
    if figures["sub_agents"]:
        yield "sub-agents", f"{text(figures['sub_agents'])}, with {text(figures['sub_agent_requests'])} requests"
    yield "duration of a session", figures_text(figures["duration_s"], "s")
    yield "gap between arrivals", figures_text(figures["gap_s"], "s")
    if figures["think_s"] is not None:
        yield "pause after an answer", figures_text(figures["think_s"], "s")
    yield "another request after idle seconds", bins_text(figures["another_turn_given_idle_s"])
    kept = figures["kept_of_the_prompt_before"]
    if kept is not None and kept["partial"] is not None:
        of = "the request that it follows" if how == "inferred" else "the request before"
        listed = ", ".join(
            f"{name} {text(kept[key])}"
            for name, key in (
                ("90 % or more", "at_least_90_percent"),
                ("less", "partial"),
                ("under 50 %", "below_50_percent"),
            )
        )
        yield "kept of the prompt before", f"{listed} (of {of})"


def text(value: float | None, unit: str = "") -> str:
    """Return a figure with four significant digits, whole numbers in full."""
    if value is None:
        return _NOT_KNOWN
    number = f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def figures_text(figures: dict[str, float | None], unit: str = "") -> str:
    """Return the figures that there are, in one line."""
    known = {name: value for name, value in figures.items() if value is not None}
    if not known:
        return _NOT_KNOWN
    listed = ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in known.items())
    return f"{listed} {unit}".rstrip()


def bins_text(figures: dict[str, float | None]) -> str:
    """Return the shares that are not 0, each behind its bin."""
    return ", ".join(f"{name}: {_short(value)}" for name, value in figures.items() if value) or _NOT_KNOWN


def _short(value: float) -> str:
    """Return a figure of a list in three significant digits, so that a list fits a line."""
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"
