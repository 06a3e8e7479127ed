"""`kvtier report`: one page of HTML on what a folder or a file holds."""

import sys
from pathlib import Path

from models.errors import InputError
from scenarios.reporting import report
from scenarios.whole_files import write_whole_text
from sim.results.files import REPORT


def write_report(source: str, *, out: str | None) -> None:
    """Write the page, into the folder unless *out* says where, and say where it is. Raises InputError."""
    path = Path(source)
    target = _target(path, out)
    page = report(path)
    write_whole_text(target, page)
    sys.stdout.write(f"{target}\n")


def _target(path: Path, out: str | None) -> Path:
    if out is None:
        return path / REPORT if path.is_dir() else path.with_suffix(".html")
    target = Path(out)
    if target.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"--out {out}: must end in .html")
    if not target.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {target.parent}")
    return target
