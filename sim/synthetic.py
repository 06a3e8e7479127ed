"""Synthetic workloads: requests drawn from fitted distributions instead of read from a file.

A generator is one class registered by `@GENERATORS.register(name)`. The one here imitates many people who chat. It says
nothing about coding agents or document question answering, whose reuse is of another kind.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import repeat
from typing import ClassVar, Protocol

import numpy as np

from models.errors import InputError
from sim.arrays import Floats
from sim.registry import Registry
from sim.traces.record import NO_ID, Trace, TraceRecord


class Generator(Protocol):
    """Makes a trace from a seed."""

    def trace(self) -> Trace:
        """Return the trace; equal parameters make equal traces."""
        ...


GENERATORS: Registry[Generator] = Registry("synthetic workload", requires=("trace",))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LognormalMix:
    """With probability *share* exp(N(mu, sigma)) of the first pair, else of the second."""

    share: float
    first: tuple[float, float]
    second: tuple[float, float]

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        """Return *n* values in the unit that the pairs were fitted in."""
        is_first = random.random(n) < self.share
        normal = random.standard_normal(n)
        (mu_1, sigma_1), (mu_2, sigma_2) = self.first, self.second
        return np.exp(np.where(is_first, mu_1 + sigma_1 * normal, mu_2 + sigma_2 * normal))


# All figures down to the class: fitted to the Mooncake FAST'25 conversation trace (kvcache-ai/Mooncake,
# FAST25-release/traces/conversation_trace.jsonl, Apache-2.0), one sampled hour of one provider's chat service, with
# sessions inferred from shared blocks; lengths in tokens, gaps in seconds, pairs are (mu, sigma) of natural logs.
SESSION_RATE_PER_S = 2.085
ROOT_TOKENS = 512
"""The system prompt that every request of that service starts with [tokens]."""
_FIRST_PROMPT = _LognormalMix(share=0.249, first=(6.91, 0.17), second=(9.04, 1.02))
_OUTPUT = _LognormalMix(share=0.31, first=(3.88, 1.62), second=(5.99, 0.40))
_GROWTH = _LognormalMix(share=0.42, first=(6.12, 0.37), second=(6.41, 1.88))
_MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS = 891.0, 126_000.0
_MAX_OUTPUT_TOKENS = 2000.0
# Uncensored: the gaps seen inside the hour are shorter, (4.87, 0.98), because it cuts off the long ones.
_GAP = (4.97, 1.03)
_REGENERATION_SHARE = 0.033
# Another turn after the first, by its prompt, and after the second, third, ... The last figure holds for all later
# turns too: the 0.92 seen from turn 9 on rests on 39 requests, and with 0.78 the generator was checked.
_ANOTHER_AFTER_FIRST = ((1200.0, 0.093), (40_000.0, 0.415), (math.inf, 0.28))
_ANOTHER_AFTER_LATER = (0.455, 0.57, 0.655, 0.69, 0.69, 0.78)
# A turn that keeps a part of its parent's prompt only, by that prompt; the part, and the prompt that it makes.
_BRANCH = ((2500.0, 0.0), (5000.0, 0.03), (8000.0, 0.06), (40_000.0, 0.27), (math.inf, 0.15))
_BRANCH_KEPT_BETA = (0.87, 1.60)
_BRANCH_PROMPT = (9.04, 1.0)

# Random numbers are drawn this many at a time: one by one they cost a microsecond each.
_BATCH = 4096


@GENERATORS.register("chat")
@dataclass(frozen=True, slots=True, kw_only=True)
class ChatGenerator:
    """Chat sessions of one or more turns over a common system prompt, as in the Mooncake conversation trace.

    Each turn's prompt is the one before it plus an answer and a question; some are sent again unchanged, some branch
    off and keep a part. Sessions start at 0 s with nobody on line, so the load builds up over the first ten minutes;
    the trace it is fitted to was cut from a running service but has no session that began before it either. One hour
    has an infinite-cache hit ratio of .37; a day has .42, because fewer sessions are cut off by its end.

    Known limit: blocks with more than 10 uses are 2.6 times rarer than in the trace, probably because long sessions
    should have long contexts more often; LFU comes out .02-.04 too low. Do not compare frequency-based policies on it.

    Parameters
    ----------
    seed
        Equal seeds give equal streams. Each kind of draw has a stream of its own and a session draws its turns when it
        starts, so with another rate or length the same sessions come, at other times or scaled.
    requests
        Number of requests to make; either this or *duration_s*.
    duration_s
        Time after which no request arrives [s]; either this or *requests*.
    session_rate_per_s
        New sessions, a Poisson process [1/s]; about 1.6 requests each.
    length_scale
        Factor on all prompts, outputs and the system prompt; who sends how many turns is left as it is.
    block_tokens
        Size of the blocks that ids are given to [tokens]. The system prompt is shared in whole blocks.
    arrival_quantum_s
        Arrivals are rounded down to multiples of this [s] (3 s in the trace), or not where None.
    """

    seed: int = 0
    requests: int | None = None
    duration_s: float | None = None
    session_rate_per_s: float = SESSION_RATE_PER_S
    length_scale: float = 1.0
    block_tokens: int = 512
    arrival_quantum_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse parameters that describe no workload; raises InputError."""
        if (self.requests is None) == (self.duration_s is None):
            raise InputError("a chat workload needs either requests or duration_s, and not both")
        _require(self.seed >= 0, "seed", self.seed, "0 or more")
        _require(self.requests is None or self.requests >= 1, "requests", self.requests, "at least 1")
        _require(self.block_tokens >= 1, "block_tokens", self.block_tokens, "at least 1")
        for name in ("duration_s", "session_rate_per_s", "length_scale", "arrival_quantum_s"):
            value = getattr(self, name)
            _require(value is None or 0 < value < math.inf, name, value, "above 0 and finite")

    def trace(self) -> "ChatTrace":
        """Return the requests as a trace that can be read any number of times."""
        return ChatTrace(generator=self)

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; memory grows with the sessions under way, not with the requests."""
        draws = _Draws(self.seed)
        ids = _BlockIds(self)
        waiting: list[tuple[float, int, _Session]] = []  # by the time of the next turn, then by age
        n_left = self.requests if self.requests is not None else math.inf
        until_s = self.duration_s if self.duration_s is not None else math.inf
        quantum_s = self.arrival_quantum_s
        session_id = 0
        starts_at_s = next(draws.session_gap) / self.session_rate_per_s
        while n_left > 0:
            if waiting and waiting[0][0] <= starts_at_s:
                at_s, _, session = waiting[0]
                turn = session.turns.pop()
                if session.turns:
                    heapreplace(waiting, (session.turns[-1].at_s, session.session_id, session))
                else:
                    heappop(waiting)
            else:
                at_s = starts_at_s
                session = _Session(session_id, _session_turns(draws, at_s))
                turn = session.turns.pop()
                if session.turns:
                    heappush(waiting, (session.turns[-1].at_s, session_id, session))
                session_id += 1
                starts_at_s += next(draws.session_gap) / self.session_rate_per_s
            if at_s >= until_s:
                return
            n_left -= 1
            stamp_s = at_s if quantum_s is None else at_s // quantum_s * quantum_s
            yield ids.record(session, turn, stamp_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTrace:
    """The requests of a `ChatGenerator`; every call of `records` draws them afresh."""

    generator: ChatGenerator
    has_prefixes: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The generator's name and seed."""
        return f"chat-seed-{self.generator.seed}"

    @property
    def block_tokens(self) -> int:
        """Size of the blocks [tokens]."""
        return self.generator.block_tokens

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival."""
        return self.generator.records()


@dataclass(slots=True)
class _Turn:
    """A turn as drawn, before lengths are scaled and cut into blocks; *kept_share* is of its parent's prompt."""

    at_s: float
    prompt_tokens: float
    output_tokens: float
    kept_share: float


class _Session:
    """A session under way: turns still to come, last first, and the blocks of the one before."""

    __slots__ = ("block_ids", "partial_block_id", "prompt_tokens", "session_id", "turns")

    def __init__(self, session_id: int, turns: list[_Turn]) -> None:
        self.session_id = session_id
        self.turns = turns
        self.block_ids: list[int] = []
        self.partial_block_id = NO_ID
        self.prompt_tokens = 0


class _Draws:
    """Endless streams of random numbers, one for each kind of draw, so that none shifts another."""

    def __init__(self, seed: int) -> None:
        children = iter(np.random.SeedSequence(seed).spawn(10))

        def stream(draw: Callable[[np.random.Generator, int], Floats]) -> Iterator[float]:
            return _batches(np.random.default_rng(next(children)), draw)

        def uniform() -> Iterator[float]:
            return stream(lambda random, n: random.random(n))

        def lognormal(mu_sigma: tuple[float, float]) -> Iterator[float]:
            return stream(lambda random, n: random.lognormal(*mu_sigma, n))

        self.session_gap = stream(lambda random, n: random.standard_exponential(n))  # times the rate
        self.first_prompt = stream(_FIRST_PROMPT.draw)
        self.output = stream(_OUTPUT.draw)
        self.another = uniform()
        self.gap_s = lognormal(_GAP)
        self.branch = uniform()
        self.branch_kept = stream(lambda random, n: random.beta(*_BRANCH_KEPT_BETA, n))
        self.branch_prompt = lognormal(_BRANCH_PROMPT)
        self.regeneration = uniform()
        self.growth = stream(_GROWTH.draw)


def _batches(random: np.random.Generator, draw: Callable[[np.random.Generator, int], Floats]) -> Iterator[float]:
    for n in repeat(_BATCH):
        yield from draw(random, n).tolist()


def _session_turns(draws: _Draws, at_s: float) -> list[_Turn]:
    """Return the turns of a session that starts at *at_s* [s], last first."""
    prompt_tokens = min(max(next(draws.first_prompt), _MIN_PROMPT_TOKENS), _MAX_PROMPT_TOKENS)
    turns = [_Turn(at_s, prompt_tokens, next(draws.output), 0.0)]
    another = _step(_ANOTHER_AFTER_FIRST, prompt_tokens)
    while next(draws.another) < another:
        at_s += next(draws.gap_s)
        kept_share = 1.0
        if next(draws.branch) < _step(_BRANCH, prompt_tokens):
            kept_share = next(draws.branch_kept)
            prompt_tokens = max(next(draws.branch_prompt), kept_share * prompt_tokens, _MIN_PROMPT_TOKENS)
        elif next(draws.regeneration) >= _REGENERATION_SHARE:
            prompt_tokens += next(draws.growth)
        if prompt_tokens > _MAX_PROMPT_TOKENS:
            # The fits do not say what a conversation does at the limit. Ending it there leaves as few prompts at the
            # limit as the trace has, and a hit ratio of .371 +- .004 in place of .378 (.366 in the trace).
            break
        turns.append(_Turn(at_s, prompt_tokens, next(draws.output), kept_share))
        another = _ANOTHER_AFTER_LATER[min(len(turns) - 2, len(_ANOTHER_AFTER_LATER) - 1)]
    turns.reverse()
    return turns


def _step(table: tuple[tuple[float, float], ...], value: float) -> float:
    """Return the entry of the first row whose bound is above *value*."""
    for below, entry in table:
        if value < below:
            return entry
    return table[-1][1]


class _BlockIds:
    """Cuts turns into blocks and gives out ids in order of first use, the common root first."""

    def __init__(self, generator: ChatGenerator) -> None:
        self._block_tokens = generator.block_tokens
        self._length_scale = generator.length_scale
        self._root = list(range(int(ROOT_TOKENS * generator.length_scale) // generator.block_tokens))
        self._next_id = len(self._root)

    def record(self, session: _Session, turn: _Turn, arrived_at_s: float) -> TraceRecord:
        """Return the request that *turn* makes, and leave its blocks in *session* for the next one."""
        prompt_tokens = max(round(turn.prompt_tokens * self._length_scale), 1)
        output_tokens = max(round(min(turn.output_tokens, _MAX_OUTPUT_TOKENS) * self._length_scale), 1)
        n_blocks, rest_tokens = divmod(prompt_tokens, self._block_tokens)
        parent = session.block_ids
        n_kept = min(int(turn.kept_share * len(parent)), n_blocks)
        block_ids = parent[:n_kept] if n_kept > len(self._root) else self._root[:n_blocks]
        # A prompt sent again is the same to the last token; any other leaves a last block that nobody shares.
        unchanged = turn.kept_share == 1.0 and prompt_tokens == session.prompt_tokens
        partial_block_id = session.partial_block_id if unchanged else NO_ID
        first_new = self._next_id
        self._next_id += n_blocks - len(block_ids)
        block_ids.extend(range(first_new, self._next_id))
        if rest_tokens and partial_block_id == NO_ID:
            partial_block_id = self._next_id
            self._next_id += 1
        if session.turns:
            session.block_ids = block_ids.copy()  # the record's own list is its reader's to change
            session.partial_block_id = partial_block_id
            session.prompt_tokens = prompt_tokens
        return TraceRecord(arrived_at_s, prompt_tokens, output_tokens, block_ids, session.session_id, partial_block_id)


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise InputError(f"chat workload: {name} is {value}; must be {allowed}")
