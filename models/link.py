"""What a link carries: nominal rate, the share that is delivered, latency, and the cost of copying in small pieces."""

import bisect
import itertools
import math
from dataclasses import dataclass

from models.catalogue import Changes, Entry, load_changed
from models.errors import CatalogueError, UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link, one direction; `duplex` True: the other direction has the same rate of its own.

    `copy_curves` maps a direction ('h2d', 'd2h') to measured (piece [B], rate [B/s]) points of DMA copies in pieces.
    """

    name: str
    nominal_bytes_per_s: float
    delivered_fraction: float
    latency_s: float
    duplex: bool = True
    copy_curves: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    price_usd: float | None = None
    power_w: float | None = None
    status: str = "datasheet"
    caveats: tuple[str, ...] = ()
    economic_caveats: tuple[str, ...] = ()

    @property
    def delivered_bytes_per_s(self) -> float:
        """What large transfers get [B/s]."""
        return self.nominal_bytes_per_s * self.delivered_fraction

    def copy_bandwidth_bytes_per_s(self, piece_bytes: float, direction: str = "h2d") -> float:
        """Return the rate of copies made in pieces of *piece_bytes* [B/s]; without a curve, the delivered rate.

        Between measured points the rate is a power law of the size (straight on log-log axes); below the first the
        time a piece stays that of the first, above the last the rate does. Raises UnknownNameError for a direction
        that is not h2d or d2h.
        """
        if direction not in {"h2d", "d2h"}:
            raise UnknownNameError("copy direction", direction, ("h2d", "d2h"))
        points = dict(self.copy_curves).get(direction)
        if not points or piece_bytes <= 0:
            return self.delivered_bytes_per_s
        at = bisect.bisect_right(points, (piece_bytes, math.inf))
        if at == 0:
            return points[0][1] * piece_bytes / points[0][0]
        if at == len(points):
            return points[-1][1]
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        share = math.log(piece_bytes / x0) / math.log(x1 / x0)
        return y0 * math.pow(y1 / y0, share)


def link_from_entry(entry: Entry) -> Link:
    """Return the link an entry describes; raises CatalogueError for a zero rate or a curve that does not rise in x."""
    where = f"link {entry.name}"
    if entry.si("bandwidth") <= 0 or entry.si("delivered_fraction") <= 0:
        raise CatalogueError(where, "bandwidth and delivered_fraction must be above 0")
    curves = []
    for name, curve in entry.curves.items():
        x, y = curve.x_bytes, curve.y_bytes_per_s
        rising = all(left < right for left, right in itertools.pairwise(x))
        if len(x) != len(y) or not rising or min(x[0], *y) <= 0:
            raise CatalogueError(f"{where}: curves.{name}", "needs as many y as x, x rising, all above 0")
        curves.append((name, tuple(zip(x, y, strict=True))))
    return Link(
        name=entry.name,
        nominal_bytes_per_s=entry.si("bandwidth"),
        delivered_fraction=entry.si("delivered_fraction"),
        latency_s=entry.si("latency"),
        duplex=entry.traits.get("duplex", "yes") == "yes",
        copy_curves=tuple(curves),
        price_usd=entry.optional_si("price"),
        power_w=entry.optional_si("power"),
        status=entry.status,
        caveats=entry.caveats,
        economic_caveats=entry.economic_caveats,
    )


def load_link(name: str, changes: Changes | None = None) -> Link:
    """Return a link by catalogue name or from a .yaml file, with figures of *changes* in place of its own.

    Raises UnknownNameError, CatalogueError.
    """
    return link_from_entry(load_changed("link", name, changes))
