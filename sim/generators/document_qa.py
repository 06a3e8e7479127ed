"""Questions about documents, as in the Mooncake synthetic trace."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Final

from sim.generators.base import GENERATORS, SessionGenerator
from sim.generators.draws import LognormalMix, Steps, Streams, clipped, step
from sim.generators.turns import Cutter, Turn
from sim.traces.sessions import Session

# All figures down to the class: fitted to the Mooncake FAST'25 synthetic trace (kvcache-ai/Mooncake,
# FAST25-release/traces/synthetic_trace.jsonl, Apache-2.0), 17 minutes of requests made from public data sets, with
# sessions inferred from shared blocks; lengths in tokens, gaps in seconds, triples are (weight, mu, sigma) of logs.
SESSION_RATE_PER_S: Final = 2.163
BATCH_S: Final = 1022.0
"""The length of the trace [s]. In it each request goes, at a Poisson time, to one of the documents that still have
questions, all being equally likely: put together so, its figures come out, such as gaps that shrink from 191 s before
the second question to 24 s before the tenth, and 198 new documents in the first minute but 4 in the last."""
_FIRST_PROMPT = LognormalMix(  # KS .012
    (
        (0.229, 3.243, 0.308),
        (0.180, 4.212, 0.549),
        (0.134, 6.091, 0.727),
        (0.125, 8.444, 1.300),
        (0.152, 9.698, 0.120),
        (0.181, 10.222, 0.415),
    )
)
_MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS = 13.0, 191_000.0
# The chance of a second question, by the first prompt, and of another after the second, third, ... (the last entry
# holds for all later ones).
_SECOND: Steps = (
    (300.0, 0.012),
    (1024.0, 0.05),
    (3000.0, 0.18),
    (8000.0, 0.61),
    (16_000.0, 0.27),
    (32_000.0, 0.31),
    (math.inf, 0.73),
)
_ANOTHER: Final = (
    (1024.0, (0.25,)),
    (8000.0, (0.87, 0.92, 0.96, 0.93, 0.76, 0.74, 0.61, 0.88, 0.78)),
    (32_000.0, (0.86, 0.79, 0.75, 0.73, 0.53, 0.58, 0.78)),
    (math.inf, (0.84, 0.77, 0.68, 0.72, 0.77, 0.80, 0.70)),
)
# Questions are of one kind in a session: short, or long in this share of the documents, by their length.
_LONG_QUESTIONS: Steps = ((8000.0, 0.0), (32_000.0, 0.45), (math.inf, 0.75))
_SHORT_QUESTION, _LONG_QUESTION = (2.7, 0.5), (6.0, 0.8)
_MAX_QUESTION_TOKENS: Final = 2000.0
# The same prompt again: .12 of the later questions.
_REPEAT_SHARE: Final = 0.12
_OUTPUT: Final = (  # by the prompt
    (1024.0, LognormalMix(((0.272, 3.710, 1.388), (0.728, 5.712, 0.545)))),
    (8000.0, LognormalMix(((0.886, 3.359, 1.329), (0.114, 5.898, 0.374)))),
    (32_000.0, LognormalMix(((0.382, 1.907, 0.910), (0.618, 4.961, 0.782)))),
    (math.inf, LognormalMix(((0.914, 1.898, 0.779), (0.086, 5.114, 0.688)))),
)
_MAX_OUTPUT_TOKENS: Final = 893.0


@GENERATORS.register("document-qa")
@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentQaGenerator(SessionGenerator):
    """Documents and short texts that are asked about, earlier answers dropped, as in the Mooncake synthetic trace.

    A session is one document. Each prompt is the document with another question, some the same question again; half of
    the sessions are a single short text. The trace was put together from public data sets in a way that its figures
    give away, and this imitates it: a batch of documents is asked about at a steady rate, at random, until none has
    questions left; then the next batch begins. So a batch starts with new documents and ends with repeated ones. It is
    no picture of people at work: for those, draw whole sessions (`sessions` of the trace) and choose their starts. The
    pause before a question is the gap between arrivals.

    One batch, the mean of 16 seeds (the trace in brackets): infinite-cache hit ratio .632 (.640), of one batch +- .017;
    at 3, 10, 20, 40 thousand blocks LRU .200/.420/.563/.632 (.191/.424/.572/.639); LFU at 3 and 10 thousand .173/.405
    (.177/.421); time between uses p50 56 s (59 s).

    Parameters
    ----------
    seed
        Equal seeds give equal streams. Each kind of draw has a stream of its own.
    requests
        Number of requests to make; either this or *duration_s*.
    duration_s
        Time after which no request arrives [s]; either this or *requests*.
    session_rate_per_s
        New documents, as a mean over a batch [1/s]; about 1.8 requests each. A batch always takes 1022 s.
    rate_scale
        Everything happens this many times faster: arrivals and pauses of the same requests, in unchanged order.
    length_scale
        Factor on all prompts and outputs; who asks how many questions is left as it is.
    block_tokens
        Size of the blocks that ids are given to [tokens].
    """

    kind: ClassVar[str] = "document-qa"
    session_rate_per_s: float = SESSION_RATE_PER_S

    def _sessions(self) -> Iterator[Session]:
        cutter = Cutter(block_tokens=self.block_tokens, length_scale=self.length_scale, rate_scale=self.rate_scale)
        draws = _Draws(Streams(self.seed))
        n_documents = max(round(self.session_rate_per_s * BATCH_S), 1)
        session_id = 0
        for batch in count():
            for starts_at_s, turns in draws.batch(n_documents):
                start_s = (batch * BATCH_S + starts_at_s) / self.rate_scale
                yield cutter.session(session_id, start_s, turns)
                session_id += 1


class _Draws:
    """Draws sessions of questions about one document; each kind of draw has a stream of its own."""

    def __init__(self, streams: Streams) -> None:
        self._time = streams.uniform()
        self._pick = streams.uniform()
        self._first_prompt = streams.of(_FIRST_PROMPT.draw)
        self._another = streams.uniform()
        self._has_long_questions = streams.uniform()
        self._short_question = streams.lognormal(*_SHORT_QUESTION)
        self._long_question = streams.lognormal(*_LONG_QUESTION)
        self._repeat = streams.uniform()
        self._outputs = [(below, streams.of(mix.draw)) for below, mix in _OUTPUT]

    def batch(self, n_documents: int) -> list[tuple[float, list[Turn]]]:
        """Return the sessions of one batch by start: that time [s] and the turns."""
        sessions = [self._questions() for _ in range(n_documents)]
        times_s = sorted(BATCH_S * next(self._time) for turns in sessions for _ in turns)
        # Each request goes to a document that still has questions, all of them being equally likely.
        waiting = list(range(n_documents))
        asked = [0] * n_documents
        starts_s = [0.0] * n_documents
        for at_s in times_s:
            place = int(next(self._pick) * len(waiting))
            document = waiting[place]
            turns = sessions[document]
            turn = turns[asked[document]]
            if asked[document] == 0:
                starts_s[document] = at_s
            else:
                turn.at_s = at_s - starts_s[document]
                turn.think_s = turn.at_s - turns[asked[document] - 1].at_s
            asked[document] += 1
            if asked[document] == len(turns):
                waiting[place] = waiting[-1]
                waiting.pop()
        return sorted(zip(starts_s, sessions, strict=True), key=lambda session: session[0])

    def _questions(self) -> list[Turn]:
        """Return the turns of one session, without their times."""
        first_tokens = clipped(next(self._first_prompt), _MIN_PROMPT_TOKENS, _MAX_PROMPT_TOKENS)
        has_long = next(self._has_long_questions) < step(_LONG_QUESTIONS, first_tokens)
        questions = self._long_question if has_long else self._short_question
        document_tokens = max(first_tokens - min(next(questions), _MAX_QUESTION_TOKENS), first_tokens / 2)
        turns = [Turn(0.0, math.nan, first_tokens, self._answer(first_tokens))]
        chances = next(chances for below, chances in _ANOTHER if first_tokens < below)
        another = step(_SECOND, first_tokens)
        while next(self._another) < another:
            prompt_tokens, kept_tokens = document_tokens + min(next(questions), _MAX_QUESTION_TOKENS), document_tokens
            if next(self._repeat) < _REPEAT_SHARE:
                prompt_tokens, kept_tokens = turns[-1].prompt_tokens, math.inf
            turns.append(Turn(0.0, math.nan, prompt_tokens, self._answer(prompt_tokens), kept_tokens))
            another = chances[min(len(turns) - 2, len(chances) - 1)]
        return turns

    def _answer(self, prompt_tokens: float) -> float:
        stream = next(stream for below, stream in self._outputs if prompt_tokens < below)
        return clipped(next(stream), 1.0, _MAX_OUTPUT_TOKENS)
