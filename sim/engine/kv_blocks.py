"""What a replica's requests hold in HBM: whole-prompt allocation, prefix hits, filled chunks, and giving it all back.

Source: vLLM V1 ``v1/core/kv_cache_manager.py`` and ``single_type_kv_cache_manager.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.engine.load_choice import LoadChoice, between, first
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.policies.base import CachedPrefix, TierHit, TierKind
from sim.run_sets import RunSet
from sim.runs import Chain, Runs, count
from sim.tiers.attached import Segment
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.loads import Load
from sim.tiers.tier import Tier


class KvBlocks:
    """The paged pool as the scheduler uses it.

    Parameters
    ----------
    settings : EngineSettings
        Limits and habits.
    hbm : Tier
        The pool, in engine blocks.
    hierarchy : KvHierarchy
        The tiers below.
    choice : LoadChoice
        Says how much of what they hold is loaded.
    """

    __slots__ = (
        "_block_tokens",
        "_blocks_per_chunk",
        "_choice",
        "_chunk_tokens",
        "_expiring",
        "_hbm",
        "_hierarchy",
        "_settings",
    )

    def __init__(self, settings: EngineSettings, hbm: Tier, hierarchy: KvHierarchy, choice: LoadChoice) -> None:
        self._settings = settings
        self._block_tokens = settings.block_tokens
        self._chunk_tokens = settings.chunk_tokens
        self._blocks_per_chunk = settings.chunk_tokens // settings.block_tokens
        self._hbm = hbm
        self._hierarchy = hierarchy
        self._choice = choice
        pools = (hbm, *(attached.tier for attached in hierarchy.tiers))
        self._expiring = [(pool, pool.expired) for pool in pools if pool.expired is not None]

    def fits(self, request: Request) -> bool:
        """Whether the pool could ever hold the request (with the private copy of its last cached block)."""
        blocks = -(-(request.prompt_tokens + request.output_tokens) // self._block_tokens)
        return blocks + 1 + self._settings.state_units <= self._hbm.capacity_units

    def hits(self, chunks: Chain) -> int:
        """Return how many leading chunks are in HBM."""
        for pool, expired in self._expiring:  # every look-up begins here
            pool.drop(expired())
        return self._hbm.ready.leading_of(chunks)

    def cached_prefix_tokens(self, chunks: Chain) -> int:
        """Return how many leading tokens of an arriving prompt are in HBM or a tier that not all share [tokens]."""
        hits = self.hits(chunks)
        if hits < chunks.seen:
            segments = self._chosen(chunks, self._hierarchy.lookup(chunks, hits, only_here=True))
            if segments:
                hits = segments[-1].end
        return hits * self._chunk_tokens

    def cached_prefix(self, chunks: Chain) -> CachedPrefix:
        """Return what each tier would serve of an arriving prompt."""
        hits, chunk_tokens = self.hits(chunks), self._chunk_tokens
        found = [TierHit("hbm", "hbm", hits * chunk_tokens, 0.0)] if hits else []
        segments = self._chosen(chunks, self._hierarchy.lookup(chunks, hits)) if hits < chunks.seen else []
        if not segments or (segments[-1].end - hits) * chunk_tokens < self._settings.min_load_tokens:
            return CachedPrefix(found, 0.0)
        times_s, load_s = self._hierarchy.loads.unloaded_s(segments)
        for segment, time_s in zip(segments, times_s, strict=True):
            tier = self._hierarchy.tiers[segment.tier]
            kind: TierKind = "shared" if tier.everywhere else "memory" if tier.is_memory else "storage"
            found.append(TierHit(tier.tier.name, kind, (segment.end - segment.start) * chunk_tokens, time_s))
        return CachedPrefix(found, load_s + self._settings.request_software_s)

    def below(self, chunks: Chain) -> list[Segment]:
        """Return what the tiers below HBM hold of a prompt beyond what HBM does, where it is long enough to load."""
        hits = self.hits(chunks)
        segments = self._hierarchy.lookup(chunks, hits, to_prefetch=True) if hits < len(chunks) else []
        long_enough = segments and (segments[-1].end - hits) * self._chunk_tokens >= self._settings.min_load_tokens
        return segments if long_enough else []

    def _chosen(self, chunks: Chain, segments: list[Segment]) -> list[Segment]:
        """Return what would be loaded for a prompt of which only the chunks are known."""
        tokens = len(chunks) * self._chunk_tokens
        return self._choice.cut(segments, tokens, tokens)

    def cached_tokens(self, request: Request) -> int:
        """Return how many tokens of its target a request would not compute if it were admitted now [tokens]."""
        if request.comes_over:
            return request.target - 1
        hits, limit = self.hits(request.chunks), self.limit(request)
        cached = min(hits * self._chunk_tokens, limit)
        return cached + self._loadable(request, hits, cached, limit)[1]

    def limit(self, request: Request) -> int:
        """Return how many tokens of its target a request can have without computing them [tokens]."""
        # The last token is always computed, and with it its whole block (vLLM: max_cache_hit_length = num_tokens - 1).
        return (request.target - 1) // self._block_tokens * self._block_tokens

    def _loadable(self, request: Request, hits: int, cached: int, limit: int) -> tuple[list[Segment], int]:
        """Return what the tiers below HBM serve beyond ``cached`` tokens, and how many tokens that is."""
        if cached < limit and hits < len(request.chunks):
            segments = self._choice.cut(self._hierarchy.lookup(request.chunks, hits), limit, request.target)
            if segments:
                loaded = min(segments[-1].end * self._chunk_tokens, limit) - cached
                if loaded >= max(1, self._settings.min_load_tokens):
                    return segments, loaded
        return [], 0

    def allocate(self, request: Request) -> list[Segment] | None:
        """Take HBM for the whole prompt and decide what is loaded; None (nothing taken) where it does not fit now.

        What is to be loaded is pinned in its tiers. When room may come free by a write-back that has begun,
        ``Tier.wait_for_room`` says so; otherwise a request must end first.
        """
        hbm, chunks, target = self._hbm, request.chunks, request.target
        chunk_tokens, block_tokens = self._chunk_tokens, self._block_tokens
        limit = self.limit(request)
        hits = self.hits(chunks)
        cached = hits * chunk_tokens
        units = -(-target // block_tokens) - hits * self._blocks_per_chunk + self._settings.state_units
        if cached > limit:
            cached = limit
            units += 1  # the recomputed last block is a private copy
        found = list(chunks.cut(0, hits)) if hits else []
        idle = sum(count(hbm.pinned.absent(run)) for run in found)
        if units > hbm.available_units - idle * self._blocks_per_chunk:
            return None
        if found:
            hbm.pin(found)
        if not hbm.take(units):
            hbm.unpin(found, wake=False)
            return None
        if request.comes_over:
            self._receive(request, found, hits, cached, units)
            return []
        segments, loaded = self._loadable(request, hits, cached, limit)
        request.private_units = units
        request.held = found
        served = segments
        if segments and self._choice.from_both_ends:  # what of it is loaded will be known when both ends have met
            segments, served, loaded = first(segments, -(-limit // chunk_tokens) - hits), [], 0
        request.adopted = request.found_chunks = hits
        # What a lower tier serves is not offered to the others again (LMCache: skip_leading_tokens). What HBM serves
        # is, for a lower tier may have lost it meanwhile.
        request.to_store = [*found, *chunks.cut(segments[-1].end)] if segments else chunks.runs
        request.computed = cached + loaded
        request.computed_prompt_tokens += target - request.computed
        if not request.preemptions:
            request.hit_tokens[0] = cached
            hbm.hit_tokens += cached
            self._count_hits(request, served, limit)
        if segments:
            self._hierarchy.pin(chunks, segments)
        return segments

    def _receive(self, request: Request, found: list[range], hits: int, cached: int, units: int) -> None:
        """Let another replica fill the blocks of a request, the fixed state too; its last token is computed again."""
        handover = request.handover
        assert handover is not None
        handover.tokens, handover.blocks = request.target - cached, units
        request.private_units = units
        request.held = found
        request.adopted = request.found_chunks = hits
        request.computed = request.target - 1

    def meet(self, request: Request, segments: Sequence[Segment]) -> int:
        """Note that a two-ended load has ended where it has been computed to; return the tokens that were loaded."""
        chunks, chunk_tokens = request.chunks, self._chunk_tokens
        if not segments:  # what was loaded has failed
            request.to_store = chunks.runs
            return 0
        start, end = request.compute_until_tokens // chunk_tokens, segments[-1].end
        self._hierarchy.unpin(chunks, between(segments, segments[0].start, start))
        if start == end:
            return 0
        limit = self.limit(request)
        request.computed = min(end * chunk_tokens, limit)
        loaded = request.computed - start * chunk_tokens
        request.computed_prompt_tokens -= loaded
        request.to_store = [*chunks.cut(0, start), *chunks.cut(end)]
        if not request.preemptions:
            self._count_hits(request, between(segments, start, end), limit)
        return loaded

    def lose(self, request: Request, load: Load) -> int:
        """Note that a load has failed, from where its first chunk is missing; return how far the prompt is in HBM."""
        lost = load.lost
        assert lost is not None
        chunks, segments = request.chunks, load.segments
        limit, kept = self.limit(request), lost.start * self._chunk_tokens
        missing = between(segments, lost.start, segments[-1].end)
        request.computed_prompt_tokens += min(segments[-1].end * self._chunk_tokens, limit) - kept
        # What is computed is offered to the tiers, what has been loaded is not, as always.
        request.to_store = [*chunks.cut(0, segments[0].start), *chunks.cut(lost.start)]
        if not request.preemptions:
            self._count_hits(request, missing, limit, sign=-1)
        return kept

    def filled(self, request: Request, start: int) -> Runs:
        """Return the chunks from position ``start`` on that the request itself has put into the prefix cache."""
        held = RunSet(request.held)
        return [part for run in request.chunks.cut(start, request.adopted) for part in held.present(run)]

    def forget(self, chunks: Runs) -> None:
        """Take chunks that hold nothing out of the prefix cache."""
        self._hbm.drop(chunks)

    def stops_the_batch(self, segments: Sequence[Segment]) -> bool:
        """Whether the batch waits for the load of these segments."""
        settings, tiers = self._settings, self._hierarchy.tiers
        from_drives = settings.synchronous_storage_loads
        if from_drives is None or all(tiers[segment.tier].is_host_memory for segment in segments):
            return settings.synchronous_loads
        return from_drives

    def _count_hits(self, request: Request, segments: Sequence[Segment], limit: int, sign: int = 1) -> None:
        """Count the hit tokens of the first admission; a recomputation after preemption is no hit."""
        chunk_tokens = self._chunk_tokens
        for segment in segments:
            tokens = sign * (min(segment.end * chunk_tokens, limit) - segment.start * chunk_tokens)
            request.hit_tokens[segment.tier + 1] += tokens
            self._hierarchy.tiers[segment.tier].tier.hit_tokens += tokens

    def adopt(self, request: Request) -> None:
        """Make filled chunks findable: vLLM hashes blocks when their tokens are scheduled."""
        self._adopt(request, request.chunks, request.computed // self._chunk_tokens)

    def adopt_answer(self, request: Request) -> Runs:
        """Make findable what an answer has filled, where HBM keeps answers; return all that it has filled."""
        whole, prompt = request.whole, len(request.chunks)
        if whole is None:
            return ()
        # The last token is given out, not computed: its KV is not there.
        full = (request.prompt_tokens + request.output_tokens - 1) // self._chunk_tokens
        if self._settings.caches_answers:
            self._adopt(request, whole, full)
        return whole.cut(prompt, full) if full > prompt else ()

    def _adopt(self, request: Request, chunks: Chain, full: int) -> None:
        full = min(full, len(chunks))
        if full > request.adopted:
            new = self._hbm.adopt(chunks.cut(request.adopted, full))
            request.private_units -= count(new) * self._blocks_per_chunk
            request.held += new
            request.adopted = full

    def free(self, request: Request) -> None:
        """Give back all that a request holds; its chunks stay findable until they are evicted."""
        hbm = self._hbm
        held, request.held = request.held, []
        units, request.private_units = request.private_units, 0
        if held:
            hbm.touch(held)  # before they may go: a restart has dropped those that are pinned
            hbm.unpin(held, wake=False)
        hbm.give(units)
