"""The parts of a scenario and their prices, as the catalogue, or the scenario in its place, has them. Invents none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from models.accelerator import Accelerator
from models.link import load_link
from scenarios.build import Assembly
from scenarios.schema import Scenario
from scenarios.topology.parts import Part

_NETWORK: Final = ("nic", "switch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """So many of a part, and what one costs.

    Parameters
    ----------
    what : str
        Its name.
    role : str
        ``accelerators``, ``servers``, ``nic``, ``switch``, or the tier's name.
    count : int
        How many.
    prices : dict
        Of one, by currency; empty where nobody knows.
    power_w : float or None
        Of one at work [W], for what draws the same whatever it does: servers and network.
    caveats : tuple of str
        Figures of price, power and wear that nobody vouches for.
    """

    what: str
    role: str
    count: int
    prices: dict[str, float]
    power_w: float | None = None
    caveats: tuple[str, ...] = ()


def bill_of(scenario: Scenario, assembly: Assembly) -> list[Item]:
    """Return accelerators, their servers, tiers, and network cards and ports of switches."""
    counts: Counter[str] = Counter()
    known: dict[str, Accelerator] = {}
    for gpu, count in accelerators(scenario, assembly):
        counts[gpu.name] += count
        known[gpu.name] = gpu
    items = [
        Item(
            what=name,
            role="accelerators",
            count=count,
            prices=_usd(known[name].price_usd),
            caveats=known[name].economic_caveats,
        )
        for name, count in counts.items()
    ]
    items += [
        Item(
            what=f"share of a server with {name}",
            role="servers",
            count=count,
            prices=_usd(known[name].host_price_usd),
            power_w=known[name].host_power_w,
        )
        for name, count in counts.items()
    ]
    items += [_tier(part, assembly) for part in assembly.topology.parts if not part.is_page_cache]
    return [*items, *_network(scenario, assembly)]


def accelerators(scenario: Scenario, assembly: Assembly) -> list[tuple[Accelerator, int]]:
    """Return the accelerator of each pool of replicas, and how many of it: those that take prompts, then the others."""
    cluster = scenario.cluster
    found = [(assembly.accelerator, assembly.engines.sizes.workers * cluster.replicas)]
    if cluster.decode is not None and assembly.decoding is not None:
        engines = assembly.decoding.engines
        found.append((engines.accelerator, engines.sizes.workers * cluster.decode.replicas))
    return found


def capacity_of(part: Part, assembly: Assembly) -> int:
    """Return how large one place of a tier is [B]: its device where that is known, else what its KV takes there."""
    if part.device.capacity_bytes is not None:
        return part.device.capacity_bytes
    return round(assembly.topology.pools()[part.name][0].capacity_bytes * part.layout.overhead)


def _tier(part: Part, assembly: Assembly) -> Item:
    device = part.device
    prices = _usd(device.price_usd)
    if device.price_cny is not None:
        prices["CNY"] = device.price_cny
    if not prices and device.price_usd_per_byte is not None:
        prices["USD"] = device.price_usd_per_byte * capacity_of(part, assembly)
    places = len(assembly.topology.pools()[part.name])
    return Item(what=device.name, role=part.name, count=places, prices=prices, caveats=device.economic_caveats)


def _network(scenario: Scenario, assembly: Assembly) -> Iterator[Item]:
    cluster = scenario.cluster
    for family in _NETWORK:
        entry = cluster.nic if family == "nic" else cluster.switch
        count = sum(name.partition(".")[0] == family for name in assembly.topology.links.by_name)
        if entry is not None and count:
            link = load_link(entry, scenario.changes())
            yield Item(
                what=link.name,
                role=family,
                count=count,
                prices=_usd(link.price_usd),
                power_w=link.power_w,
                caveats=link.economic_caveats,
            )


def _usd(price: float | None) -> dict[str, float]:
    return {} if price is None else {"USD": price}
