"""`kvtier trace`: what is in a trace file."""

from scenarios.commands.tables import print_json, print_pairs


def print_trace_info(file: str, format: str | None, *, as_json: bool) -> None:
    """Print the statistics of a trace; raises TraceError where it cannot be read."""
    from sim.traces import open_trace
    from sim.traces.statistics import format_statistics, trace_statistics

    statistics = trace_statistics(open_trace(file, format))
    if as_json:
        print_json({"file": file, **statistics})
    else:
        print_pairs(format_statistics(statistics))
