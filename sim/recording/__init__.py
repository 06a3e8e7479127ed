"""What a run writes down as it goes: columnar, bounded where it can be, cheap on the hot path. Interprets nothing."""

from sim.recording.intervals import TokenIntervals
from sim.recording.links import LinkMeter
from sim.recording.occupancy import OccupancyLog
from sim.recording.requests import COMPLETED, FAILED, REJECTED, RequestLog
from sim.recording.tables import Columns, Labels
from sim.recording.transfers import TransferLog
from sim.recording.windowed import WindowedIntervals

__all__ = [
    "COMPLETED",
    "FAILED",
    "REJECTED",
    "Columns",
    "Labels",
    "LinkMeter",
    "OccupancyLog",
    "RequestLog",
    "TokenIntervals",
    "TransferLog",
    "WindowedIntervals",
]
