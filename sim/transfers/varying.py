"""Links whose capacity changes during a run: what a lost drive or port leaves of them."""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import SETTLE, Clock
from sim.transfers.classes import Meter
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.transfers.max_min import Path, Resource


class VaryingNetwork(FlowNetwork):
    """A network of flows that can be told how much of a link is left.

    Flows under way feel it at once. The ceilings of flows follow from the whole link: where less is left, the sharing
    holds them to that. No link is left out of the filling, for any may become the narrowest.

    Parameters
    ----------
    clock, links, meter
        As :class:`sim.transfers.flows.FlowNetwork` takes them.
    """

    def __init__(self, clock: Clock, links: Sequence[Link], meter: Meter) -> None:
        super().__init__(clock, links, meter)
        self._left = [[1.0, 1.0] for _ in links]
        self._whole: dict[Path, list[tuple[Resource, int, int, float]]] = {}
        """By path: resource, link, direction and weight of each of its hops while nothing is lost."""

    def path(self, hops: Sequence[Hop]) -> Path:
        """Resolve hops into a path of this network; raises as the network's does."""
        path = super().path(hops)
        parts = []
        for hop in hops:
            resource, i, weight = self._term(hop)
            parts.append((resource, i, hop.direction, weight))
        self._whole[path] = parts
        return path

    def shadow(self) -> None:
        """Keep every link of every path; raises as the network's does."""
        if self._active:
            raise RuntimeError("paths must be made before flows are under way")
        self._shadows_known = True

    def leave(self, link: str, read_share: float, write_share: float) -> None:
        """Leave these shares of a link's capacity from now on, for reads and for writes.

        Raises
        ------
        ValueError
            If a share is not above 0: a flow on such a link would never end.
        """
        if not (read_share > 0.0 and write_share > 0.0):
            message = f"link {link}: {read_share} and {write_share} of it are left; must be above 0"
            raise ValueError(message)
        index = self._index[link]
        self._left[index][READ], self._left[index][WRITE] = read_share, write_share
        changed: dict[Resource, None] = {}
        for path, parts in self._whole.items():
            if any(i == index for _, i, _, _ in parts):
                self._weigh(path, changed)
        for resource in changed:
            resource.demand = sum(
                weight * sum(ceiling for _, _, ceiling, _ in cls.ends) for cls, weight in resource.classes.items()
            )
            self._touched[resource] = None
        if not self._settling:
            self._settling = True
            self._clock.at(self._clock.now_s, SETTLE, self._on_settle)

    def _weigh(self, path: Path, changed: dict[Resource, None]) -> None:
        """Give a path, and the flows on it, the weights that follow from what is left of its links."""
        terms: dict[Resource, float] = {}
        for resource, i, direction, weight in self._whole[path]:
            terms[resource] = terms.get(resource, 0.0) + weight / self._left[i][direction]
        path.all_terms = path.terms = tuple(terms.items())
        for cls in path.classes.values():
            self._classes.advance(cls, self._clock.now_s)
            cls.terms = path.terms
            self._dirty[cls] = None
            for resource, weight in path.terms:
                resource.classes[cls] = weight
        changed.update(dict.fromkeys(terms))
