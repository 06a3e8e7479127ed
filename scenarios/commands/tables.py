"""Prints tables and JSON on stdout; rich loads only for a table."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# Columns of a pipe or a file, where nothing tells the width; wide enough that figures are not cut.
_WIDTH_WITHOUT_TERMINAL = 160


def print_json(value: Any) -> None:
    """Print one JSON value; ValueError for NaN or infinity, which JSON does not have."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None, numbers_from: int | None = None
) -> None:
    """Print rows under a header; columns from *numbers_from* on are aligned right, the last text column may wrap."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    # A name such as 'a[b]' is no markup, and ':x:' no picture.
    console = Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, name in enumerate(header):
        is_number = numbers_from is not None and index >= numbers_from
        is_text = index == len(header) - 1 and not is_number
        table.add_column(name, justify="right" if is_number else "left", no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_pairs(pairs: Iterable[tuple[str, str]], *, title: str | None = None) -> None:
    """Print names and values, one pair a line."""
    rows = list(pairs)
    width = max((len(name) for name, _ in rows), default=0)
    lines = [title] if title else []
    lines += [f"{name:<{width}}  {value}".rstrip() for name, value in rows]
    sys.stdout.write("\n".join(lines) + "\n")
