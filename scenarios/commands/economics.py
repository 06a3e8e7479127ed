"""What `kvtier run` and `kvtier compare` print of money, energy and wear."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.commands.tables import print_pairs, print_table
from scenarios.comparison import Comparison
from scenarios.comparison.economics_texts import compared_rows, least_pairs
from scenarios.economics.economics_texts import cost_pairs, economics_warnings, tier_table


def print_economics(found: Mapping[str, Any]) -> None:
    """Print the economics of a run; what is missing or assumed goes to stderr."""
    sys.stdout.write("\n")
    print_pairs(cost_pairs(found))
    sys.stdout.write("\n")
    print_table(*tier_table(found), numbers_from=1)
    _warn(economics_warnings(found))


def print_compared_economics(comparison: Comparison) -> None:
    """Print what the variants cost and wear, and which wears least; what is missing or assumed goes to stderr."""
    table = compared_rows(comparison)
    if table is None:
        return
    header, rows = table
    sys.stdout.write("\n")
    print_table(header, rows, numbers_from=1)
    if least := list(least_pairs(comparison)):
        sys.stdout.write("\n")
        print_pairs(least)
    _warn(comparison.economics_warnings())


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        sys.stderr.write(f"kvtier: warning: {warning}\n")
