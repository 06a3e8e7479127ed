"""What designs and steps cost, from prices that the user gave or those of the catalogue; None where nobody knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.build import assemble
from scenarios.planning.free import Load, Quantity
from scenarios.planning.keys import Number
from scenarios.planning.prices import CataloguePrices, Cost, Pricing, UnitPrice
from scenarios.planning.trials import Values


@dataclass(frozen=True, slots=True)
class Money:
    """Knows the price of quantities.

    Parameters
    ----------
    load : callable
        Returns the scenario with values set.
    given : mapping
        Prices of the user, by key; they win.
    catalogue : Pricing
        Prices of parts.
    """

    load: Load
    given: Mapping[str, UnitPrice]
    catalogue: Pricing = field(default_factory=CataloguePrices)

    def parts(self, values: Values) -> Cost:
        """Return what the parts of a scenario with *values* cost, and which have no price."""
        scenario = self.load(values)
        return self.catalogue.cost(scenario, assemble(scenario))

    def step(self, key: str, before: Number, after: Number, values: Values) -> tuple[float, str] | None:
        """Return what it costs to bring *key* from one value to another with *values* set: amount and currency.

        None where no price depends on it, or prices in several currencies do.
        """
        price = self.given.get(key)
        if price is not None:
            return price.of(after) - price.of(before), price.currency
        less, more = (self.parts({**values, key: value}).amounts for value in (before, after))
        steps = {currency: more.get(currency, 0.0) - less.get(currency, 0.0) for currency in more | less}
        moved = [(amount, currency) for currency, amount in steps.items() if amount]
        return moved[0] if len(moved) == 1 else None

    def measure(self, quantities: Sequence[Quantity]) -> Measure:
        """Return how designs of these quantities are compared by cost: in money if each has a price in one currency."""
        start = {quantity.key: quantity.values[quantity.start] for quantity in quantities}
        currencies: dict[str, str | None] = {}
        for quantity in quantities:
            found = self.step(quantity.key, quantity.values[0], quantity.values[-1], start)
            currencies[quantity.key] = None if found is None else found[1]
        unpriced = tuple(key for key, currency in currencies.items() if currency is None)
        known = set(currencies.values()) - {None}
        if unpriced or len(known) != 1:
            return Measure(money=self, quantities=tuple(quantities), unpriced=unpriced)
        return Measure(money=self, quantities=tuple(quantities), currency=known.pop())


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Compares designs by cost: in a currency, or, where prices are not known, by the quantities themselves.

    Parameters
    ----------
    money : Money
        The prices.
    quantities : tuple of Quantity
        What is free.
    currency : str or None
        Of the prices; None where quantities stand for themselves.
    unpriced : tuple of str
        Keys that no price depends on. Where it is empty and there is no currency, prices are in several.
    """

    money: Money
    quantities: tuple[Quantity, ...]
    currency: str | None = None
    unpriced: tuple[str, ...] = ()

    def cost(self, values: Values) -> float | None:
        """Return what a design costs in the currency, with all parts of the cluster that are priced in it."""
        if self.currency is None:
            return None
        given = self.money.given
        total = sum(given[key].of(value) for key, value in values.items() if key in given)
        if any(quantity.key not in given for quantity in self.quantities):
            total += self.money.parts(values).amounts[self.currency]
        return total

    def weigh(self, values: Values) -> float:
        """Return one number of which less is better: the cost, else the product of the quantities, each by its start.

        The product as a logarithm: half of one makes up for twice as much of another.
        """
        cost = self.cost(values)
        if cost is not None:
            return cost
        starts = {quantity.key: quantity.values[quantity.start] for quantity in self.quantities}
        return sum(math.log(value / starts[key]) for key, value in values.items())

    def costs(self, values: Values) -> tuple[float, ...]:
        """Return what no design of a front may beat in: the cost, else each quantity."""
        cost = self.cost(values)
        return tuple(values[quantity.key] for quantity in self.quantities) if cost is None else (cost,)
