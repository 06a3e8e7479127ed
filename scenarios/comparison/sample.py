"""A run cut into blocks that can be drawn again: what a bootstrap needs, whatever the number of requests.

Requests of a run are not independent: neighbours wait in the same queue, and turns of a session hit what the earlier
ones left. So whole blocks are drawn (Carlstein 1986, Annals of Statistics 14, 1171: blocks that do not overlap). A
block is a stretch of sessions in the order of their first requests, with all of their requests; a request without a
session is one of its own. What belongs to no request in particular is cut by time: bytes written and gaps between
tokens. Throughput is cut by requests in the order of their ends, so that the time a block takes varies as much as the
end of the whole does.

Thirty blocks: with more than that the interval hardly gets narrower and only loses its independence (Schmeiser 1982,
Operations Research 30, 556). Which request is in which block follows from the workload alone, so that two variants of
one workload have the same requests in the same blocks and can be drawn in pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sim.arrays import Floats, Ints
from sim.recording import COMPLETED, Columns, WindowedIntervals
from sim.recording.transfers import DIRECTIONS
from sim.results.result import SimulationResult
from sim.results.summary import measured_window

BLOCKS: Final = 30
FEWEST_BLOCKS: Final = 10
"""With fewer, the spread between them is too uncertain to say anything (Schmeiser 1982)."""
_REQUESTS_A_BLOCK: Final = 10
_RANKS: Final = 8192
"""Steps of a distribution that are kept: all values of a small run; of a large one its ranks to 0.012 %."""
_PARTS: Final = ("queue", "load", "compute", "other")
_WRITE: Final = DIRECTIONS.index("write")
_NO_SESSION: Final = -1


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure that is one sum over another, each by block: means, hit ratios, rates."""

    above: Floats
    below: Floats


@dataclass(frozen=True, slots=True)
class Ranked:
    """The distribution of a figure: upper ends of steps of it in ascending order, and values per block and step."""

    ends: Floats
    counts: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A run in blocks.

    Parameters
    ----------
    workload : array
        By block: requests, their prompt tokens and their output tokens. Equal for runs whose blocks can be paired.
    ratios : dict
        By metric.
    ranked : dict
        By metric without its quantile: ``ttft_s`` and ``itl_s``.
    """

    workload: Ints
    ratios: dict[str, Ratio]
    ranked: dict[str, Ranked]

    @property
    def blocks(self) -> int:
        """How many blocks there are; 0 where the run is too short for an interval."""
        return int(self.workload.shape[0])

    def pairs_with(self, other: Sample) -> bool:
        """Whether another run has the same requests in the same blocks."""
        return np.array_equal(self.workload, other.workload)


def sample_of(result: SimulationResult, intervals: WindowedIntervals) -> Sample:
    """Return a run in blocks; *intervals* are those that it was recorded with."""
    requests = result.table("requests")
    measured = result.measured_requests()
    # Drawn from all requests of the workload: which of them come after the warm-up may depend on the variant.
    labels, blocks = _blocks(requests, result.measured_requests(with_warmup=True))
    workload = np.stack(
        [_per_block(labels, blocks, requests[name]) for name in ("prompt_tokens", "output_tokens")]
        + [np.bincount(labels[labels >= 0], minlength=blocks)],
        axis=1,
    ).astype(np.int64)
    if not blocks:
        return Sample(workload=workload, ratios={}, ranked={})
    done = measured & (requests["state"] == COMPLETED)
    kept: Columns = {name: column[done] for name, column in requests.items()}
    inside = labels[done]
    ratios = _request_ratios(result, kept, inside, blocks)
    window_s = measured_window(requests, measured)
    ratios["throughput.output_tokens_per_s"] = _throughput(kept, window_s[0], blocks)
    ratios |= _written(result, window_s, blocks)
    ranked = {"ttft_s": _ranked(kept["ttft_s"], inside, blocks)}
    ends_s, counts = intervals.windows()
    if len(counts) >= blocks:
        ranked["itl_s"] = Ranked(ends_s, np.add.reduceat(counts, np.arange(blocks) * len(counts) // blocks, axis=0))
    return Sample(workload=workload, ratios=ratios, ranked=ranked)


def _blocks(requests: Columns, chosen: Any) -> tuple[Ints, int]:
    """Return the block of every request, -1 for those that are not *chosen*, and the number of blocks, 0 for none."""
    labels: Ints = np.full(chosen.size, -1, dtype=np.int64)
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(requests["request_id"][rows], kind="stable")]
    session, number = requests["session_id"][rows], requests["request_id"][rows]
    alone = session == _NO_SESSION
    # Negative numbers are free for requests without a session.
    units = np.where(alone, -2 - number, session)
    _, first, unit, counts = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
    blocks = min(BLOCKS, rows.size // _REQUESTS_A_BLOCK, counts.size)
    if blocks < FEWEST_BLOCKS:
        return labels, 0
    order = np.argsort(first)
    before = np.empty_like(counts)
    before[order] = np.cumsum(counts[order]) - counts[order]
    labels[rows] = (before * blocks // rows.size)[unit]
    return labels, blocks


def _request_ratios(result: SimulationResult, done: Columns, labels: Ints, blocks: int) -> dict[str, Ratio]:
    def ratio(above: Any, below: Any) -> Ratio:
        return Ratio(_per_block(labels, blocks, above), _per_block(labels, blocks, below))

    one = np.ones(labels.size)
    found = {"ttft_s.mean": ratio(done["ttft_s"], one)}
    has_tpot = ~np.isnan(done["tpot_s"])
    found["tpot_s.mean"] = ratio(np.where(has_tpot, done["tpot_s"], 0.0), has_tpot)
    found |= {f"ttft_parts_s.{part}": ratio(done[f"{part}_s"], one) for part in _PARTS}
    hits = {tier: done[f"hit_tokens_{tier}"] for tier in result.summary_values["tiers"]}
    all_hits = sum(hits.values(), np.zeros(labels.size))
    found["hit_ratio_tokens"] = ratio(all_hits, done["prompt_tokens"])
    return found | {f"tiers.{tier}.hit_ratio": ratio(own, done["prompt_tokens"]) for tier, own in hits.items()}


def _throughput(done: Columns, from_s: float, blocks: int) -> Ratio:
    """Return tokens put out over time: blocks of as many requests, each from the end of the one before to its own."""
    order = np.argsort(done["finished_at_s"], kind="stable")
    cuts = np.arange(1, blocks + 1) * order.size // blocks
    tokens = np.cumsum(done["output_tokens"][order], dtype=np.float64)[cuts - 1]
    ends_s = done["finished_at_s"][order][cuts - 1]
    return Ratio(np.diff(tokens, prepend=0.0), np.diff(ends_s, prepend=from_s))


def _written(result: SimulationResult, window_s: tuple[float, float], blocks: int) -> dict[str, Ratio]:
    """Return the bytes written to each tier: the time of the run is cut into so many equal stretches."""
    from_s, to_s = window_s
    length_s = (to_s - from_s) / blocks
    if length_s <= 0.0:
        return {}

    def stretch(at_s: Floats) -> Ints:
        return np.clip(((at_s - from_s) / length_s).astype(np.int64), 0, blocks - 1)

    found = {}
    transfers = result.table("transfers")
    inside = (transfers["kind"] == _WRITE) & (transfers["started_at_s"] >= from_s) & (transfers["started_at_s"] <= to_s)
    for code, tier in enumerate(result.labels["transfers"]["tier"]):
        rows = inside & (transfers["tier"] == code)
        written = _per_block(stretch(transfers["started_at_s"][rows]), blocks, transfers["n_bytes"][rows])
        # The table of transfers is thinned in long runs, and the counter is not.
        total = result.summary_values["tiers"][tier]["write_bytes"]
        scale = total / written.sum() if written.any() else 0.0
        found[f"tiers.{tier}.write_bytes"] = Ratio(written * scale, np.full(blocks, 1.0 / blocks))
    return found


def _ranked(values: Floats, labels: Ints, blocks: int) -> Ranked:
    order = np.argsort(values, kind="stable")
    steps = min(_RANKS, values.size)
    step = np.arange(values.size) * steps // max(values.size, 1)
    counts = np.zeros((blocks, steps), dtype=np.int64)
    np.add.at(counts, (labels[order], step), 1)
    ends = values[order][np.flatnonzero(np.diff(step, append=steps))] if steps else values
    return Ranked(ends, counts)


def _per_block(labels: Ints, blocks: int, values: Any) -> Floats:
    inside = labels >= 0
    weights = np.asarray(values, dtype=np.float64)[inside]
    # Converted: without a single value numpy counts in whole numbers.
    return np.bincount(labels[inside], weights=weights, minlength=blocks).astype(np.float64)
