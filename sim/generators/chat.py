"""Many people who chat, as in the Mooncake conversation trace."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from sim.generators.arrivals import in_poisson_order
from sim.generators.base import GENERATORS, SessionGenerator
from sim.generators.draws import LognormalMix, Steps, Streams, clipped, step
from sim.generators.turns import Cutter, Turn
from sim.traces.sessions import Session

# All figures down to the class: fitted to the Mooncake FAST'25 conversation trace (kvcache-ai/Mooncake,
# FAST25-release/traces/conversation_trace.jsonl, Apache-2.0), one sampled hour of one provider's chat service, with
# sessions inferred from shared blocks; lengths in tokens, gaps in seconds, pairs are (mu, sigma) of natural logs.
# Chances and gaps are as they would be without the end of the hour: each is divided by the chance to see it before.
SESSION_RATE_PER_S: Final = 2.085
ROOT_TOKENS: Final = 512
"""The system prompt that every request of that service starts with [tokens]."""
# KS .019. The first component is one program's: a prompt of 891 to 911 tokens, asked once.
_FIRST_PROMPT = LognormalMix(
    (
        (0.117, 6.803, 0.007),
        (0.126, 6.951, 0.109),
        (0.075, 7.370, 0.141),
        (0.320, 8.528, 0.438),
        (0.204, 9.539, 0.458),
        (0.158, 10.182, 0.747),
    )
)
_OUTPUT = LognormalMix(((0.31, 3.88, 1.62), (0.69, 5.99, 0.40)))
_MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS = 891.0, 126_000.0
_MAX_OUTPUT_TOKENS = 2000.0
_GAP = LognormalMix(((0.14, 4.278, 0.322), (0.86, 5.08, 1.08)))
# After a long prompt people take longer: the median is this much higher.
_GAP_FACTOR: Steps = ((40_000.0, 1.0), (math.inf, 1.4))

# A session goes on in one of three ways, and mostly in the same one as before. That is what gives a few blocks very
# many uses: steady sessions grow little and stay, the others bring in much text at a time and leave or drop it again.
_STEADY, _JUMP, _BRANCH = range(3)
"""A turn that adds up to 2000 tokens to the prompt, or more, or that keeps only a part of it."""
# The second turn, by the first prompt: the chance of a jump, and of a branch.
_JUMP_SECOND: Steps = ((2500.0, 0.08), (8000.0, 0.34), (20_000.0, 0.215), (40_000.0, 0.092), (math.inf, 0.049))
_BRANCH_SECOND: Steps = ((2500.0, 0.0), (5000.0, 0.042), (8000.0, 0.066), (40_000.0, 0.30), (math.inf, 0.11))
# Later turns, by the turn before: the chance of a jump, and of a branch.
_JUMP_AFTER: Final = {_STEADY: 0.083, _JUMP: 0.178, _BRANCH: 0.094}
_BRANCH_AFTER: Final = {_STEADY: 0.012, _JUMP: 0.518, _BRANCH: 0.683}
# The chance of another turn: after the first by its prompt, then by how the last one went and its number (2, 3, ...;
# the last entry holds for all later turns too).
_ANOTHER_FIRST: Steps = ((1024.0, 0.014), (2500.0, 0.461), (5000.0, 0.379), (40_000.0, 0.402), (math.inf, 0.265))
_ANOTHER_AFTER: Final = {
    _STEADY: (0.526, 0.577, 0.631, 0.683, 0.747, 0.797, 0.797, 0.927),
    _JUMP: (0.202, 0.344, 0.58, 0.58, 0.63, 0.797, 0.797, 0.927),
    _BRANCH: (0.477, 0.587, 0.63, 0.63, 0.63, 0.797, 0.797, 0.927),
}
# Steady growth: a session's median, and the spread of its turns around that; some prompts are sent again unchanged.
_GROWTH_OF_SESSION = (5.78, 0.667)
_GROWTH_SIGMA: Final = 0.745
_REGENERATION_SHARE: Final = 0.036
_JUMP_GROWTH = LognormalMix(((0.705, 8.398, 0.422), (0.295, 9.206, 0.669)))
_MOST_STEADY_TOKENS: Final = 2000.0
# What the first branch of a row keeps of its prompt; the later ones keep that and grow steadily. The new prompt is as
# long as the old one, times a factor.
_KEPT_SHARE = (-1.853, 0.811)
_DEEP_KEPT_SHARE: Final = (
    0.924  # of those that change the end of the prompt only: by the prompt, or after a steady turn
)
_DEEP: Steps = ((8000.0, 0.53), (40_000.0, 0.12), (math.inf, 0.5))
_DEEP_AFTER_STEADY: Final = 0.83
_LEAST_KEPT_TOKENS: Final = 1024.0  # the system prompt and a block: with less, the trace does not show a branch
_BRANCH_FACTOR = (-0.058, 0.388)


@GENERATORS.register("chat")
@dataclass(frozen=True, slots=True, kw_only=True)
class ChatGenerator(SessionGenerator):
    """Chat sessions of one or more turns over a common system prompt, as in the Mooncake conversation trace.

    Each turn's prompt is the one before it plus an answer and a question; some are sent again unchanged, some bring in
    a long text, some drop what they brought in and keep a part. Sessions start at 0 s with nobody on line, so the load
    builds up over the first ten minutes; the trace it is fitted to was cut from a running service but has no session
    that began before it either. Use `sessions` of the trace for whole sessions; the pause before a turn is the gap
    between arrivals, as the source does not say when answers ended.

    Over an hour, the mean of 12 seeds (the trace in brackets): infinite-cache hit ratio .362 (.366); at 3, 10, 20, 40
    thousand blocks LRU .069/.212/.292/.342 (.065/.212/.288/.351), FIFO within .012, LFU .101/.175/.239/.308
    (.118/.188/.249/.314); time between uses p50 107 s (114 s). A longer run has a higher hit ratio, because fewer
    sessions are cut off by its end. What remains of LFU: .28 % of blocks have more than 10 uses, against .50 %. In the
    trace two thirds of those belong to nine sessions of 13 to 27 requests that began with 15 to 80 thousand tokens,
    which is too few to fit.

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
    rate_scale
        Everything happens this many times faster: arrivals and pauses of the same requests, in unchanged order.
    length_scale
        Factor on all prompts, outputs and the system prompt; who sends how many turns is left as it is.
    block_tokens
        Size of the blocks that ids are given to [tokens]. The system prompt is shared in whole blocks.
    arrival_quantum_s
        Arrivals are rounded down to multiples of this [s] (3 s in the trace), or not where None.
    """

    kind: ClassVar[str] = "chat"
    session_rate_per_s: float = SESSION_RATE_PER_S
    arrival_quantum_s: float | None = None

    def _trace_options(self) -> dict[str, Any]:
        return {"arrival_quantum_s": self.arrival_quantum_s}

    def _sessions(self) -> Iterator[Session]:
        cutter = Cutter(block_tokens=self.block_tokens, length_scale=self.length_scale, rate_scale=self.rate_scale)
        root = range(cutter.shared_blocks(ROOT_TOKENS))
        draws = ChatDraws(Streams(self.seed))

        def session(session_id: int, starts_at_s: float) -> Session:
            return cutter.session(session_id, starts_at_s, draws.session(), root)

        return in_poisson_order(session, draws.session_gap, self.session_rate_per_s * self.rate_scale)


class ChatDraws:
    """Draws chat sessions from *streams*; each kind of draw has a stream of its own, so that none shifts another."""

    def __init__(self, streams: Streams) -> None:
        self.session_gap = streams.exponential()  # times the session rate
        self._first_prompt = streams.of(_FIRST_PROMPT.draw)
        self._output = streams.of(_OUTPUT.draw)
        self._another = streams.uniform()
        self._gap_s = streams.of(_GAP.draw)
        self._way = streams.uniform()
        self._regeneration = streams.uniform()
        self._growth_of_session = streams.lognormal(*_GROWTH_OF_SESSION)
        self._growth = streams.lognormal(0.0, _GROWTH_SIGMA)
        self._jump = streams.of(_JUMP_GROWTH.draw)
        self._kept_share = streams.lognormal(*_KEPT_SHARE)
        self._deep = streams.uniform()
        self._branch_factor = streams.lognormal(*_BRANCH_FACTOR)

    def session(self) -> list[Turn]:
        """Return the turns of one session."""
        prompt_tokens = clipped(next(self._first_prompt), _MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS)
        turns = [Turn(0.0, math.nan, prompt_tokens, self._answer())]
        growth_of_session = next(self._growth_of_session)
        another = step(_ANOTHER_FIRST, prompt_tokens)
        jump, branch = step(_JUMP_SECOND, prompt_tokens), step(_BRANCH_SECOND, prompt_tokens)
        way, at_s, stays_tokens, goes_tokens = _STEADY, 0.0, 0.0, 0.0
        while next(self._another) < another:
            gap_s = next(self._gap_s) * step(_GAP_FACTOR, prompt_tokens)
            at_s += gap_s
            before, way = way, self._next_way(jump, branch)
            kept_tokens = prompt_tokens
            steady_tokens = min(growth_of_session * next(self._growth), _MOST_STEADY_TOKENS)
            if way == _BRANCH:
                kept_tokens = stays_tokens + steady_tokens
                if before != _BRANCH:
                    after_steady = before == _STEADY and len(turns) > 1
                    deep = _DEEP_AFTER_STEADY if after_steady else step(_DEEP, prompt_tokens)
                    share = _DEEP_KEPT_SHARE if next(self._deep) < deep else next(self._kept_share)
                    kept_tokens = share * prompt_tokens
                    kept_tokens = min(max(kept_tokens, _LEAST_KEPT_TOKENS), prompt_tokens)
                    goes_tokens = prompt_tokens - kept_tokens
                stays_tokens = kept_tokens
                prompt_tokens = max(kept_tokens + goes_tokens * next(self._branch_factor), _MIN_PROMPT_TOKENS)
            elif way == _JUMP:
                prompt_tokens += max(next(self._jump), _MOST_STEADY_TOKENS)
            elif next(self._regeneration) < _REGENERATION_SHARE:
                kept_tokens = math.inf
            else:
                prompt_tokens += steady_tokens
            if prompt_tokens > _MAX_PROMPT_TOKENS:
                # The fits do not say what a conversation does at the limit. Ending it there leaves as few prompts at
                # the limit as the trace has.
                break
            turns.append(Turn(at_s, gap_s, prompt_tokens, self._answer(), kept_tokens))
            chances = _ANOTHER_AFTER[way]
            another = chances[min(len(turns) - 2, len(chances) - 1)]
            jump, branch = _JUMP_AFTER[way], _BRANCH_AFTER[way]
        return turns

    def _answer(self) -> float:
        return clipped(next(self._output), 1.0, _MAX_OUTPUT_TOKENS)

    def _next_way(self, jump: float, branch: float) -> int:
        at = next(self._way)
        return _JUMP if at < jump else _BRANCH if at < jump + branch else _STEADY
