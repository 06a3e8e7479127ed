"""Where a verb may save a plot."""

from pathlib import Path
from typing import Final

from models.errors import InputError

SUFFIXES: Final = (".png", ".svg", ".pdf")


def check_plot_file(path: Path) -> None:
    """Raise InputError for a file that no plot can be saved to; to be asked before the work, not after it."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: there is no folder {path.parent}")
