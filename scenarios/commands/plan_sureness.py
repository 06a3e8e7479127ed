"""What `kvtier plan` prints of how sure it is."""

import sys
from collections.abc import Iterator

from scenarios.commands.tables import print_pairs, print_table
from scenarios.planning.answer import Plan
from scenarios.planning.sure_texts import HEADER, known_text, odds_pairs, odds_rows


def sure_line(found: Plan) -> Iterator[tuple[str, str]]:
    """Yield how sure the answer is by what is known without a run more."""
    hint = "" if found.sure.uncertainty is not None else "; --uncertainty 64 tells the odds"
    yield "how sure", known_text(found.to_dict()) + hint


def print_odds(found: Plan) -> None:
    """Print the odds that the limits hold, where they were asked for."""
    if found.sure.uncertainty is None:
        return
    said = found.to_dict()
    sys.stdout.write("\n")
    place = "the answer" if found.is_feasible else "what comes nearest"
    print_table(list(HEADER), odds_rows(said), title=f"odds that the limits hold with {place}", numbers_from=1)
    sys.stdout.write("\n")
    print_pairs(list(odds_pairs(said)))
