"""A mix of chat and two programs that send one-shot requests, after what little is public of Mooncake's tool trace."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final

from sim.generators.arrivals import in_poisson_order
from sim.generators.base import GENERATORS, SessionGenerator
from sim.generators.chat import ROOT_TOKENS, ChatDraws
from sim.generators.draws import Streams
from sim.generators.turns import Cutter, Turn
from sim.traces.sessions import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """Requests of one program: a fixed prefix, a prompt and an output uniform between two lengths [tokens]."""

    prefix_tokens: float
    prompt_tokens: tuple[float, float]
    output_tokens: tuple[float, float]
    short_output_share: float = 0.0
    """The share of requests with an output of `_SHORT_OUTPUT_TOKENS`; the source does not say it, so it is even."""


# Read off 94 consecutive rows of the Mooncake FAST'25 toolagent trace (kvcache-ai/Mooncake, Apache-2.0), 12 s of an
# hour of 23,608 requests: 37 % start with a prefix of 12 blocks of 512 tokens, 14 % with one of 5, 49 % with the block
# that chat requests start with, of which 17 of 46 hit deeper. The shares are known to +- 5 points.
_PROGRAMS: Final = (
    _Program(prefix_tokens=6144.0, prompt_tokens=(6200.0, 8200.0), output_tokens=(25.0, 80.0), short_output_share=0.5),
    _Program(prefix_tokens=2560.0, prompt_tokens=(3000.0, 3500.0), output_tokens=(16.0, 24.0)),
)
_SHORT_OUTPUT_TOKENS: Final = 3.0
_PROGRAM_REQUESTS: Final = (0.37, 0.14)
_REQUEST_RATE_PER_S: Final = 23_608 / 3600
_TURNS_OF_CHAT: Final = 1.63
"""Requests per chat session in an hour, as in the conversation trace (12,031 in 7,373 sessions)."""
# Shares are of requests; a session of chat has several, a program's one.
_CHAT_SESSIONS: Final = (1.0 - sum(_PROGRAM_REQUESTS)) / _TURNS_OF_CHAT
SESSION_RATE_PER_S: Final = round(_REQUEST_RATE_PER_S * (_CHAT_SESSIONS + sum(_PROGRAM_REQUESTS)), 3)


@GENERATORS.register("tool-agent")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAgentGenerator(SessionGenerator):
    """Chat, and one-shot requests of two programs with long fixed prefixes; NOT validated against a full trace.

    It follows 94 rows, 12 seconds, of the Mooncake tool-and-agent trace, the only ones at hand; chat is drawn as the
    generator of that name does. Of the whole trace three figures are published (Mooncake, FAST'25) and none was fitted;
    an hour drawn here has, against them, a mean prompt of 9,100 tokens (8,596), a mean output of 184 (182) and an
    infinite-cache hit ratio of .53 (.59). Use it to see what a few long shared prefixes do, not to say what that
    service would need.

    Parameters
    ----------
    seed
        Equal seeds give equal streams. Each kind of draw has a stream of its own.
    requests
        Number of requests to make; either this or *duration_s*.
    duration_s
        Time after which no request arrives [s]; either this or *requests*.
    session_rate_per_s
        New chat sessions and one-shot requests together, a Poisson process [1/s]; about 1.24 requests each.
    rate_scale
        Everything happens this many times faster: arrivals and pauses of the same requests, in unchanged order.
    length_scale
        Factor on all prompts, outputs and fixed prefixes.
    block_tokens
        Size of the blocks that ids are given to [tokens]. Fixed prefixes are shared in whole blocks.
    """

    kind: ClassVar[str] = "tool-agent"
    session_rate_per_s: float = SESSION_RATE_PER_S

    def _sessions(self) -> Iterator[Session]:
        cutter = Cutter(block_tokens=self.block_tokens, length_scale=self.length_scale, rate_scale=self.rate_scale)
        ends = list(accumulate(cutter.shared_blocks(tokens) for tokens in (ROOT_TOKENS, *_prefixes_tokens())))
        roots = [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        streams = Streams(self.seed)
        chat = ChatDraws(streams)
        kind, length, output, is_short = (streams.uniform() for _ in range(4))
        total = _CHAT_SESSIONS + sum(_PROGRAM_REQUESTS)

        def session(session_id: int, starts_at_s: float) -> Session:
            at = next(kind) * total
            for program, share, root in zip(_PROGRAMS, _PROGRAM_REQUESTS, roots[1:], strict=True):
                if at < share:
                    output_tokens = _between(program.output_tokens, next(output))
                    if next(is_short) < program.short_output_share:
                        output_tokens = _SHORT_OUTPUT_TOKENS
                    turn = Turn(0.0, math.nan, _between(program.prompt_tokens, next(length)), output_tokens)
                    return cutter.session(session_id, starts_at_s, [turn], root)
                at -= share
            return cutter.session(session_id, starts_at_s, chat.session(), roots[0])

        return in_poisson_order(session, chat.session_gap, self.session_rate_per_s * self.rate_scale)


def _prefixes_tokens() -> Iterator[float]:
    return (program.prefix_tokens for program in _PROGRAMS)


def _between(bounds: tuple[float, float], share: float) -> float:
    least, most = bounds
    return least + (most - least) * share
