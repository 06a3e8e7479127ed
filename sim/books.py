"""The books of a run: what must add up once everything has ended, whatever the scenario."""

from __future__ import annotations

from math import isclose, ulp
from typing import Final

import numpy as np

from models.errors import InvariantError
from sim.cluster import Cluster
from sim.recording import COMPLETED, Columns, LinkMeter
from sim.transfers.flows import READ, WRITE, FlowNetwork

_METER_TOLERANCE: Final = 1e-6
# The parts of a TTFT are differences of clock times, each exact to half a unit in the last place of the time.
_ROUNDINGS: Final = 64


def check_books(cluster: Cluster, network: FlowNetwork, meter: LinkMeter) -> None:
    """Check that requests, tiers and links balance.

    Raises
    ------
    InvariantError
        If they do not: a defect of kvtier, never of the input.
    """
    if cluster.open_requests:
        message = f"{cluster.open_requests} of {cluster.submitted} requests never ended"
        raise InvariantError(message)
    check_requests(cluster.log.columns(), cluster.submitted)
    if cluster.decode is not None:
        cluster.decode.check()
    for pools in cluster.tiers.values():
        for tier in pools:
            tier.check()
    # A rate that begins or ends is a rounding of the clock off; that matters at late clock times only.
    roundings_s = 4.0 * network.flows_ended * ulp(cluster.clock.now_s)
    link_bytes = network.link_bytes
    for index, link in enumerate(network.links):
        for direction, bytes_per_s in ((READ, link.read_bytes_per_s), (WRITE, link.write_bytes_per_s)):
            asked = link_bytes[index][direction]
            moved = meter.total_bytes(index, direction)
            if not isclose(asked, moved, rel_tol=_METER_TOLERANCE, abs_tol=1.0 + roundings_s * bytes_per_s):
                message = f"link {link.name}: {asked} bytes were sent but {moved} were metered"
                raise InvariantError(message)


def check_requests(requests: Columns, submitted: int) -> None:
    """Check the table of ended requests.

    Every request ended exactly once; the prompt of one that was never preempted is its hit tokens and its computed
    tokens; where others decode, its KV was handed over; no part of a TTFT is negative.

    Raises
    ------
    InvariantError
        With the first request that does not balance.
    """
    ids = requests["request_id"]
    ends = np.bincount(ids, minlength=submitted)
    wrong = np.flatnonzero(ends != 1)
    if wrong.size:
        message = f"request {wrong[0]} of {submitted} ended {ends[wrong[0]]} times"
        raise InvariantError(message)
    served = requests["state"] == COMPLETED
    hits = sum(values for name, values in requests.items() if name.startswith("hit_tokens_"))
    counted = hits + requests["computed_prompt_tokens"]
    wrong = np.flatnonzero(served & (requests["preemptions"] == 0) & (counted != requests["prompt_tokens"]))
    if wrong.size:
        row = wrong[0]
        message = (
            f"request {ids[row]}: {requests['prompt_tokens'][row]} prompt tokens, but {counted[row]} hit or computed"
        )
        raise InvariantError(message)
    if "decode_replica" in requests:
        decoded = served & (requests["output_tokens"] > 0)
        tokens = requests["handover_tokens"]
        arrived = (requests["decode_replica"] >= 0) & (tokens > 0) & (tokens <= requests["prompt_tokens"])
        wrong = np.flatnonzero(decoded & ~arrived)
        if wrong.size:
            row = wrong[0]
            message = f"request {ids[row]}: {tokens[row]} of {requests['prompt_tokens'][row]} tokens were handed over"
            raise InvariantError(message)
    rounding_s = _ROUNDINGS * np.spacing(np.where(served, requests["finished_at_s"], 1.0))
    for name in ("queue_s", "load_s", "compute_s", "other_s", "handover_s", "decode_queue_s"):
        if name not in requests:
            continue  # of a disaggregated cluster only
        wrong = np.flatnonzero(served & ~(requests[name] >= -rounding_s))
        if wrong.size:
            message = f"request {ids[wrong[0]]}: {name} of its TTFT is {requests[name][wrong[0]]}"
            raise InvariantError(message)
