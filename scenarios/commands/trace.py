"""`kvtier trace`: what is in a trace file, and traces made of it or of nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import InputError
from scenarios.commands.plots import check_plot_file
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_pairs
from scenarios.commands.trace_options import Source, parameters, quantity
from scenarios.commands.trace_output import write_lines

if TYPE_CHECKING:
    from sim.traces import Trace
    from sim.traces.block_trace import BlockTrace
    from sim.traces.convert import MooncakeLines
    from sim.traces.sessions import Session


def print_trace_info(source: Source, *, starts: str | None, seed: int, plot: str | None, as_json: bool) -> None:
    """Print the statistics of a trace, and plot them; raises InputError where it cannot be read."""
    block_trace = source.block_trace()
    if block_trace is not None:
        if starts is not None or plot is not None:
            raise InputError(f"{source.file}: is a block trace; --starts and --plot are for request traces")
        _print_block_trace_info(source, block_trace, as_json=as_json)
        return
    if plot is not None:
        check_plot_file(Path(plot))  # said now rather than after the reading
    from sim.traces.columns import read_columns
    from sim.traces.statistics import statistics_of
    from sim.traces.statistics_text import format_statistics

    trace = source.trace()
    with Progress("read") as progress:
        columns = read_columns(with_starts(trace, starts, seed), lambda count: progress(None, count))
    statistics = statistics_of(columns)
    _print_info(source, trace, statistics, format_statistics(statistics), as_json=as_json)
    if plot is not None:
        from sim.results.trace_plot import plot_trace

        plot_trace(columns, plot)
        _note(f"plot saved to {plot}")


def _print_block_trace_info(source: Source, trace: BlockTrace, *, as_json: bool) -> None:
    from sim.traces.block_trace_statistics import block_trace_statistics, format_block_statistics

    with Progress("read") as progress:
        statistics = block_trace_statistics(trace, lambda count: progress(None, count))
    _print_info(source, trace, statistics, format_block_statistics(statistics), as_json=as_json)


def _print_info(
    source: Source,
    trace: Trace | BlockTrace,
    statistics: dict[str, Any],
    rows: list[tuple[str, str]],
    *,
    as_json: bool,
) -> None:
    warnings = source.warnings(trace)
    for warning in warnings:
        _note(f"warning: {warning}")
    if as_json:
        bad_lines = source.bad_lines.count
        print_json({"file": source.file, **statistics, "bad_lines": bad_lines, "warnings": warnings})
    else:
        print_pairs(rows)


def convert_trace(source: Source, *, starts: str | None, seed: int, block_tokens: int | None, out: str) -> None:
    """Write a trace in the Mooncake format and say on stderr what was lost; raises InputError."""
    from sim.traces.convert import MooncakeLines
    from sim.traces.readers.mooncake import MooncakeTrace

    trace = source.trace()
    lines = MooncakeLines(trace=with_starts(trace, starts, seed), block_tokens=block_tokens)
    _write(lines, out, "converted")
    if not isinstance(trace, MooncakeTrace):
        _note("times, lengths, blocks, sessions and pauses are kept; other fields of the file (models, kinds) are not")
    _say(*lines.losses.sentences(), *source.warnings(trace))


def sample_trace(source: Source, *, sessions: int | None, share: float | None, seed: int, out: str) -> None:
    """Write whole sessions of a trace, drawn at random, in the Mooncake format; raises InputError."""
    if (sessions is None) == (share is None):
        raise InputError("give exactly one of --sessions and --share")
    import numpy as np

    from sim.traces.convert import MooncakeLines
    from sim.traces.sample import sampled

    trace = source.trace()
    part, taken = sampled(trace, np.random.default_rng(seed), sessions=sessions, share=share)
    lines = MooncakeLines(trace=part)
    _write(lines, out, "sampled")
    _note(
        f"took {taken.sessions:,} of {taken.of_sessions:,} sessions with {taken.requests:,} of {taken.of_requests:,} "
        f"requests, at their own times: the rate is {taken.requests / taken.of_requests:.3g} of what it was"
    )
    _say(*lines.losses.sentences(), *source.warnings(trace))


def generate_trace(
    generator: str, *, requests: int | None, duration: str | None, seed: int, settings: Sequence[str], out: str
) -> None:
    """Write what a generator draws in the Mooncake format; raises InputError for parameters that it does not take."""
    from sim.generators import GENERATORS
    from sim.generators.arrivals import GeneratedTrace
    from sim.traces.convert import MooncakeLines, by_arrival

    given = parameters(GENERATORS.get(generator), settings)
    given["seed"] = seed
    if requests is not None:
        given["requests"] = requests
    if duration is not None:
        given["duration_s"] = quantity(duration, "seconds", "--duration")
    trace = GENERATORS.create(generator, **given).trace()
    names: list[int | str] | None = None
    if isinstance(trace, GeneratedTrace):
        names = []
        trace = replace(trace, draw=partial(_told_apart, trace.draw, names))
    # By arrival, not by session: as many requests as were asked for, and nothing after the end of the time.
    lines = MooncakeLines(trace=by_arrival(trace), names=names)
    _write(lines, out, "generated")
    _say(*lines.losses.sentences())


def with_starts(trace: Trace, starts: str | None, seed: int) -> Trace:
    """Return *trace* with its sessions started as `uniform:TIME` or `poisson:RATE` says; raises InputError."""
    if starts is None:
        return trace
    import numpy as np

    from sim.traces.sessions import SessionTrace, placed, poisson_starts, uniform_starts

    kind, _, text = starts.partition(":")
    if kind not in ("uniform", "poisson") or not text:
        raise InputError(f"--starts is '{starts}'; must be uniform:TIME (such as 'uniform:4 h') or poisson:RATE")
    if not isinstance(trace, SessionTrace) or trace.starts_known:
        raise InputError(f"{trace.name} says when its requests arrive; --starts is for sessions without start times")
    random = np.random.default_rng(seed)
    if kind == "poisson":
        return placed(trace, poisson_starts(quantity(text, "ops_per_s", "--starts"), random))
    over_s = quantity(text, "seconds", "--starts")
    return placed(trace, uniform_starts(sum(1 for _ in trace.sessions()), over_s, random))


def _told_apart(draw: Callable[[], Iterator[Session]], names: list[int | str]) -> Iterator[Session]:
    """Draw sessions whose requests carry the number of their stream, so that sub-agents can be told apart."""
    from sim.traces.convert import by_stream

    names.clear()
    return by_stream(draw(), names)


def _write(lines: MooncakeLines, out: str, what: str) -> None:
    with Progress(what) as progress:

        def counted() -> Iterator[bytes]:
            for number, line in enumerate(lines):
                yield line
                progress(None, number + 1)

        write_lines(counted(), out)
    if out != "-":
        _note(f"{lines.losses.requests:,} requests written to {out}")


def _say(*notes: str) -> None:
    for note in notes:
        _note(note)


def _note(text: str) -> None:
    sys.stderr.write(f"kvtier: {text}\n")
