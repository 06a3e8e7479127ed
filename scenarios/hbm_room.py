"""How much of a replica's HBM is for KV: what the weights leave, or what a scenario states in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.accelerator import Accelerator
from models.llm import Llm
from models.roofline import kv_capacity_bytes
from models.units import format_bytes
from scenarios.schema import Cluster, Scenario


def kv_cache_bytes(scenario: Scenario, llm: Llm, accelerator: Accelerator, *, default_utilization: float) -> int:
    """Return the KV cache of one replica in HBM [B]; raises CatalogueError where the weights do not fit at all."""
    stated, engine = scenario.tiers["hbm"].capacity, scenario.engine
    # A stated capacity stands in for what the utilization leaves, but weights that do not fit at all cannot run.
    utilization = 1.0 if stated is not None else engine.gpu_memory_utilization or default_utilization
    left_bytes = _left_bytes(scenario.cluster, engine.weight_dtype, llm, accelerator, utilization)
    return left_bytes if stated is None else int(stated)


def beyond_room(scenario: Scenario, llm: Llm, accelerators: Sequence[Accelerator]) -> Iterator[str]:
    """Yield a warning for each kind of replica whose stated KV cache is larger than all that the weights leave.

    *accelerators* are those of the replicas, and of those that only decode where there are any.
    """
    stated, cluster = scenario.tiers["hbm"].capacity, scenario.cluster
    if stated is None:
        return
    clusters = [cluster] if cluster.decode is None else [cluster, cluster.decoding()]
    for kind, accelerator in zip(clusters, accelerators, strict=True):
        left_bytes = _left_bytes(kind, scenario.engine.weight_dtype, llm, accelerator, 1.0)
        if stated > left_bytes:
            gpus = f"{kind.tensor_parallel * kind.pipeline_parallel} x {accelerator.name}"
            left = f"the weights of {llm.name} leave {format_bytes(left_bytes)} of a replica's HBM on {gpus}"
            yield f"tiers.hbm.capacity is {format_bytes(stated)}, but {left}"


def _left_bytes(
    cluster: Cluster, weight_dtype: str | None, llm: Llm, accelerator: Accelerator, utilization: float
) -> int:
    return kv_capacity_bytes(
        llm,
        accelerator,
        tensor_parallel=cluster.tensor_parallel,
        pipeline_parallel=cluster.pipeline_parallel,
        gpu_memory_utilization=utilization,
        weight_dtype=weight_dtype,
    )
