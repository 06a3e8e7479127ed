"""Small runs, comparisons, sweeps and plans to be reported, and a look into the pages."""

from html.parser import HTMLParser
from pathlib import Path

from scenarios import cli

SMALL = (
    "quickstart",
    "--set",
    "workload.synthetic.requests=120",
    "--set",
    "tiers.hbm.capacity=8 GB",
    "--set",
    "workload.synthetic.length_scale=0.5",
)
VARIED = "tiers.dram.capacity=2 GB,60 GB"
_VOID = {"meta", "link", "br", "img", "hr", "input"}


def save_all(folder: Path) -> None:
    """Write a run, a comparison, a sweep and a plan of one small scenario into *folder*."""
    assert cli.main(["run", *SMALL, "--uncertainty", "8", "--jobs", "1", "--out", str(folder / "run")]) == 0
    assert cli.main(["compare", *SMALL, "--vary", VARIED, "--jobs", "1", "--out", str(folder / "compared")]) == 0
    keys = ["--grid", VARIED, "--grid", "workload.rate_scale=1,3"]
    assert cli.main(["sweep", *SMALL, *keys, "--jobs", "1", "--out", str(folder / "swept.parquet")]) == 0
    wanted = ["--slo", "ttft_s.p90<=0.8 s", "--solve", "tiers.dram.capacity=2 GB,20 GB,60 GB"]
    assert cli.main(["plan", *SMALL, *wanted, "--no-margins", "--jobs", "1", "--out", str(folder / "planned")]) == 0


class Page(HTMLParser):
    """A page taken apart: its elements with attributes, and that they are nested as they must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += f"{data} "

    def all(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]
