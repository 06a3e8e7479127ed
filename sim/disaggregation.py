"""Prefill/decode disaggregation: the replicas that only decode, and what goes to them.

A request is served in two halves. A replica of the cluster computes the prompt, as a request with one output token;
then a router chooses a decoding replica, which queues the request, takes its blocks, pulls the KV and decodes. As in
vLLM the decoding engine computes the last token of the prompt again to sample the first output token, so the TTFT
holds the second queue, the handover and one step. (SGLang and TensorRT-LLM send the first token along and show it when
the KV is there: that spares the step.) A decoding replica has HBM only, with a prefix cache of its own; the tiers below
belong to those that prefill. What it preempts it computes again itself.

Sources: vLLM V1 ``v1/core/sched/scheduler.py`` (``_update_waiting_for_remote_kv``) and its NixlConnector guide (the
proxy asks the first engine for one token); Dynamo's docs on disaggregated serving (the prefill router answers before
the decode router is asked; decode is routed by active blocks, without credit for prefixes) and on KVBM (tiers are
attached to prefill workers); SGLang ``srt/disaggregation/decode.py`` (no forward pass over a prompt that came over);
TensorRT-LLM's ``first_gen_tokens``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from models.errors import InvariantError
from sim.engine.handover import Handover, Handovers
from sim.engine.replica import Replica
from sim.engine.request import Request
from sim.policies.base import RoutingPolicy
from sim.recording.requests import NOT_HANDED_OVER


class DecodePool:
    """Replicas that decode what others have computed.

    Parameters
    ----------
    replicas : sequence of Replica
        The engines; their indices follow those that prefill.
    router : RoutingPolicy
        Chooses one of them for each request when its prompt is there.
    handovers : Handovers
        Moves the KV.
    """

    def __init__(self, *, replicas: Sequence[Replica], router: RoutingPolicy, handovers: Handovers) -> None:
        self.replicas = list(replicas)
        self.handovers = handovers
        self._router = router
        self._engines = {replica.index: replica for replica in self.replicas}
        self._whole: dict[Request, Request] = {}

    def split(self, request: Request) -> Request:
        """Return the half of a request that computes its prompt, to be sent to a replica that prefills."""
        half = Request(
            request_id=request.request_id,
            session_id=request.session_id,
            phase=request.phase,
            prompt_tokens=request.prompt_tokens,
            output_tokens=1,
            chunks=request.chunks,
            arrived_at_s=request.arrived_at_s,
            tiers=len(request.hit_tokens),
            priority=request.priority,
        )
        half.stores_under_way = 1  # the handover, which comes last: until then it keeps its blocks
        self._whole[half] = request
        return half

    def take_over(self, half: Request, source: Replica, on_release: Callable[[Request], None]) -> bool:
        """Route a request whose prompt is complete; False if this one has no second half."""
        request = self._whole.pop(half, None)
        if request is None:
            return False
        request.handover = Handover(half, source.index, self.handovers, partial(on_release, half))
        request.comes_over = True
        request.queue_s, request.load_s, request.compute_s = half.queue_s, half.load_s, half.compute_s
        request.hit_tokens, request.load_tier_s = half.hit_tokens, half.load_tier_s
        engine = self._engines[self._router.choose(request, self.replicas)]
        engine.expect(request)
        engine.enqueue(request)
        return True

    def abandon(self, half: Request) -> Request:
        """Return the whole of a request whose prompt has failed to load; nobody will decode it."""
        request = self._whole.pop(half, half)
        request.failed = True
        return request

    @staticmethod
    def finish(request: Request) -> tuple[float, ...]:
        """Put the halves of an ended request together; return what ``RequestLog`` takes of the handover."""
        handover = request.handover
        if handover is None:
            return NOT_HANDED_OVER
        half = handover.prompt
        request.admitted_at_s = half.admitted_at_s
        request.preemptions += half.preemptions
        request.computed_prompt_tokens += half.computed_prompt_tokens
        waited_s = request.queue_s - half.queue_s
        return handover.target, handover.tokens, handover.n_bytes, waited_s, handover.took_s

    def check(self) -> None:
        """Check that all that was sent has arrived.

        Raises
        ------
        InvariantError
            If it has not.
        """
        sent, arrived, waiting = self.handovers.sent_bytes, self.handovers.arrived_bytes, len(self._whole)
        if sent != arrived or waiting:
            message = f"{sent} bytes of KV were handed over but {arrived} arrived; {waiting} prompts were not"
            raise InvariantError(message)
