"""One request on its way through the cluster."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import TYPE_CHECKING

from sim.runs import Chain, Runs

if TYPE_CHECKING:
    from sim.engine.handover import Handover


class Request:
    """A request's fixed facts and what has happened to it so far.

    Parameters
    ----------
    request_id, session_id, phase : int
        Identity; ``session_id`` is -1 where the workload has none.
    prompt_tokens, output_tokens : int
        Lengths [tokens].
    chunks : Chain
        The prompt's full chunks.
    arrived_at_s : float
        When the client sent it [s].
    tiers : int
        How many tiers there are, HBM included.
    priority : int
        How urgent it is: smaller is more urgent.
    whole : Chain or None
        The full chunks of prompt and answer together, where the workload knows them and somebody keeps answers.
    on_end : callable or None
        Called with the request when it has ended (closed loops send the next one).
    """

    __slots__ = (
        "admitted_at_s",
        "adopted",
        "arrived_at_s",
        "awaited_prefetches",
        "chunks",
        "comes_over",
        "compute_s",
        "compute_until_tokens",
        "computed",
        "computed_prompt_tokens",
        "ended",
        "failed",
        "first_token_at_s",
        "found_chunks",
        "generated",
        "handover",
        "held",
        "hit_tokens",
        "largest_gap_s",
        "last_token_at_s",
        "load_mark_s",
        "load_s",
        "load_tier_s",
        "loads",
        "loads_from_back",
        "on_end",
        "output_tokens",
        "phase",
        "position_offset",
        "preemptions",
        "prefetched",
        "priority",
        "private_units",
        "prompt_tokens",
        "queue_s",
        "queued_at_s",
        "request_id",
        "session_id",
        "started_tick",
        "stores_under_way",
        "target",
        "to_store",
        "whole",
    )

    def __init__(
        self,
        *,
        request_id: int,
        session_id: int,
        phase: int,
        prompt_tokens: int,
        output_tokens: int,
        chunks: Chain,
        arrived_at_s: float,
        tiers: int,
        priority: int = 0,
        whole: Chain | None = None,
        on_end: Callable[[Request], None] | None = None,
    ) -> None:
        self.request_id = request_id
        self.session_id = session_id
        self.phase = phase
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.chunks = chunks
        self.whole = whole
        self.arrived_at_s = arrived_at_s
        self.priority = priority
        self.on_end = on_end
        self.target = prompt_tokens
        """Tokens to have in HBM before the next token: the prompt, and after a preemption what was generated too."""
        self.computed = 0
        """Tokens of the target that are in HBM or on their way in the present step."""
        self.generated = 0
        self.adopted = self.found_chunks = 0
        """How many of the chunks stand in the prefix cache or were found there; and how many of them at admission."""
        self.held: list[range] = []
        """Chunks of the prefix cache that it pins."""
        self.private_units = 0
        self.to_store: Runs = chunks.runs
        """Chunks to write through once the prompt is in HBM."""
        self.stores_under_way = 0
        """Transfers that read its blocks, or will: an ended request keeps them until then."""
        # In a two-ended load: how far it is computed from the front, whether its back is being loaded, and since when
        # that goes on while no step computes it [s].
        self.compute_until_tokens, self.loads_from_back = 0, False
        self.load_mark_s: float | None = None
        self.awaited_prefetches = 0
        """Prefetches of its KV under way: until they end, others pass it in the queue."""
        self.prefetched = False
        """Whether its KV has been brought into memory ahead, or is on its way."""
        self.handover: Handover | None = None
        """How its prompt comes here, where another replica has computed it."""
        self.comes_over = False
        """Whether its prompt is handed over (after a preemption it is computed here)."""
        self.ended = self.failed = False
        """Whether it has ended, and whether because a load failed."""
        self.position_offset = self.started_tick = 0
        """While decoding: its context is the replica's tick plus this."""
        self.queued_at_s = arrived_at_s
        self.admitted_at_s = nan
        self.first_token_at_s = nan
        self.last_token_at_s = nan
        """When its last token before a preemption came."""
        self.largest_gap_s = nan
        """The longest time between two of its tokens so far [s]."""
        self.queue_s = self.load_s = self.compute_s = 0.0
        self.computed_prompt_tokens = 0
        self.preemptions = self.loads = 0
        self.hit_tokens = [0] * tiers
        self.load_tier_s = [0.0] * tiers

    def note_gap(self, gap_s: float) -> None:
        """Note a time between two tokens [s]."""
        if not self.largest_gap_s >= gap_s:
            self.largest_gap_s = gap_s
