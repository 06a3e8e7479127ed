"""KV of a prompt on its way from the replica that computed it to the one that decodes it.

The decoding engine pulls: it takes its own blocks first, the source keeps its copy until the last byte has arrived,
and blocks that the target has in its prefix cache are not sent. Whole blocks move, the partial one at the end of a
prompt too, once the prompt is complete; sending layer by layer while the prompt is computed is not modelled.

Source: vLLM V1 ``distributed/kv_transfer/kv_connector/v1/nixl_connector.py`` (reads of uncomputed blocks only, the
producer frees on the reader's notice) and ``v1/core/sched/scheduler.py`` (blocks taken, then WAITING_FOR_REMOTE_KVS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

from sim.clock import Clock
from sim.engine.request import Request
from sim.recording import TransferLog
from sim.recording.transfers import HANDOVER
from sim.transfers.flows import FlowNetwork
from sim.transfers.legs import Done, Leg, move


@dataclass(slots=True, eq=False)
class Handover:
    """What is handed over for one request.

    Parameters
    ----------
    prompt : Request
        The half of the request that computed the prompt; it holds its blocks until the bytes have arrived.
    source : int
        The replica that computed it.
    route : Handovers
        Moves it.
    release : callable
        Called when the source may have its blocks back.
    """

    prompt: Request
    source: int
    route: Handovers
    release: Done
    target: int = -1
    """The replica that decodes."""
    tokens: int = 0
    """Tokens of the prompt that the target lacked [tokens]."""
    blocks: int = 0
    n_bytes: int = 0
    took_s: float = nan
    """From the first byte to the last [s]."""

    def pull(self, request_id: int, target: int, on_arrived: Done) -> None:
        """Move it to the blocks that replica ``target`` has taken."""
        self.route.move(self, request_id, target, on_arrived)


class Handovers:
    """Moves prompts between replicas, and counts what was sent and what has arrived.

    Parameters
    ----------
    clock, network, log : Clock, FlowNetwork, TransferLog
        Time, links, and where each transfer is noted.
    legs : mapping
        By source and target replica: the path between them; its chunk is an engine block.
    """

    def __init__(
        self, *, clock: Clock, network: FlowNetwork, log: TransferLog, legs: Mapping[tuple[int, int], Leg]
    ) -> None:
        self._clock = clock
        self._network = network
        self._log = log
        self._legs = legs
        self.sent_bytes = 0
        self.arrived_bytes = 0

    def move(self, handover: Handover, request_id: int, target: int, on_arrived: Done) -> None:
        """Move a prompt's blocks; the source gets its own back when the last byte has arrived."""
        leg = self._legs[handover.source, target]
        handover.target = target
        began_s = self._clock.now_s
        n_bytes = handover.n_bytes = handover.blocks * leg.chunk_bytes
        self.sent_bytes += n_bytes

        def arrived() -> None:
            now = self._clock.now_s
            handover.took_s = now - began_s
            self.arrived_bytes += n_bytes
            self._log.append(HANDOVER, 0, target, request_id, n_bytes, began_s, now)
            handover.release()
            on_arrived()

        move(leg, handover.blocks, self._network, began_s, arrived)
