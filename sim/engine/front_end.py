"""An API server in front of a replica: tokenises prompts in micro-batches and hands them to the engine.

Requests that arrive together reach the engine together, in the batches that the tokeniser made of them. So the arrival
times of a wave decide which of its requests make the first step, not a parameter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sim.clock import ARRIVAL, Clock, Wakeup


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndSettings:
    """What happens to a request before the engine sees it.

    The defaults of the batch are those of vLLM's ``AsyncMicrobatchTokenizer`` (``vllm/utils/async_utils.py``): one
    thread takes what arrives within 2 ms of a batch's first request, up to 32.

    Parameters
    ----------
    latency_s : float
        Fixed time a request [s]; requests overlap.
    tokenize_tokens_per_s : float or None
        Rate of the tokeniser [tokens/s]; None: it takes no time, and nothing is batched.
    batch_wait_s : float
        How long a batch waits for more requests [s].
    max_batch : int
        Most requests of a batch.
    max_model_len : int or None
        Longest prompt and output together [tokens].
    """

    latency_s: float = 0.0
    tokenize_tokens_per_s: float | None = None
    batch_wait_s: float = 0.002
    max_batch: int = 32
    max_model_len: int | None = None


class FrontEnd:
    """One replica's API server.

    Parameters
    ----------
    clock : Clock
        Time.
    settings : FrontEndSettings
        Rates and waits.
    """

    def __init__(self, clock: Clock, settings: FrontEndSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._busy = False

    def take(self, prompt_tokens: int, deliver: Callable[[], None]) -> None:
        """Take a request now; ``deliver()`` is called when the engine gets it."""
        settings = self._settings
        if settings.tokenize_tokens_per_s is None:
            self._hand_over([deliver])
            return
        self._queue.append((prompt_tokens, deliver))
        if not self._busy:
            self._open_batch()

    def _open_batch(self) -> None:
        self._busy = True
        self._clock.at(self._clock.now_s + self._settings.batch_wait_s, ARRIVAL, self._tokenize)

    def _tokenize(self, _: Wakeup) -> None:
        queue, rate = self._queue, self._settings.tokenize_tokens_per_s
        assert rate is not None
        batch = [queue.popleft() for _ in range(min(len(queue), self._settings.max_batch))]
        tokens = sum(count for count, _ in batch)

        def done(_: Wakeup) -> None:
            self._busy = False
            if queue:
                self._open_batch()
            self._hand_over([deliver for _, deliver in batch])

        self._clock.at(self._clock.now_s + tokens / rate, ARRIVAL, done)

    def _hand_over(self, batch: list[Callable[[], None]]) -> None:
        def arrived(_: Wakeup | None = None) -> None:
            for deliver in batch:
                deliver()

        if self._settings.latency_s:
            self._clock.at(self._clock.now_s + self._settings.latency_s, ARRIVAL, arrived)
        else:
            arrived()
