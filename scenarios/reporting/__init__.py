"""Reports: one page of HTML on a run, a comparison, a sweep, a plan or a gate, whole in itself."""

from pathlib import Path

from scenarios.reporting.kinds import sections_of
from scenarios.reporting.page import render
from scenarios.reporting.section import Section

__all__ = ["Section", "render", "report", "sections_of"]


def report(path: str | Path) -> str:
    """Return the page on what *path* holds. Raises InputError where that is nothing, or it is damaged."""
    from sim.results.result import versions

    version = versions()["kvtier"]
    made_by = "kvtier" if version == "not installed" else f"kvtier {version}"
    return render(sections_of(Path(path)), made_by=made_by)
