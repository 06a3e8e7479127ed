"""Measured step times: read strictly, interpolated on the grid, refused outside it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ScenarioError
from models.step_table import StepTable, load_step_table

GOOD = """\
# eight H200, driver 580, 2026-01-01
tokens,context_tokens,step_s
1,0,0.010
1,1000,0.020
1,4000,0.080

100,0,0.030
100,1000,0.060
100,4000,0.120
"""


@pytest.fixture
def steps(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "steps.csv"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def step_s(table: StepTable, tokens: int, context_tokens: int) -> float:
    return table.step_s(tokens=tokens, pairs=1, window_pairs=1, context_tokens=context_tokens, window_context_tokens=1)


def test_grid_points_are_exact_and_what_lies_between_is_bilinear(steps):
    table = load_step_table(steps(GOOD))
    assert step_s(table, 1, 1000) == 0.020
    assert step_s(table, 100, 4000) == pytest.approx(0.120, rel=1e-15)
    assert step_s(table, 1, 2500) == pytest.approx(0.050)
    # Tokens 34 lie a third of the way from 1 to 100.
    assert step_s(table, 34, 0) == pytest.approx(0.010 + 0.020 / 3)
    assert step_s(table, 34, 500) == pytest.approx((0.010 + 0.020) / 2 * 2 / 3 + (0.030 + 0.060) / 2 / 3)


def test_columns_come_in_any_order(steps):
    lines = [line.split(",") for line in GOOD.splitlines() if line and not line.startswith("#")]
    shuffled = "\n".join(",".join((c, a, b)) for a, b, c in lines)
    assert load_step_table(steps(shuffled)).times_s == load_step_table(steps(GOOD)).times_s


@given(tokens=st.integers(1, 100), context=st.integers(0, 4000), more=st.integers(0, 4000))
def test_lines_hold_up_to_the_grid_line_that_they_name(tokens, context, more):
    table = StepTable(
        where="t",
        tokens=(1, 7, 100),
        context_tokens=(0, 10, 1000, 4000),
        times_s=((1, 2, 3, 3), (2, 2, 4, 9), (5, 6, 7, 8)),
    )
    first_s, slope_s, end = table.decode_line(tokens, context)
    assert slope_s >= 0.0
    assert context <= end
    later = min(context + more, end)
    assert first_s + slope_s * (later - context) == pytest.approx(step_s(table, tokens, later), rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "context", "problem"),
    [
        (101, 0, "has steps of 1 to 100 tokens; this run has one of 101"),
        (0, 0, "has steps of 1 to 100 tokens; this run has one of 0"),
        (1, 4001, "has steps of 0 to 4000 context tokens; this run has one of 4001"),
    ],
)
def test_steps_outside_the_grid_are_refused(steps, tokens, context, problem):
    path = steps(GOOD)
    with pytest.raises(ScenarioError) as caught:
        step_s(load_step_table(path), tokens, context)
    assert str(caught.value).startswith(f"{path}: {problem}")


@pytest.mark.parametrize(
    ("old", "new", "where", "problem"),
    [
        (
            "tokens,context_tokens,step_s",
            "tokens,context,step_s",
            ":2",
            "must name the columns tokens,context_tokens,step_s",
        ),
        ("1,0,0.010", "1,0", ":3", "has 2 values; must have 3"),
        ("1,0,0.010", "one,0,0.010", ":3", "tokens is 'one'; must be a whole number"),
        ("1,0,0.010", "0,0,0.010", ":3", "tokens is 0; must be at least 1"),
        ("1,0,0.010", "1,-1,0.010", ":3", "context_tokens is -1; must be at least 0"),
        ("0.010", "fast", ":3", "step_s is 'fast'; must be a number of seconds"),
        ("0.010", "0", ":3", "step_s is 0; must be above 0 and finite"),
        ("0.010", "nan", ":3", "step_s is nan; must be above 0 and finite"),
        ("0.010", "inf", ":3", "step_s is inf; must be above 0 and finite"),
        ("1,1000,0.020", "1,0,0.020", ":4", "repeats tokens 1, context_tokens 0 of line 3"),
        ("100,1000,0.060\n", "", "", "lacks tokens 100, context_tokens 1000; the grid must be full"),
        ("0.060", "0.029", ":8", "more context must not be faster"),
    ],
)
def test_each_bad_line_is_named(steps, old, new, where, problem):
    path = steps(GOOD.replace(old, new, 1))
    with pytest.raises(ScenarioError) as caught:
        load_step_table(path)
    assert caught.value.where == path + where
    assert problem in caught.value.problem


def test_files_that_are_no_tables(steps, tmp_path):
    for text, problem in (("", "got nothing"), ("tokens,context_tokens,step_s\n1,0,1\n", "has 1 values of tokens")):
        with pytest.raises(ScenarioError, match=problem):
            load_step_table(steps(text))
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        load_step_table(str(tmp_path / "none.csv"))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load_step_table(str(tmp_path / "binary.csv"))
