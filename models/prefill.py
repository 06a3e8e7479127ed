"""How long a prompt takes to compute by itself: the steps of its prefill, added up."""

from models.operator_tables import OperatorTables
from models.step_times import StepTimes


def prefill_time_s(
    cost: StepTimes, tokens: int, *, budget: int, start: int = 0, window_tokens: int | None = None
) -> float:
    """Return the time to compute the first *tokens* tokens of a prompt in steps of *budget* tokens, nobody beside [s].

    The first *start* of them are in HBM already. *window_tokens* is the attention window of windowed layers. Raises
    ScenarioError where a table of measured steps does not cover one of the steps.
    """
    total_s = 0.0
    for done in range(start, tokens, budget):
        total_s += prefill_step_s(cost, done, min(budget, tokens - done), window_tokens=window_tokens)
    return total_s


def prefill_step_s(cost: StepTimes, done: int, new: int, *, window_tokens: int | None = None) -> float:
    """Return the time of a step that computes *new* tokens of one prompt after *done* tokens, nobody beside [s].

    Takes and raises the same as :func:`prefill_time_s`.
    """
    if isinstance(cost, OperatorTables):
        return cost.step_s([(done, new)])
    windowed = 0 if window_tokens is None else _windowed(done + new, window_tokens) - _windowed(done, window_tokens)
    return cost.step_s(
        tokens=new,
        sequences=1,
        prompts=1,
        pairs=new * done + new * (new + 1) // 2,
        window_pairs=windowed,
        context_tokens=done + new,
        window_context_tokens=0 if window_tokens is None else min(done, window_tokens) + new,
    )


def _windowed(tokens: int, window_tokens: int) -> int:
    """Return the (query, key) pairs of the first tokens when each sees a window."""
    inside = min(tokens, window_tokens)
    return inside * (inside + 1) // 2 + (tokens - inside) * window_tokens
