"""Requests drawn client by client from ServeGen's statistics of a service."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from typing import ClassVar, Final

import numpy as np

from models.errors import InputError
from sim.generators.base import GENERATORS, check_parameters, require
from sim.traces.record import TraceRecord
from sim.traces.servegen_files import ArrivalWindow, Distribution, ServeGenClient, read_clients

_KIND: Final = "servegen"
_INPUT, _OUTPUT = "input_tokens", "output_tokens"
_MISSING_LENGTHS: Final = ("refuse", "borrow", "skip")
# Lengths are drawn this many at a time.
_BATCH: Final = 256
# exp of more is no float.
_MAX_LOG: Final = 700.0

_Request = tuple[float, int, int, int]
"""Arrival on the recording's clock [s], index of the client, prompt and output [tokens]."""


@GENERATORS.register("servegen")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGenGenerator:
    """Requests of a service's clients, each with a rate, bursts and lengths of its own, from ServeGen's client files.

    A client is a renewal process: the gaps of a window are Gamma or Weibull distributed with the shape in the file, and
    their mean is one over its rate. A gap that reaches into the next window goes on there at that window's rate, and
    the first one has begun before the start, so that mean rates are those in the files. Lengths are drawn from the
    client's distributions of that time, input and output independently, since the files hold no more. There is no
    prefix information: no request can hit.

    Source of method and data: alibaba/ServeGen (Apache-2.0); Y. Xiang et al., "ServeGen: Workload Characterization and
    Generation of Large Language Model Serving in Production", arXiv 2505.09999.

    Parameters
    ----------
    path
        A folder or a tar archive of client files, as `sim.traces.servegen_files` describes them.
    seed
        Equal seeds give equal streams. Each client has streams of its own.
    requests
        Number of requests to make at most; either this or *duration_s*. The end of the files ends the trace.
    duration_s
        Time after which no request arrives [s]; either this or *requests*.
    from_s
        Where on the recording's clock to start [s]; arrivals count from there.
    session_rate_per_s
        Total rate [1/s], a mean over the part of the recording that is used, that all clients are scaled to alike, or
        None to leave them as they are. Windows stay as long as they are.
    rate_scale
        Everything happens this many times faster: arrivals of the same requests, in unchanged order.
    length_scale
        Factor on all lengths.
    block_tokens
        Size of the blocks [tokens] that prompts, none of which shares any, are counted in.
    missing_lengths
        What to do with clients that have rates and no lengths: "refuse", "borrow" those of a random client that has
        some, or "skip" the client.
    """

    path: str | PathLike[str]
    seed: int = 0
    requests: int | None = None
    duration_s: float | None = None
    from_s: float = 0.0
    session_rate_per_s: float | None = None
    rate_scale: float = 1.0
    length_scale: float = 1.0
    block_tokens: int = 512
    missing_lengths: str = "refuse"

    def __post_init__(self) -> None:
        """Refuse parameters that describe no workload; raises InputError."""
        check_parameters(self, _KIND)
        require(0 <= self.from_s < math.inf, _KIND, "from_s", self.from_s, "0 or more and finite")
        holds = self.missing_lengths in _MISSING_LENGTHS
        require(holds, _KIND, "missing_lengths", self.missing_lengths, " or ".join(_MISSING_LENGTHS))

    def trace(self) -> "ServeGenTrace":
        """Return the requests as a trace that can be read any number of times; raises TraceError for bad files.

        Raises InputError where no client sends anything, or where clients have no lengths and that is refused.
        """
        until_s = math.inf if self.duration_s is None else self.from_s + self.duration_s * self.rate_scale
        clients = read_clients(self.path, from_s=self.from_s, until_s=until_s)
        clients = [client for client in clients if client.arrivals]
        if not clients:
            raise InputError(f"{_KIND} workload: no client of {self.path} sends anything from {self.from_s:g} s on")
        return ServeGenTrace(generator=self, clients=tuple(self._with_lengths(clients)), until_s=until_s)

    def _with_lengths(self, clients: list[ServeGenClient]) -> Iterator[ServeGenClient]:
        for client in clients:
            for field in (_INPUT, _OUTPUT):
                if any(field not in window.fields for window in client.lengths):
                    raise InputError(f"{_KIND} workload: {self.path} has no {field} of client {client.client_id}")
        known = [client for client in clients if client.lengths]
        missing = [str(client.client_id) for client in clients if not client.lengths]
        if missing and (not known or self.missing_lengths == "refuse"):
            clue = "no client has any" if not known else "borrow or skip them with missing_lengths"
            listed = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise InputError(f"{_KIND} workload: {self.path} has no lengths of client {listed}; {clue}")
        random = np.random.default_rng(self.seed)
        for client in clients:
            if client.lengths:
                yield client
            elif self.missing_lengths == "borrow":
                lengths = known[int(random.integers(len(known)))].lengths
                yield ServeGenClient(client_id=client.client_id, arrivals=client.arrivals, lengths=lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGenTrace:
    """The requests of a `ServeGenGenerator`; every call of `records` draws them afresh."""

    generator: ServeGenGenerator
    clients: tuple[ServeGenClient, ...]
    until_s: float
    has_prefixes: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The generator's name and seed."""
        return f"{_KIND}-seed-{self.generator.seed}"

    @property
    def block_tokens(self) -> int:
        """Size of the blocks [tokens]."""
        return self.generator.block_tokens

    @property
    def rate_per_s(self) -> float:
        """Mean rate of all clients together in the files, over the time that the trace covers at most [1/s]."""
        from_s = self.generator.from_s
        until_s = min(max(client.arrivals[-1].ends_at_s for client in self.clients), self.until_s)
        expected = sum(
            window.rate_per_s * (min(window.ends_at_s, until_s) - max(window.starts_at_s, from_s))
            for client in self.clients
            for window in client.arrivals
        )
        return expected / (until_s - from_s)

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; memory does not grow with them."""
        generator = self.generator
        until_s = math.inf if generator.duration_s is None else generator.duration_s
        wanted_per_s = generator.session_rate_per_s
        factor = 1.0 if wanted_per_s is None else wanted_per_s / self.rate_per_s
        seeds = np.random.SeedSequence(generator.seed).spawn(len(self.clients))
        streams = [
            _requests(client, index, factor, generator.from_s, seed)
            for index, (client, seed) in enumerate(zip(self.clients, seeds, strict=True))
        ]
        for at_s, _, prompt_tokens, output_tokens in islice(heapq.merge(*streams), generator.requests):
            arrived_at_s = (at_s - generator.from_s) / generator.rate_scale
            if arrived_at_s >= until_s:
                return
            yield TraceRecord(
                arrived_at_s,
                max(round(prompt_tokens * generator.length_scale), 1),
                max(round(output_tokens * generator.length_scale), 1),
                [],
            )


def _requests(
    client: ServeGenClient, index: int, factor: float, from_s: float, seed: np.random.SeedSequence
) -> Iterator[_Request]:
    """Yield the requests of one client, its rates times *factor*, in order."""
    of_gaps, of_lengths = (np.random.default_rng(child) for child in seed.spawn(2))
    lengths: dict[int, Iterator[int]] = {}

    def length(of: Distribution) -> int:
        # A distribution lives as long as its client, so its address stands for it.
        stream = lengths.get(id(of))
        if stream is None:
            stream = lengths[id(of)] = _values(of, of_lengths)
        return next(stream)

    for at_s in _arrivals(client.arrivals, factor, from_s, of_gaps):
        fields = client.lengths_at(at_s)
        assert fields is not None  # clients without lengths are sorted out before
        yield at_s, index, length(fields[_INPUT]), length(fields[_OUTPUT])


def _arrivals(
    windows: tuple[ArrivalWindow, ...], factor: float, from_s: float, random: np.random.Generator
) -> Iterator[float]:
    """Yield arrivals [s]: each gap is drawn in units of its mean, which the windows that it spans make times of."""
    left = _rest_of_gap(windows[0], random)
    for window in windows:
        at_s, rate_per_s = max(window.starts_at_s, from_s), factor * window.rate_per_s
        gap = partial(_gap, window, random)
        while at_s + left / rate_per_s < window.ends_at_s:
            at_s += left / rate_per_s
            yield at_s
            left = gap()
        left -= (window.ends_at_s - at_s) * rate_per_s


def _gap(window: ArrivalWindow, random: np.random.Generator) -> float:
    """Return a gap of mean 1."""
    if window.family == "Gamma":
        return float(random.standard_gamma(window.shape)) / window.shape
    return _weibull(window.shape, float(random.standard_exponential()))


def _rest_of_gap(window: ArrivalWindow, random: np.random.Generator) -> float:
    """Return what is left, at a random moment, of the gap that it falls into: a random part of a gap drawn by length.

    Drawn by length, a Gamma gap is Gamma with one more in its shape, and the power *shape* of a Weibull gap is Gamma
    with shape 1 + 1 / shape (both follow from the density times the length).
    """
    shape, part = window.shape, float(random.random())
    if window.family == "Gamma":
        return part * float(random.standard_gamma(shape + 1)) / shape
    return part * _weibull(shape, float(random.standard_gamma(1 + 1 / shape)))


def _weibull(shape: float, power: float) -> float:
    """Return power ** (1 / shape) over the mean of a Weibull gap of scale 1; in logarithms, for shapes near 0."""
    return math.exp(min(math.log(max(power, 1e-300)) / shape - math.lgamma(1 + 1 / shape), _MAX_LOG))


def _values(of: Distribution, random: np.random.Generator) -> Iterator[int]:
    while True:
        yield from random.choice(of.values, _BATCH, p=of.probabilities).astype(np.int64).tolist()
