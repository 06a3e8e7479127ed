"""Placements: when a tier is written."""

from typing import Any, ClassVar, get_args

from models.errors import InputError
from sim.policies.base import PLACEMENT, Writes
from sim.run_sets import RunCounts
from sim.runs import Runs


def writes_of(name: str) -> Writes:
    """Return when the placement called *name* writes; raises as ``PLACEMENT.get`` does, InputError for a wrong one."""
    placement: Any = PLACEMENT.get(name)
    writes: Writes = placement.writes
    if writes not in get_args(Writes):
        raise InputError(f"placement '{name}': writes is {writes!r}; must be one of {', '.join(get_args(Writes))}")
    return writes


@PLACEMENT.register("write-through")
class WriteThrough:
    """What was computed is written at once, when its prompt is in HBM (LMCache, vLLM, SGLang's write_through)."""

    writes: ClassVar[Writes] = "at-use"


@PLACEMENT.register("write-through-selective")
class WriteThroughSelective:
    """A chunk is written at its use number ``uses``, and again at each later one where the tier has lost it.

    The uses of a chunk are the prompts that have it, whoever serves it; they are counted from the beginning of the run.
    Sources: SGLang's write_through_selective (hit_count of 2), vLLM's store_threshold (from 2 on; it forgets all but
    64,000 chunks), Dynamo KVBM's filter before its disk (2).

    Parameters
    ----------
    uses : int
        At which use a chunk is written; 1 writes what write-through writes, and what a lower tier served.
    """

    writes: ClassVar[Writes] = "at-use"

    def __init__(self, *, uses: int = 2) -> None:
        if uses < 1:
            raise InputError(f"uses is {uses}; must be at least 1")
        self._uses = uses
        self._counts = RunCounts()

    def used(self, chunks: Runs) -> Runs:
        """Count a use of these chunks and return those that have had enough."""
        for run in chunks:
            self._counts.add(run)
        return [part for run in chunks for part in self._counts.at_least(run, self._uses)]


@PLACEMENT.register("write-back")
class WriteBack:
    """What the tier above evicts is written, unless it is here already (SGLang's write_back, TensorRT-LLM, Mooncake).

    The room above comes free when the write has ended.
    """

    writes: ClassVar[Writes] = "at-eviction"


@PLACEMENT.register("none")
class NoPlacement:
    """Nothing is written, except what a promotion keeps."""

    writes: ClassVar[Writes] = "never"
