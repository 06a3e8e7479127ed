"""Reports in a real browser: no error, nothing asked for, all drawings there, in light and dark and on paper."""

import re
import zlib
from pathlib import Path

import pytest
from browser_kit import browser, open_page, print_page
from report_kit import save_all

from scenarios.reporting import report

pytestmark = pytest.mark.skipif(browser() is None, reason="no Chromium (apt-get install chromium, or KVTIER_BROWSER)")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page on a run, a comparison, a sweep and a plan at once."""
    folder = tmp_path_factory.mktemp("reported")
    save_all(folder)
    path = folder / "report.html"
    path.write_text(report(folder), encoding="utf-8")
    return path


@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 1200), (False, 420)])
def test_a_page_opens_without_errors_and_shows_its_drawings(page: Path, dark: bool, width: int, tmp_path: Path) -> None:
    opened = open_page(page, tmp_path, dark=dark, width=width)
    assert opened.console == []
    assert opened.requests == []
    seen = opened.seen
    drawn = page.read_text(encoding="utf-8").count("<figure")
    assert len(seen["drawings"]) == drawn >= 15
    assert all(across >= 250 and up >= 80 for across, up in seen["drawings"])
    assert all(across > 100 and up > 50 for across, up in seen["inked"])
    assert seen["over"] <= 0, "the page is wider than its window"
    # The scheme reached the page and the drawings: text is as far from the paper as it should be.
    assert (_brightness(seen["paper"]) < 60) == dark
    assert (_brightness(seen["ink"]) > 180) == dark
    axis = [_brightness(colour) for colour in seen["text"] if colour not in {"rgb(0, 0, 0)", "rgb(255, 255, 255)"}]
    assert axis
    assert all((brightness > 120) == dark for brightness in axis)


def test_on_paper_what_is_folded_is_open(page: Path, tmp_path: Path) -> None:
    pdf = print_page(page, tmp_path)
    assert pdf.startswith(b"%PDF")
    folded = re.sub(r"<details.*?</details>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "without.html").write_text(folded, encoding="utf-8")
    assert _pages(pdf) > _pages(print_page(tmp_path / "without.html", tmp_path)) + 2


def test_what_is_looked_for_would_be_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><html><body><img src='http://127.0.0.1:9/x.png'><script>console.error('oops')</script></body>",
        encoding="utf-8",
    )
    opened = open_page(bad, tmp_path)
    assert any("oops" in line for line in opened.console)
    assert opened.requests == ["http://127.0.0.1:9/x.png"]


def _brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in re.findall(r"[\d.]+", colour)[:3])
    return (red + green + blue) / 3.0


def _pages(pdf: bytes) -> int:
    """Return the number of pages, also of a PDF whose objects are in compressed streams."""
    texts = [pdf]
    for found in re.finditer(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            texts.append(zlib.decompress(found[1]))
        except zlib.error:
            continue
    return sum(len(re.findall(rb"/Type\s*/Page\b(?!s)", text)) for text in texts)
