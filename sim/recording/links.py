"""Bytes over every link and direction in bins of a second."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from sim.arrays import Floats, Ints
from sim.recording.tables import BUFFERED_ROWS, Columns, Labels, expand

_DTYPE: Final = np.dtype([("class_id", "i8"), ("t0_s", "f8"), ("t1_s", "f8"), ("n_bytes", "f8")])


class LinkMeter:
    """Throughput of every link over time, by direction (0 read, 1 write).

    Flows of one path are metered as one class; a class's bytes are spread evenly over the interval in which they moved
    and counted on each link of the class. Bins are *bin_s* wide; when a run needs more than *max_bins* of them, bins
    are merged in pairs, so memory is bounded and :attr:`bin_s` says how wide they have become.

    Parameters
    ----------
    link_names : Sequence[str]
        Names behind the link index.
    bin_s : float
        Width of a bin at the start [s]; one second is what iostat prints in reports R2 and R3.
    max_bins : int
        Bins at which the width doubles, at least 2.
    """

    __slots__ = (
        "_at",
        "_bins",
        "_buffer",
        "_class_bytes",
        "_classes",
        "_ids",
        "_last_s",
        "_max_bins",
        "_pack_into",
        "bin_s",
        "link_names",
    )

    def __init__(self, link_names: Sequence[str], *, bin_s: float = 1.0, max_bins: int = 200_000) -> None:
        if bin_s <= 0.0 or max_bins < 2:
            raise ValueError(f"bin_s is {bin_s} and max_bins {max_bins}; must be above 0 and at least 2")
        self.link_names = tuple(link_names)
        self.bin_s = bin_s
        self._max_bins = max_bins
        self._pack_into = Struct("=qddd").pack_into
        self._buffer = bytearray(BUFFERED_ROWS * _DTYPE.itemsize)
        self._at = 0
        self._ids: dict[tuple[tuple[int, int, float], ...], int] = {}
        self._classes: list[tuple[tuple[int, int, float], ...]] = []
        self._class_bytes: Floats = np.zeros(0)
        self._bins: dict[tuple[int, int], Floats] = {}
        self._last_s = 0.0

    def register(self, links: Sequence[tuple[int, int, float]]) -> int:
        """Return the class id of a path of (link index, direction, passes); the same path gives the same id.

        Each byte counts *passes* times on its link.

        Raises ValueError on an index that no link has or a direction other than 0 and 1.
        """
        path = tuple(links)
        known = self._ids.get(path)
        if known is not None:
            return known
        for link, direction, _ in path:
            if not 0 <= link < len(self.link_names) or direction not in {0, 1}:
                raise ValueError(f"no link {link} with direction {direction}; there are {len(self.link_names)} links")
        class_id = self._ids[path] = len(self._classes)
        self._classes.append(path)
        return class_id

    def add(self, class_id: int, t0_s: float, t1_s: float, n_bytes: float) -> None:
        """Count *n_bytes*, moved evenly from *t0_s* to *t1_s* (at once where they are equal), on the class's links."""
        at = self._at
        self._pack_into(self._buffer, at, class_id, t0_s, t1_s, n_bytes)
        self._at = at = at + 32
        if at == 262_144:  # BUFFERED_ROWS rows of 32 bytes; literals here: this runs at every change of a rate
            self._fold()

    def _fold(self) -> None:
        rows = np.frombuffer(self._buffer, dtype=_DTYPE, count=self._at // _DTYPE.itemsize)
        self._at = 0
        if rows.size == 0:
            return
        # Sorted by class, so that each class is one slice of what follows.
        rows = rows[np.argsort(rows["class_id"], kind="stable")]
        classes, t0_s, t1_s, n_bytes = (rows[name] for name in ("class_id", "t0_s", "t1_s", "n_bytes"))
        sums: Floats = np.bincount(classes, weights=n_bytes, minlength=len(self._classes)).astype(np.float64)
        sums[: self._class_bytes.size] += self._class_bytes
        self._class_bytes = sums
        self._last_s = max(self._last_s, float(t1_s.max()))
        while self._last_s > self._max_bins * self.bin_s:
            self._double()
        first = (t0_s / self.bin_s).astype(np.int64)
        last = np.maximum(np.ceil(t1_s / self.bin_s).astype(np.int64) - 1, first)
        first = np.minimum(first, last)
        long_s = t1_s - t0_s
        for row, offset in expand(last - first + 1):
            index = first[row] + offset
            start_s = index * self.bin_s
            overlap_s = np.minimum(t1_s[row], start_s + self.bin_s) - np.maximum(t0_s[row], start_s)
            alone = first[row] == last[row]
            share = np.where(alone, 1.0, overlap_s / np.where(alone, 1.0, long_s[row]))
            self._count(classes[row], index, n_bytes[row] * share)

    def _count(self, classes: Ints, index: Ints, n_bytes: Floats) -> None:
        present, starts = np.unique(classes, return_index=True)
        for class_id, start, stop in zip(present, starts, [*starts[1:], classes.size], strict=True):
            own = index[start:stop]
            low = int(own.min())
            window = np.bincount(own - low, weights=n_bytes[start:stop])
            for link, direction, passes in self._classes[class_id]:
                self._grown((link, direction), low + window.size)[low : low + window.size] += passes * window

    def _grown(self, key: tuple[int, int], n_bins: int) -> Floats:
        bins = self._bins.get(key)
        if bins is None or bins.size < n_bins:
            grown = np.zeros(max(n_bins, 64, 0 if bins is None else 2 * bins.size))
            if bins is not None:
                grown[: bins.size] = bins
            self._bins[key] = bins = grown
        return bins

    def _double(self) -> None:
        self.bin_s *= 2.0
        for key, bins in self._bins.items():
            even = bins if bins.size % 2 == 0 else np.append(bins, 0.0)
            self._bins[key] = even.reshape(-1, 2).sum(axis=1)

    def total_bytes(self, link: int, direction: int) -> float:
        """Return all bytes that crossed a link in one direction."""
        self._fold()
        paths = zip(self._class_bytes, self._classes, strict=False)  # a class that has moved nothing may lack a sum
        return float(sum(n_bytes * hop[2] for n_bytes, path in paths for hop in path if hop[:2] == (link, direction)))

    def timeline(self, link: int) -> tuple[Floats, Floats, Floats]:
        """Return ``(time_s, read_bytes_per_s, write_bytes_per_s)``: a mean rate for each bin, *time_s* its start.

        All links have the same bins, from time 0 to the last byte of any link.
        """
        self._fold()
        n_bins = int(np.ceil(self._last_s / self.bin_s))
        time_s = np.arange(n_bins, dtype=np.float64) * self.bin_s
        read, write = (self._rate(link, direction, n_bins) for direction in (0, 1))
        return time_s, read, write

    def _rate(self, link: int, direction: int, n_bins: int) -> Floats:
        rate = np.zeros(n_bins)
        bins = self._bins.get((link, direction))
        if bins is not None:
            kept = bins[:n_bins]
            rate[: kept.size] = kept / self.bin_s
        return rate

    def columns(self, max_points: int = 20_000) -> Columns:
        """Return one tidy table of all links: time_s, link (a code), read_bytes_per_s, write_bytes_per_s.

        A run of more than *max_points* bins is averaged over 2, 3, ... bins, so that the table stays small.
        """
        lines = [self.timeline(link) for link in range(len(self.link_names))]
        n_bins = lines[0][0].size if lines else 0
        merged = max(-(-n_bins // max_points), 1)
        starts = np.arange(0, n_bins, merged)
        widths = np.diff(np.append(starts, n_bins))

        def thinned(rates: list[Floats]) -> Floats:
            parts = [np.add.reduceat(rate, starts) / widths for rate in rates] if n_bins else []
            return np.concatenate(parts) if parts else np.zeros(0)

        return {
            "time_s": np.tile(starts * self.bin_s, len(lines)),
            "link": np.repeat(np.arange(len(lines), dtype=np.int32), starts.size),
            "read_bytes_per_s": thinned([read for _, read, _ in lines]),
            "write_bytes_per_s": thinned([write for _, _, write in lines]),
        }

    def labels(self) -> Labels:
        """Return the words behind the numbers of coded columns."""
        return {"link": self.link_names}
