"""A quadratic through the draws, and the Sobol indices that it has in closed form. Pure functions.

Inputs are normal and may be correlated, as fitted parameters are. The first-order index of an input is the share of the
variance that would go if it were known, what it tells of correlated ones included; the total index is the share that
would be left if all others were known (Kucherenko, Tarantola and Annoni 2012, Comput. Phys. Commun. 183, 937).
For independent inputs these are Sobol's. With y = c + b'x + x'Ax and x ~ N(0, R), both follow from moments of normals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sim.arrays import Floats

_ENOUGH: Final = 1e-10
"""Share of the variance below which nothing is left to explain but rounding."""
_MOST_TERMS_SHARE: Final = 0.25
"""Terms of a quadratic per draw: with more, it would follow the draws and not what they are of."""

Term = tuple[int, ...]
"""One input, or two whose product is meant, the same twice for a square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quadratic:
    """c + b'x + x'Ax.

    ``explained`` is the share of the variance of draws that it predicts when each is left out of its making; ``terms``
    are those that it was given.
    """

    linear: Floats
    square: Floats
    terms: tuple[Term, ...]
    explained: float


def columns(x: Floats, terms: tuple[Term, ...]) -> Floats:
    """Return a constant and each term's value in every draw."""
    return np.column_stack([np.ones(len(x)), *(x[:, list(term)].prod(axis=1) for term in terms)])


def fit_quadratic(x: Floats, y: Floats) -> Quadratic:
    """Return a quadratic of few terms through *y* at *x*, a row a draw.

    Terms are added while each explains more than chance among so many would: the extended BIC (Chen and Chen 2008,
    Biometrika 95, 759, gamma 1). Products come into question with inputs that are in already.
    """
    size = x.shape[1]
    terms: tuple[Term, ...] = ()
    centred = y - y.mean()
    total = float(centred @ centred)
    left, best = total, _criterion(total, len(y), 0, size)
    while total > 0.0 and left > _ENOUGH * total and len(terms) < _MOST_TERMS_SHARE * len(y):
        candidates = _candidates(size, terms)
        if not candidates:
            break
        term, after = _strongest(x, y, terms, candidates)
        now = _criterion(max(after, _ENOUGH * total), len(y), len(terms) + 1, len(candidates))
        if now >= best:
            break
        terms, left, best = (*terms, term), after, now
    return refit(x, y, terms)


def refit(x: Floats, y: Floats, terms: tuple[Term, ...]) -> Quadratic:
    """Return the quadratic of given *terms* through *y* at *x*, by least squares."""
    size = x.shape[1]
    matrix = columns(x, terms)
    found, *_ = np.linalg.lstsq(matrix, y, rcond=None)
    linear, square = np.zeros(size), np.zeros((size, size))
    for term, factor in zip(terms, found[1:], strict=True):
        if len(term) == 1:
            linear[term[0]] += factor
        else:
            square[term[0], term[1]] += factor / 2.0
            square[term[1], term[0]] += factor / 2.0
    basis, _ = np.linalg.qr(matrix)
    leverage = np.einsum("ij,ij->i", basis, basis)
    left_out = (y - matrix @ found) / np.clip(1.0 - leverage, 1e-9, None)
    variance = float(y.var())
    explained = 1.0 - float((left_out**2).mean()) / variance if variance else 0.0
    return Quadratic(linear=linear, square=square, terms=terms, explained=max(explained, 0.0))


def first_order(quadratic: Quadratic, correlation: Floats) -> Floats:
    """Return the variance of E[y | x_i] for each input, in units of y squared."""
    line = correlation @ quadratic.linear
    bend = np.einsum("ji,jk,ki->i", correlation, quadratic.square, correlation)
    return np.asarray(line**2 + 2.0 * bend**2, dtype=np.float64)


def total_effect(quadratic: Quadratic, correlation: Floats) -> Floats:
    """Return E[Var(y | all but x_i)] for each input, in units of y squared."""
    size = len(correlation)
    found = np.zeros(size)
    for i in range(size):
        others = np.delete(np.arange(size), i)
        among, with_i = correlation[np.ix_(others, others)], correlation[others, i]
        weights = np.linalg.lstsq(among, with_i, rcond=None)[0]  # of the best guess of x_i from the others
        left = max(1.0 - float(with_i @ weights), 0.0)
        slope = 2.0 * (quadratic.square[i, others] + quadratic.square[i, i] * weights)
        mean_square = quadratic.linear[i] ** 2 + float(slope @ among @ slope)
        found[i] = left * mean_square + 2.0 * (quadratic.square[i, i] * left) ** 2
    return found


def _criterion(left: float, draws: int, terms: int, candidates: int) -> float:
    return draws * float(np.log(max(left, 1e-300))) + terms * (
        float(np.log(draws)) + 2.0 * float(np.log(max(candidates, 1)))
    )


def _candidates(size: int, terms: tuple[Term, ...]) -> list[Term]:
    inside = {i for term in terms for i in term}
    products = {(min(i, j), max(i, j)) for i in inside for j in range(size)} | {(i, i) for i in range(size)}
    return [term for term in [*((i,) for i in range(size)), *sorted(products)] if term not in terms]


def _strongest(x: Floats, y: Floats, terms: tuple[Term, ...], candidates: list[Term]) -> tuple[Term, float]:
    """Return the candidate that explains most of what the *terms* leave of *y*, and what is left then."""
    basis, _ = np.linalg.qr(columns(x, terms))
    offered = columns(x, tuple(candidates))[:, 1:]
    rest = y - basis @ (basis.T @ y)
    own = offered - basis @ (basis.T @ offered)
    size = np.einsum("ij,ij->j", own, own)
    is_new = size > _ENOUGH * np.einsum("ij,ij->j", offered, offered)
    gain = np.where(is_new, (own.T @ rest) ** 2 / np.where(is_new, size, 1.0), 0.0)
    at = int(np.argmax(gain))
    return candidates[at], float(rest @ rest - gain[at])
