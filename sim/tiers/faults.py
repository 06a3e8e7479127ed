"""Loads that fail: what says whether a read of a tier brings its bytes."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, Protocol

from sim.runs import Runs


class Read(NamedTuple):
    """A read of a tier whose time is up [s], from which chunk of a prompt on it was, for whom, and its keys there.

    ``attempt`` counts the loads of a request from 1; it is -1 for a prefetch.
    """

    request_id: int
    attempt: int
    first_chunk: int
    began_s: float
    ended_s: float
    keys: Runs = ()


class LoadFault(Protocol):
    """Say which reads of a tier fail. Asked once for each read, when its last byte would have arrived.

    So a failure costs the time of the whole read, as an error on completion or a time-out does.
    """

    def fails(self, read: Read) -> bool:
        """Return whether nothing of this read is usable."""
        ...


class RandomFault:
    """Reads fail independently, each with the same probability.

    Whether one does follows from the seed, the tier's name and which read of which request it is, not from what others
    do or how long it takes: variants of a run have the same bad luck, and a higher probability adds failures to those
    of a lower one.

    Parameters
    ----------
    probability : float
        Of a failure, 0 to 1.
    seed : int
        Of the run.
    tier : str
        The tier's name.
    """

    __slots__ = ("_key", "_limit")

    def __init__(self, probability: float, seed: int, tier: str) -> None:
        self._limit = int(probability * 2.0**64)
        self._key = blake2b(f"{seed} {tier}".encode(), digest_size=32).digest()

    def fails(self, read: Read) -> bool:
        """Return whether the number drawn for this read lies below the probability."""
        name = f"{read.request_id} {read.attempt} {read.first_chunk}".encode()
        return int.from_bytes(blake2b(name, digest_size=8, key=self._key).digest(), "big") < self._limit
