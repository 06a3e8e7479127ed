"""Sessions of logged agent requests: when the sub-agents ran, and how long the user or a tool took between requests.

Source of the figures and quirks: the coding-agent sessions of callanjfox/kv-cache-tester (Apache-2.0), version 8: 710
sessions with 63 sub-agents.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from sim.traces.record import NO_ID
from sim.traces.sessions import Session, Stream
from sim.traces.turns import Turn, replayed

# Service time of a request whose own was not logged: least squares over the calls of those sessions that took less than
# 120 s.
_SERVICE_S = 1.3
_SERVICE_S_PER_OUTPUT_TOKEN = 0.015
_SERVICE_S_PER_PROMPT_TOKEN = 1.5 / 100_000
_STAMP_S = 1.0
"""Most stamps are whole seconds."""


@dataclass(slots=True)
class LoggedRequest:
    """One request as logged; times in seconds from the start of the session, None where they were not logged."""

    sent_at_s: float
    prompt_tokens: int
    output_tokens: int
    api_s: float | None
    think_s: float | None
    keep: int
    runs: tuple[int, ...]
    blocks: int

    @property
    def service_s(self) -> float:
        """From the request to the end of its answer [s], estimated where it was not logged."""
        if self.api_s is not None:
            return self.api_s
        return (
            _SERVICE_S
            + _SERVICE_S_PER_OUTPUT_TOKEN * self.output_tokens
            + _SERVICE_S_PER_PROMPT_TOKEN * self.prompt_tokens
        )

    @property
    def ended_at_s(self) -> float:
        """End of the answer [s]."""
        return self.sent_at_s + self.service_s


def agent_session(
    session_id: int, agents: dict[str | None, list[LoggedRequest]], block_tokens: int, first_id: int
) -> Session:
    """Return the session of a main agent (None) and its sub-agents; *first_id* is added to their block ids.

    A session without a main agent takes the first sub-agent for it.
    """
    streams: list[Stream] = []
    agents = dict(agents)
    main = agents.pop(None, None) or agents.pop(next(iter(agents)))
    sent_at_s = [request.sent_at_s for request in main]
    for requests in (main, *agents.values()):
        after_turn, delay_s, shift_s = NO_ID, 0.0, 0.0
        if requests is not main:
            after_turn = max(bisect_right(sent_at_s, requests[0].sent_at_s) - 1, 0)
            begins_at_s = _began_at_s(requests, main[after_turn])
            delay_s = max(begins_at_s - main[after_turn].ended_at_s, 0.0)
            shift_s = begins_at_s - requests[0].sent_at_s
        turns = list(_turns(requests, shift_s))
        streams.append(
            Stream(
                session_id=session_id,
                turns=partial(replayed, turns, session_id, block_tokens, first_id=first_id),
                after_turn=after_turn,
                delay_s=delay_s,
            )
        )
    n_requests = len(main) + sum(map(len, agents.values()))
    return Session(session_id=session_id, starts_at_s=None, streams=tuple(streams), requests=n_requests)


def _began_at_s(requests: list[LoggedRequest], launched_by: LoggedRequest) -> float:
    """Return when a sub-agent began.

    Its log counts from the time at which its result was entered, which is when it ended: in 59 of 63 cases that time
    less its own duration falls 1 to 8 s after the end of the main turn that launched it, and the main agent goes on
    soon after. Where it cannot have run before that time, it was sent to the background, and it began then.
    """
    duration_s = requests[-1].ended_at_s - requests[0].sent_at_s
    began_at_s = requests[0].sent_at_s - duration_s
    return began_at_s if began_at_s >= launched_by.sent_at_s else requests[0].sent_at_s


def _turns(requests: Iterable[LoggedRequest], shift_s: float) -> Iterator[Turn]:
    before: LoggedRequest | None = None
    for request in requests:
        think_s = math.nan if before is None else _think_s(before, request)
        yield Turn(
            max(request.sent_at_s + shift_s, 0.0),
            request.prompt_tokens,
            request.output_tokens,
            think_s,
            request.keep,
            request.runs,
        )
        before = request


def _think_s(before: LoggedRequest, request: LoggedRequest) -> float:
    """Return the pause before a request [s].

    The logged pause counts from the last answer whose end was logged, so after a request without one it is too long. In
    some sessions it is longer than what lies between the two requests (8.6 % of the rows of version 8); it is cut to
    that, give or take the second to which stamps are rounded.
    """
    gap_s = max(request.sent_at_s - before.ended_at_s, 0.0)
    if before.api_s is not None and request.think_s is not None:
        return min(request.think_s, gap_s + _STAMP_S)
    return gap_s
