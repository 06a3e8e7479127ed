"""How much of a prompt is loaded: asks the load-or-recompute policy, with estimates of both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from models.errors import InvariantError
from sim.engine.settings import EngineSettings
from sim.policies.loading import AlwaysLoad, LoadingPolicy
from sim.tiers.attached import Segment
from sim.tiers.loads import Loads


class PrefillTime(Protocol):
    """Returns the time to compute a prompt's tokens from ``start`` up to ``tokens``, alone [s]."""

    def __call__(self, tokens: int, *, start: int) -> float:
        """Return that time [s]."""
        ...


class _Offer:
    """What the policy sees: see :class:`sim.policies.loading.LoadOffer`."""

    def __init__(self, choice: LoadChoice, segments: Sequence[Segment], limit_tokens: int, target_tokens: int) -> None:
        self._choice = choice
        self._segments = segments
        self._limit_tokens = limit_tokens
        self._target_tokens = target_tokens
        self.parts = [segment.end - segment.start for segment in segments]
        self.overlaps = choice.settings.overlap_layers > 0

    def load_s(self, chunks: int) -> float:
        if not chunks:
            return 0.0
        kept = first(self._segments, chunks)
        return self._choice.loads.expected_s(kept) + self._choice.settings.request_software_s

    def compute_s(self, chunks: int) -> float:
        tokens = (self._segments[0].start + chunks) * self._choice.settings.chunk_tokens
        return self._choice.prefill_s(self._target_tokens, start=min(tokens, self._limit_tokens))

    def time_s(self, chunks: int) -> float:
        return overlapped_s(self.load_s(chunks), self.compute_s(chunks), self._choice.settings.overlap_layers)


class LoadChoice:
    """Cuts what a look-up has found down to what is loaded.

    Parameters
    ----------
    policy : LoadingPolicy
        Decides.
    settings : EngineSettings
        Limits and habits.
    loads : Loads
        Knows how long a load would take.
    prefill_s : callable
        Knows how long computing would take.
    """

    def __init__(self, policy: LoadingPolicy, settings: EngineSettings, loads: Loads, prefill_s: PrefillTime) -> None:
        self._policy = None if type(policy) is AlwaysLoad else policy
        self.from_both_ends: bool = getattr(policy, "from_both_ends", False)
        """Whether chunks are computed from the front while they are loaded from the back."""
        self.settings = settings
        self.loads = loads
        self.prefill_s = prefill_s

    def cut(self, segments: list[Segment], limit_tokens: int, target_tokens: int) -> list[Segment]:
        """Return what of the segments is loaded for a prompt of so many tokens, of which the last ones are computed.

        Raises
        ------
        InvariantError
            If the policy wants more than there is, or less than nothing.
        """
        policy = self._policy
        if policy is None or not segments:
            return segments
        most = segments[-1].end - segments[0].start
        chunks = policy.chunks(_Offer(self, segments, limit_tokens, target_tokens))
        if not 0 <= chunks <= most:
            name = f"{type(policy).__module__}:{type(policy).__qualname__}"
            raise InvariantError(
                f"load-or-recompute policy '{name}' breaks its contract: it loads {chunks} of {most} chunks"
            )
        return segments if chunks == most else first(segments, chunks)


def first(segments: Sequence[Segment], chunks: int) -> list[Segment]:
    """Return the first so many chunks of adjoining segments."""
    if not segments:
        return []
    end = segments[0].start + chunks
    return [segment._replace(end=min(segment.end, end)) for segment in segments if segment.start < end]


def between(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Return the chunks ``start .. end - 1`` of adjoining segments."""
    return [
        segment._replace(start=max(segment.start, start), end=min(segment.end, end))
        for segment in segments
        if segment.start < end and segment.end > start
    ]


def overlapped_s(load_s: float, forward_s: float, layers: int) -> float:
    """Return how long loads and the forward pass that needs them take together [s].

    With ``layers`` layers of l load and c compute each, of which all but the first load and the last computation
    overlap: l + (layers - 1) max(c, l) + c. Without (0): one after the other. Source: the pipeline of layer-wise
    pre-loading in CachedAttention (arXiv 2403.19708, section 3.2.1), the next layer read while this one is computed.
    """
    if not layers:
        return load_s + forward_s
    return (load_s + forward_s + (layers - 1) * max(load_s, forward_s)) / layers
