"""Errors survive pickling and being rebuilt from their arguments, as SimPy and process pools do."""

import pickle

import pytest

from models.errors import (
    CatalogueError,
    InputError,
    InvariantError,
    KvTierError,
    ScenarioError,
    SimulationError,
    TraceError,
    UnknownNameError,
)

EXAMPLES = [
    KvTierError("plain"),
    InputError("bad"),
    ScenarioError("tiers.dram", "unknown key"),
    TraceError("trace.jsonl.gz:17", "input_length is -5; must be at least 1"),
    CatalogueError("x.yaml", "not YAML"),
    UnknownNameError("llm", "lama-3.1-8b", ["llama-3.1-8b", "qwen3-8b"]),
    SimulationError("failed"),
    InvariantError("bytes do not add up"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_rebuilt_and_pickled_errors_say_the_same(error: KvTierError) -> None:
    assert str(type(error)(*error.args)) == str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_messages() -> None:
    assert str(EXAMPLES[3]) == "trace.jsonl.gz:17: input_length is -5; must be at least 1"
    assert str(EXAMPLES[5]) == (
        "unknown llm 'lama-3.1-8b'; did you mean 'llama-3.1-8b'? (allowed: llama-3.1-8b, qwen3-8b)"
    )


def test_no_hint_where_nothing_is_close_and_long_lists_are_cut() -> None:
    message = str(UnknownNameError("router", "zzzzzz", [f"name-{i}" for i in range(60)]))
    assert "did you mean" not in message
    assert message.endswith("and 20 more)")


def test_bad_input_and_failed_runs_are_apart() -> None:
    for bad in (ScenarioError, TraceError, CatalogueError, UnknownNameError):
        assert issubclass(bad, InputError)
    assert not issubclass(SimulationError, InputError)
