"""Request traces: their records, the file formats, and their statistics."""

from sim.traces.bad_lines import BadLines
from sim.traces.reading import READERS, TraceReader, open_trace
from sim.traces.record import NO_ID, Trace, TraceRecord

__all__ = ["NO_ID", "READERS", "BadLines", "Trace", "TraceReader", "TraceRecord", "open_trace"]
