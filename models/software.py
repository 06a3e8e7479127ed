"""The ceiling that software puts on a load: pieces read in rounds, by one process a GPU."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwarePath:
    """How the engine's connector moves chunks: `in_flight` at once, `software_s` of its own time a round.

    `stream_bytes_per_s` limits one chunk in flight and `process_bytes_per_s` one reading process; None means no limit.
    """

    in_flight: int
    software_s: float
    stream_bytes_per_s: float | None = None
    process_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.in_flight < 1 or self.software_s < 0:
            raise ValueError("in_flight must be at least 1 and software_s at least 0")
        if any(rate is not None and rate <= 0 for rate in (self.stream_bytes_per_s, self.process_bytes_per_s)):
            raise ValueError("rates must be above 0; None means no limit")

    def ceiling_bytes_per_s(self, *, chunks: int, chunk_bytes: float, processes: float) -> float:
        """Return the highest rate of a load, all processes together [B/s]; inf without a limit.

        Each of *processes* workers (one a GPU, one file each a chunk; GPUs that hold the same KV count as one) moves
        *chunks* pieces of chunk_bytes / processes in ceil(chunks / in_flight) rounds of software_s + piece / stream.
        One law for LMCache as shipped (one in flight) and with the parallel-read patch (32): Mingxin R1, 0.98 against
        5.23 GB/s, and LMCache pull request 2850, 1 against 4 threads.
        """
        if chunks < 1:
            return math.inf
        piece_bytes = chunk_bytes / processes
        round_s = self.software_s
        if self.stream_bytes_per_s is not None:
            round_s += piece_bytes / self.stream_bytes_per_s
        ceiling = math.inf if self.process_bytes_per_s is None else processes * self.process_bytes_per_s
        if round_s <= 0:
            return ceiling
        rounds = -(-chunks // self.in_flight)
        return min(ceiling, chunks * chunk_bytes / (rounds * round_s))
