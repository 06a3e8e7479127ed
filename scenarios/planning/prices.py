"""What a scenario costs, as far as prices are known. Invents none, and changes no currency into another."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from models.errors import ScenarioError
from models.units import parse_quantity
from scenarios.build import Assembly
from scenarios.economics.bill import bill_of
from scenarios.planning.keys import Kind, Number, kind_of
from scenarios.schema import Scenario

_PRICE: Final = re.compile(r"(?P<amount>[0-9][0-9_]*(?:\.[0-9]+)?)\s*(?P<currency>[A-Z]{3})(?:\s+per\s+(?P<per>.+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is known of the price of a scenario.

    Parameters
    ----------
    amounts : dict
        By currency.
    lines : tuple of str
        What makes them up.
    missing : tuple of str
        Parts without a price.
    """

    amounts: dict[str, float] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Pricing(Protocol):
    """Knows what scenarios cost."""

    def cost(self, scenario: Scenario, assembly: Assembly) -> Cost:
        """Return the price of all parts, and which have none."""
        ...


class CataloguePrices:
    """Prices of parts as the catalogue has them (`scenarios.economics.bill`); of what it has none for, says so."""

    def cost(self, scenario: Scenario, assembly: Assembly) -> Cost:
        """Return the price of all parts, and which have none."""
        amounts: defaultdict[str, float] = defaultdict(float)
        lines: list[str] = []
        missing: list[str] = []
        for item in bill_of(scenario, assembly):
            for currency, price in item.prices.items():
                amounts[currency] += item.count * price
                lines.append(f"{item.count} x {item.what} at {price:,.0f} {currency}")
            if not item.prices:
                missing.append(item.what)
        return Cost(amounts=dict(amounts), lines=tuple(lines), missing=tuple(dict.fromkeys(missing)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrice:
    """What one unit of a quantity costs, as the user says: *amount* of *currency* for *per* of it (SI units)."""

    key: str
    amount: float
    currency: str
    per: float

    def of(self, value: Number) -> float:
        """Return the price of so much of it."""
        return self.amount * value / self.per

    def __str__(self) -> str:
        return f"{self.key} at {self.amount:,g} {self.currency} for each {self.per:,g}"


def parse_prices(texts: Sequence[str], scenario: Scenario) -> dict[str, UnitPrice]:
    """Return by key the prices that *texts* say: ``KEY=AMOUNT CURRENCY [per QUANTITY]``, one unit unless said.

    Raises
    ------
    InputError
        If one cannot be read, its key is no quantity, or currencies differ, since nothing here knows a rate.
    """
    found: dict[str, UnitPrice] = {}
    for text in texts:
        key, _, price = text.partition("=")
        key, where = key.strip(), f"--price {text}"
        parts = _PRICE.fullmatch(price.strip())
        if parts is None:
            raise ScenarioError(where, "must be KEY=AMOUNT CURRENCY [per QUANTITY], such as '500 EUR per TB'")
        if key in found:
            raise ScenarioError(where, f"{key} has two prices")
        kind = kind_of(key, scenario, where)
        found[key] = UnitPrice(
            key=key,
            amount=float(parts["amount"]),
            currency=parts["currency"],
            per=_per(parts["per"], kind, where),
        )
        if len({price.currency for price in found.values()}) > 1:
            raise ScenarioError(where, "prices must be of one currency: kvtier knows no rates of exchange")
    return found


def _per(text: str | None, kind: Kind, where: str) -> float:
    if text is None:
        if kind.dimension is not None:
            raise ScenarioError(where, "needs a unit, such as '500 EUR per TB'")
        return 1.0
    if not text[0].isdigit():
        text = f"1 {text}"
    value = parse_quantity(text, kind.dimension or "number", where)
    if value <= 0.0:
        raise ScenarioError(where, "a price is per more than 0")
    return value
