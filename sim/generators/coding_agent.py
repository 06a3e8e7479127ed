"""Coding agents at work, as in the kv-cache-tester sessions."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Final

from sim.generators.arrivals import in_poisson_order
from sim.generators.base import GENERATORS, SessionGenerator
from sim.generators.draws import LognormalMix, Steps, Streams, clipped, step
from sim.generators.turns import Cutter, Turn
from sim.traces.sessions import Session, Stream

# All figures down to the class: fitted to 710 sessions of kv-cache-tester (callanjfox/kv-cache-tester, traces v8,
# Apache-2.0), one team's use of Claude Code; lengths in tokens, times in seconds, pairs are (mu, sigma) and triples
# (weight, mu, sigma) of natural logs.
SESSION_RATE_PER_S: Final = 710 / (4 * 3600)
"""710 sessions over 4 hours; the source does not say when they started."""
_FRESH_SHARE: Final = 0.554
_FRESH_PROMPT, _RESUMED_PROMPT = (9.827, 0.248), LognormalMix(((0.649, 11.368, 0.372), (0.351, 12.633, 0.477)))
_MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS = 5000.0, 895_000.0
# Requests of a main agent: gamma for fresh sessions, shape and mean; lognormal for resumed ones, up to a prompt.
_FRESH_REQUESTS = (1.15, 87.0)
_RESUMED_REQUESTS = (3.57, 1.095)
_FAR_RESUMED_REQUESTS = (2.76, 1.014)
_FAR_PROMPT_TOKENS: Final = 130_000.0
_MIN_REQUESTS, _MAX_REQUESTS = 3, 350
# Some models take a million tokens; the others are at their limit below 200 thousand. By the first prompt and by the
# requests: a resumed session that goes on for long is with such a model.
_LONG_CONTEXT: Final[tuple[tuple[float, Steps], ...]] = (
    (40_000.0, ((math.inf, 0.09),)),
    (130_000.0, ((80.0, 0.2), (160.0, 0.5), (math.inf, 0.9))),
    (200_000.0, ((30.0, 0.5), (math.inf, 1.0))),
    (math.inf, ((math.inf, 1.0),)),
)
_SHORT_LIMIT_TOKENS: Final = 195_000.0
# The share of requests that a user writes, beta distributed over sessions; the others bring the result of a tool.
_USER_TURNS = (1.3, 20.0)
# Growth of the prompt from one request to the next, the answer between them included; it starts fast.
_TOOL_GROWTH = LognormalMix(((0.432, 5.885, 0.613), (0.568, 7.184, 1.045)))
_USER_GROWTH = LognormalMix(((0.542, 6.010, 0.690), (0.458, 6.875, 1.277)))
_FRESH_GROWTH_FACTOR: Steps = ((2.0, 8.2), (4.0, 2.9), (8.0, 1.65), (20.0, 1.1), (math.inf, 1.0))
_RESUMED_GROWTH_FACTOR: Steps = ((2.0, 1.9), (4.0, 1.5), (8.0, 1.2), (math.inf, 1.0))
_GROWTH_OF_SESSION = (0.02, 0.25)
_GROWTH_EXPONENT, _GROWTH_REQUESTS = -0.12, 150.0
"""Long sessions grow less at a time."""
_OUTPUT = LognormalMix(((0.63, 5.18, 0.53), (0.37, 6.21, 1.05)))
_MAX_OUTPUT_TOKENS: Final = 18_200.0
# Pauses before a request that brings a tool's result, and before one that a user writes (mu, sigma over sessions,
# sigma inside one): the time between two requests less what the answer took. The pauses that the source states agree,
# but for 153 sessions in which most requests are text that comes as fast as tool results do; there they are longer
# than the time between the requests, so these count as tool results here.
_TOOL_THINK = LognormalMix(((0.772, 1.916, 0.848), (0.228, 3.933, 1.453)))
_USER_THINK: Final = (4.90, 0.80, 1.95)
# Both are longer in long contexts, by the prompt before.
_TOOL_FACTOR: Steps = ((30_000.0, 0.75), (60_000.0, 0.87), (100_000.0, 1.0), (150_000.0, 1.25), (math.inf, 1.1))
_USER_FACTOR: Steps = ((30_000.0, 0.25), (60_000.0, 0.5), (100_000.0, 0.8), (150_000.0, 1.25), (math.inf, 1.3))
# What an answer took there, in place of which a simulation puts its own: s, s per output token, s per prompt token.
_SERVICE_S: Final = (1.3, 0.015, 1.5e-5)
# Resets, by the prompt before: the context is compacted, mostly at the limit, or written anew at about the same length.
_RESET: Steps = (
    (20_000.0, 0.021),
    (50_000.0, 0.018),
    (80_000.0, 0.0127),
    (125_000.0, 0.0101),
    (150_000.0, 0.026),
    (175_000.0, 0.097),
    (math.inf, 0.03),
)
_LONG_CONTEXT_RESET: Steps = ((125_000.0, 0.02), (150_000.0, 0.043), (math.inf, 0.015))
_COMPACTED: Steps = ((80_000.0, 0.08), (150_000.0, 0.33), (math.inf, 0.8))
_LONG_CONTEXT_COMPACTED: Final = 0.07
_COMPACTED_SHARE, _REWRITTEN_SHARE = (-1.35, 0.45), (0.01, 0.08)
_TOOLS_TOKENS = (9.50, 0.25)
"""The description of the tools and the system prompt, which a reset keeps (p10, p50, p90 of the source: 11.9, 14.9,
15.9 thousand with what the user set up)."""
_LOSES_ALL: Final = 0.08
# Sub-agents: the share of sessions that have any, then how many more, their requests, prompts and growth.
_SUB_AGENTS_SHARE, _ANOTHER_SUB_AGENT = 0.024, 0.73
_SUB_REQUESTS, _SUB_PROMPT, _SUB_GROWTH = (2.25, 0.48), (9.24, 0.12), (8.1, 1.1)
_MAX_SUB_AGENTS: Final = 200
# Prefixes shared between sessions: callanjfox/kv-cache-tester, traces v6, the only ones with ids that hold across
# sessions. Sessions by the first block; distinct prompts of 4096 tokens by their rank; tokens that a session shares.
_ROOT_SESSIONS: Final = (253, 77, 60, 22, 13, 11, 6, 5, 5, 2)
_N_VARIANTS, _VARIANT_EXPONENT, _ROOT_TOKENS = 60, 1.08, 2048.0
_SHARED_TOKENS, _MAX_SHARED_TOKENS = (9.63, 0.375), 40_000.0


@GENERATORS.register("coding-agent")
@dataclass(frozen=True, slots=True, kw_only=True)
class CodingAgentGenerator(SessionGenerator):
    """Coding agents at work: long prompts that grow, tools and users that take their time, compaction and sub-agents.

    A session is one agent's work: each prompt is the one before it with the answer and a tool's result or a user's
    text, until the context is compacted or written anew. Its trace is one of sessions: played in closed loop, a request
    follows the answer before it after a pause; played by arrival, answers take what they took in the source, about
    1.3 s + 15 ms per output token + 15 us per prompt token. Main agents do not wait for sub-agents: pauses hold that.

    710 sessions over 4 hours without shared prefixes, the mean of 5 seeds (the source in brackets): 49,300 requests
    (49,334); prompts p50 100 (104), p90 241 (234) thousand tokens; infinite-cache hit ratio .960 (.963); LRU with
    chunks of 2048 tokens at half of that with 3.45 (3.69) million tokens, at three quarters with 5.7 (6.2); time
    between uses p50 21 s (20 s), p90 127 s (128 s). One team's work: do not take it for everybody's.

    Parameters
    ----------
    seed
        Equal seeds give equal streams. Each kind of draw has a stream of its own and a session draws its turns when it
        starts, so with another rate or length the same sessions come, at other times or scaled.
    sessions
        Number of sessions to make; this or one of the next two.
    requests
        Number of requests to make.
    duration_s
        Time after which no request arrives [s].
    session_rate_per_s
        New sessions, a Poisson process [1/s]; about 69 requests each.
    rate_scale
        Everything happens this many times faster: arrivals and pauses of the same requests, in unchanged order.
    length_scale
        Factor on all prompts, outputs and shared prefixes; who does what when is left as it is, compaction too.
    block_tokens
        Size of the blocks that ids are given to [tokens].
    shared_prefixes
        Whether sessions start with one of 60 prompts of tools and system, of 10 families. That is how other sessions of
        that source share; the ones that lengths and times are fitted to have ids that hold inside a session only.
    resumed
        Whether 45 % of the sessions start with a long context, as work taken up again; otherwise all start fresh.
    """

    kind: ClassVar[str] = "coding-agent"
    session_rate_per_s: float = SESSION_RATE_PER_S
    block_tokens: int = 64
    sessions: int | None = None
    shared_prefixes: bool = True
    resumed: bool = True

    def _trace_options(self) -> dict[str, Any]:
        return {"n_sessions": self.sessions}

    def _sessions(self) -> Iterator[Session]:
        cutter = Cutter(
            block_tokens=self.block_tokens,
            length_scale=self.length_scale,
            rate_scale=self.rate_scale,
            partial_ids=False,
        )
        streams = Streams(self.seed)
        draws = _Draws(streams, 1.0 if not self.resumed else _FRESH_SHARE)
        prefixes = _SharedPrefixes(streams, cutter)

        def session(session_id: int, starts_at_s: float) -> Session:
            turns = draws.main_agent()
            root = prefixes.draw() if self.shared_prefixes else ()
            of_session = [cutter.stream(session_id, turns, root)]
            requests = len(turns)
            for number in range(1, draws.n_sub_agents() + 1):
                stream, n_turns = self._sub_agent(cutter, draws, session_id, turns, number)
                of_session.append(stream)
                requests += n_turns
            return Session(session_id=session_id, starts_at_s=starts_at_s, streams=tuple(of_session), requests=requests)

        return in_poisson_order(session, draws.session_gap, self.session_rate_per_s * self.rate_scale)

    def _sub_agent(
        self, cutter: Cutter, draws: "_Draws", session_id: int, main: list[Turn], number: int
    ) -> tuple[Stream, int]:
        after_turn = int(next(draws.after_turn) * len(main))
        delay_s = next(draws.tool_think_s)
        parent = main[after_turn]
        at_s = parent.at_s + _service_s(parent.prompt_tokens, parent.output_tokens) + delay_s
        turns = draws.sub_agent(at_s)
        return cutter.stream(session_id, turns, number=number, after_turn=after_turn, delay_s=delay_s), len(turns)


class _SharedPrefixes:
    """The tool and system prompts that sessions share: a few roots, each with variants, shared to a different depth."""

    def __init__(self, streams: Streams, cutter: Cutter) -> None:
        root = streams.uniform()
        of_root = list(accumulate(_ROOT_SESSIONS))
        n_root = cutter.shared_blocks(_ROOT_TOKENS)
        next_id = len(_ROOT_SESSIONS) * n_root
        n_own = max(cutter.shared_blocks(_MAX_SHARED_TOKENS) - n_root, 0)
        self._variants: list[list[int]] = []
        for _ in range(_N_VARIANTS):
            of = bisect_left(of_root, next(root) * of_root[-1])
            self._variants.append([*range(of * n_root, (of + 1) * n_root), *range(next_id, next_id + n_own)])
            next_id += n_own
        self._weights = list(accumulate(rank**-_VARIANT_EXPONENT for rank in range(1, _N_VARIANTS + 1)))
        self._variant = streams.uniform()
        self._tokens = streams.lognormal(*_SHARED_TOKENS)
        self._cutter = cutter

    def draw(self) -> Sequence[int]:
        """Return the shared blocks that a session's prompts start with."""
        variant = self._variants[bisect_left(self._weights, next(self._variant) * self._weights[-1])]
        return variant[: self._cutter.shared_blocks(next(self._tokens))]


class _Draws:
    """Draws the turns of agents; each kind of draw has a stream of its own, so that none shifts another."""

    def __init__(self, streams: Streams, fresh_share: float) -> None:
        self.session_gap = streams.exponential()  # times the session rate
        self.after_turn = streams.uniform()
        self.tool_think_s = streams.of(_TOOL_THINK.draw)
        self._fresh_share = fresh_share
        self._is_fresh = streams.uniform()
        self._fresh_prompt = streams.lognormal(*_FRESH_PROMPT)
        self._resumed_prompt = streams.of(_RESUMED_PROMPT.draw)
        shape, mean = _FRESH_REQUESTS
        self._fresh_requests = streams.of(lambda random, n: random.gamma(shape, mean / shape, n))
        self._requests = streams.normal()
        self._is_long = streams.uniform()
        self._user_turns = streams.beta(*_USER_TURNS)
        self._is_user = streams.uniform()
        self._tool_growth = streams.of(_TOOL_GROWTH.draw)
        self._user_growth = streams.of(_USER_GROWTH.draw)
        self._growth_of_session = streams.lognormal(*_GROWTH_OF_SESSION)
        self._output = streams.of(_OUTPUT.draw)
        self._user_of_session, self._user = streams.normal(), streams.normal()
        self._reset = streams.uniform()
        self._is_compacted = streams.uniform()
        self._compacted_share = streams.lognormal(*_COMPACTED_SHARE)
        self._rewritten_share = streams.lognormal(*_REWRITTEN_SHARE)
        self._tools_tokens = streams.lognormal(*_TOOLS_TOKENS)
        self._loses_all = streams.uniform()
        self._sub_agents = streams.uniform()
        self._sub_requests = streams.lognormal(*_SUB_REQUESTS)
        self._sub_prompt = streams.lognormal(*_SUB_PROMPT)
        self._sub_growth = streams.lognormal(*_SUB_GROWTH)

    def main_agent(self) -> list[Turn]:
        """Return the turns of a session's main agent."""
        is_fresh = next(self._is_fresh) < self._fresh_share
        first_tokens = next(self._fresh_prompt) if is_fresh else next(self._resumed_prompt)
        first_tokens = clipped(first_tokens, _MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS)
        n_requests = self._n_requests(is_fresh, first_tokens)
        by_requests = next(steps for below, steps in _LONG_CONTEXT if first_tokens < below)
        is_long = next(self._is_long) < step(by_requests, n_requests)
        user_turns = next(self._user_turns)
        growth = next(self._growth_of_session) * (n_requests / _GROWTH_REQUESTS) ** _GROWTH_EXPONENT
        growth_factor = _FRESH_GROWTH_FACTOR if is_fresh else _RESUMED_GROWTH_FACTOR
        mu, of_session, inside = _USER_THINK
        mu += of_session * next(self._user_of_session)
        tools_tokens = min(next(self._tools_tokens), first_tokens)
        turns = [Turn(0.0, math.nan, first_tokens, self._answer())]
        for number in range(2, n_requests + 1):
            before = turns[-1]
            is_user = next(self._is_user) < user_turns
            grown = next(self._user_growth if is_user else self._tool_growth) * growth
            prompt_tokens = before.prompt_tokens + grown * step(growth_factor, number - 0.5)
            kept_tokens = before.prompt_tokens
            if self._is_reset(before.prompt_tokens, prompt_tokens, is_long):
                is_user = True
                kept_tokens = 0.0 if next(self._loses_all) < _LOSES_ALL else tools_tokens
                prompt_tokens = max(self._new_context(before.prompt_tokens, is_long), tools_tokens, _MIN_PROMPT_TOKENS)
            if is_user:
                think_s = math.exp(mu + inside * next(self._user)) * step(_USER_FACTOR, before.prompt_tokens)
            else:
                think_s = next(self.tool_think_s) * step(_TOOL_FACTOR, before.prompt_tokens)
            turns.append(_following(before, think_s, prompt_tokens, self._answer(), kept_tokens))
        return turns

    def sub_agent(self, at_s: float) -> list[Turn]:
        """Return the turns of a sub-agent that starts at *at_s* [s] of its session; it waits for tools only."""
        turns = [Turn(at_s, math.nan, next(self._sub_prompt), self._answer())]
        for _ in range(1, round(max(next(self._sub_requests), _MIN_REQUESTS))):
            before = turns[-1]
            prompt_tokens = min(before.prompt_tokens + next(self._sub_growth), _SHORT_LIMIT_TOKENS)
            think_s = next(self.tool_think_s)
            turns.append(_following(before, think_s, prompt_tokens, self._answer(), before.prompt_tokens))
        return turns

    def n_sub_agents(self) -> int:
        """Return how many sub-agents a session has."""
        n = 0
        chance = _SUB_AGENTS_SHARE
        while n < _MAX_SUB_AGENTS and next(self._sub_agents) < chance:
            n, chance = n + 1, _ANOTHER_SUB_AGENT
        return n

    def _n_requests(self, is_fresh: bool, first_tokens: float) -> int:
        normal, gamma = next(self._requests), next(self._fresh_requests)
        mu, sigma = _RESUMED_REQUESTS if first_tokens < _FAR_PROMPT_TOKENS else _FAR_RESUMED_REQUESTS
        return round(clipped(gamma if is_fresh else math.exp(mu + sigma * normal), _MIN_REQUESTS, _MAX_REQUESTS))

    def _is_reset(self, before_tokens: float, prompt_tokens: float, is_long: bool) -> bool:
        limit_tokens = _MAX_PROMPT_TOKENS if is_long else _SHORT_LIMIT_TOKENS
        chance = step(_LONG_CONTEXT_RESET if is_long else _RESET, before_tokens)
        return next(self._reset) < chance or prompt_tokens > limit_tokens

    def _new_context(self, before_tokens: float, is_long: bool) -> float:
        chance = _LONG_CONTEXT_COMPACTED if is_long else step(_COMPACTED, before_tokens)
        is_compacted = next(self._is_compacted) < chance
        share = next(self._compacted_share) if is_compacted else min(next(self._rewritten_share), 1.5)
        return min(before_tokens * share, _MAX_PROMPT_TOKENS)

    def _answer(self) -> float:
        return clipped(next(self._output), 1.0, _MAX_OUTPUT_TOKENS)


def _following(before: Turn, think_s: float, prompt_tokens: float, output_tokens: float, kept_tokens: float) -> Turn:
    at_s = before.at_s + _service_s(before.prompt_tokens, before.output_tokens) + think_s
    return Turn(at_s, think_s, prompt_tokens, output_tokens, kept_tokens)


def _service_s(prompt_tokens: float, output_tokens: float) -> float:
    """Return what the answer took in the source [s]: least squares over calls of less than 120 s."""
    fixed_s, per_output_s, per_prompt_s = _SERVICE_S
    return fixed_s + per_output_s * output_tokens + per_prompt_s * prompt_tokens
