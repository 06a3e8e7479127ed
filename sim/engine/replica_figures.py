"""What others see of a replica: routers, and who adds up its time."""

from __future__ import annotations

from functools import cached_property

from sim.engine.decode_batch import DecodeBatch
from sim.engine.forward import Forward
from sim.engine.kv_blocks import KvBlocks
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.engine.settings import EngineSettings
from sim.policies.base import CachedPrefix
from sim.runs import Chain


class ReplicaFigures:
    """The side of a replica that others look at; looking changes nothing."""

    settings: EngineSettings
    _blocks: KvBlocks
    _batch: DecodeBatch
    _scheduler: Scheduler
    _forward: Forward

    def catch_up(self) -> None:
        """Take the blocks of those steps that have begun, before somebody looks at the pool."""
        raise NotImplementedError

    @property
    def compute_s(self) -> float:
        """Time of all its steps so far [s]."""
        return self._forward.compute_s

    @property
    def load_stall_s(self) -> float:
        """Time in which its batch stood still for loads so far [s]."""
        return self._forward.load_stall_s

    def cached_prefix_tokens(self, chunks: Chain) -> int:
        """Return how many leading tokens of a prompt this replica has ahead of others [tokens]."""
        self.catch_up()
        return self._blocks.cached_prefix_tokens(chunks)

    def cached_prefix(self, chunks: Chain) -> CachedPrefix:
        """Return how much of a prompt each tier would serve here."""
        self.catch_up()
        return self._blocks.cached_prefix(chunks)

    @cached_property
    def prefill_s_per_token(self) -> float:
        """Time of one prompt token in a full step of a prompt's first tokens [s]."""
        return self._batch.prefill_s_per_token(self.settings.max_num_batched_tokens)

    @property
    def waiting_prefill_tokens(self) -> int:
        """Prompt tokens of its requests that are still to be computed [tokens]."""
        return self._scheduler.waiting_prefill_tokens

    def fits(self, request: Request) -> bool:
        """Whether the request can be served at all."""
        return self._blocks.fits(request)
