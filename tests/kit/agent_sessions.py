"""Many agent sessions at once, as one stream of requests: what a cache of chunks of 2048 tokens sees of them."""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.traces.sessions import SessionTrace, placed, uniform_starts
from sim.traces.stack_distance import lru_stack_distances, previous_references

CHUNK_TOKENS = 2048
OVER_S = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Sorted LRU stack distances [chunks], times between uses [s], lengths [tokens] and counts."""

    distances: NDArray[np.int64]
    references: int
    reuse_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    @property
    def infinite_hit_ratio(self) -> float:
        return len(self.distances) / self.references

    def hit_ratio(self, capacity_tokens: float) -> float:
        return float(np.searchsorted(self.distances, capacity_tokens / CHUNK_TOKENS) / self.references)

    def capacity_tokens(self, share: float) -> float:
        """The least capacity at which LRU hits this share of what an infinite cache hits: the knee, at one half."""
        return float(self.distances[int(share * len(self.distances))] + 1) * CHUNK_TOKENS


def composite(trace: SessionTrace, seed: int) -> Composite:
    """All sessions of *trace*, started evenly over 4 hours; requests come when the pauses of the trace say."""
    per_chunk = CHUNK_TOKENS // trace.block_tokens
    starts_s = uniform_starts(sum(1 for _ in trace.sessions()), OVER_S, np.random.default_rng(seed))
    chunks, counts, at_s = array("q"), array("q"), array("d")
    prompt_tokens, output_tokens = array("q"), array("q")
    for record in placed(trace, starts_s).records():
        # Hashes chain, so the id of a chunk's last block stands for it. Tail first: a prompt's head is used last.
        ids: Any = record.block_ids[per_chunk - 1 :: per_chunk]
        chunks.extend(reversed(ids))
        counts.append(len(ids))
        at_s.append(record.arrived_at_s)
        prompt_tokens.append(record.prompt_tokens)
        output_tokens.append(record.output_tokens)
    previous = previous_references(np.frombuffer(chunks, dtype=np.int64))
    used_at_s = np.repeat(np.frombuffer(at_s), np.frombuffer(counts, dtype=np.int64))
    again = previous >= 0
    return Composite(
        distances=np.sort(lru_stack_distances(previous)),
        references=len(chunks),
        reuse_s=used_at_s[again] - used_at_s[previous[again]],
        prompt_tokens=np.frombuffer(prompt_tokens, dtype=np.int64),
        output_tokens=np.frombuffer(output_tokens, dtype=np.int64),
    )
