"""Load or recompute: how much of what lower tiers hold of a prompt is loaded, and how much is computed again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, Protocol

from sim.registry import Registry


class LoadOffer(Protocol):
    """What the tiers below HBM could serve of a prompt that is admitted now, and what it would cost.

    The chunks follow those that HBM holds. All times are estimates for this prompt alone, with the transfers that are
    under way now, and no others, beside it; its steps have the whole token budget.
    """

    @property
    def parts(self) -> Sequence[int]:
        """How many chunks in a row come from one tier, from the head of the prompt on."""
        ...

    @property
    def overlaps(self) -> bool:
        """Whether loading and computing go on at the same time (layer by layer)."""
        ...

    def load_s(self, chunks: int) -> float:
        """Return the time to load the first so many of the chunks [s]."""
        ...

    def compute_s(self, chunks: int) -> float:
        """Return the time to compute the rest of the prompt once those are in HBM [s]."""
        ...

    def time_s(self, chunks: int) -> float:
        """Return the time until the whole prompt is in HBM if so many chunks are loaded and the rest computed [s]."""
        ...


class LoadingPolicy(Protocol):
    """Say how many of the chunks that lower tiers hold are loaded; the others are computed.

    One instance serves one replica. A class with a true attribute ``from_both_ends`` computes the chunks from the front
    while it loads them from the back, until the two meet; it is given asynchronous loads only.
    """

    def chunks(self, offer: LoadOffer) -> int:
        """Return how many of the chunks offered are loaded, from the head on: 0 to all."""
        ...


LOADING = Registry[LoadingPolicy]("load-or-recompute policy", package="sim.policies", requires=("chunks",))


@LOADING.register("always-load")
class AlwaysLoad:
    """What lower tiers hold is loaded, however long that takes (vLLM, LMCache, SGLang)."""

    def chunks(self, offer: LoadOffer) -> int:
        """Return all of them."""
        return sum(offer.parts)


@LOADING.register("always-recompute")
class AlwaysRecompute:
    """Nothing is loaded: lower tiers are written, but never read."""

    def chunks(self, offer: LoadOffer) -> int:
        """Return none."""
        del offer
        return 0


@LOADING.register("two-ended")
class TwoEnded:
    """Compute from the front and load from the back at the same time, until they meet (Cake, arXiv 2410.03065).

    The back is loaded in parts, each as large as is expected to take as long as computing what is left in front of it;
    computing takes what the running requests leave of the token budget.
    """

    from_both_ends: ClassVar[bool] = True

    def chunks(self, offer: LoadOffer) -> int:
        """Return all of them: where the two meet decides."""
        return sum(offer.parts)


@LOADING.register("quicker")
class Quicker:
    """Load as far as that has the prompt in HBM soonest, by estimates at admission, and compute the rest.

    Within the part that one tier serves the best cut is one of its ends, up to the rounding of steps and of rounds of
    reads: each further token takes longer to compute than the one before it, and a load of n bytes waits for at most
    n bytes of every transfer beside it, so both costs bend the same way. Where loads overlap with the forward pass, the
    cut at which both take equally long is tried too. Of equals, the one that loads more.
    """

    def chunks(self, offer: LoadOffer) -> int:
        """Return the cut with the shortest estimate."""
        cuts = [0, *accumulate(offer.parts)]
        if offer.overlaps:
            every = range(cuts[-1] + 1)
            even = bisect_left(every, x=True, key=lambda chunks: offer.load_s(chunks) >= offer.compute_s(chunks))
            cuts += [cut for cut in (even - 1, even) if cut in every]
        return min(cuts, key=lambda chunks: (offer.time_s(chunks), -chunks))
