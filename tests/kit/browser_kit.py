"""Opens a page in headless Chromium and says what it met: errors, requests, and how large things came out."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium's own calls home are from no origin; what a page asks for has one ("null" for a file).
_NO_PAGE = "not an origin"
_PROBE = """
<script>
const round = box => [Math.round(box.width), Math.round(box.height)];
const seen = {
  drawings: [...document.querySelectorAll('.drawing svg')].map(svg => round(svg.getBoundingClientRect())),
  inked: [...document.querySelectorAll('.drawing svg')].map(svg => round(svg.getBBox())),
  text: [...document.querySelectorAll('.drawing svg text')].map(text => getComputedStyle(text).fill),
  paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
  over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
};
document.documentElement.setAttribute('data-seen', JSON.stringify(seen));
</script>
"""


@dataclass(frozen=True)
class Opened:
    """What a page did: lines on the console, URLs that it asked for beside itself, and what the probe saw."""

    console: list[str]
    requests: list[str]
    seen: dict[str, Any]


def browser() -> str | None:
    """Return the browser: that of KVTIER_BROWSER, or the first that is installed; None where there is none."""
    named = os.environ.get("KVTIER_BROWSER")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


def open_page(page: Path, folder: Path, *, dark: bool = False, width: int = 1200) -> Opened:
    """Open *page* as it is, then a copy with a script that measures; profiles and logs go to *folder*."""
    log = folder / "net.json"
    errors = _chromium(page, folder, f"--log-net-log={log}", "--enable-logging=stderr", dark=dark, width=width)[1]
    console = [line.partition("CONSOLE")[2] for line in errors.splitlines() if ":CONSOLE" in line]
    measured = folder / "measured.html"
    # The page itself allows no script; that is tested by what it asks for and by its text.
    text = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page.read_text(encoding="utf-8"))
    measured.write_text(text.replace("</body>", f"{_PROBE}</body>"), encoding="utf-8")
    dom = _chromium(measured, folder, dark=dark, width=width)[0]
    found = re.search(r"data-seen=\"([^\"]*)\"", dom)
    seen = json.loads(found[1].replace("&quot;", '"')) if found else {}
    return Opened(console=console, requests=_asked(log), seen=seen)


def print_page(page: Path, folder: Path) -> bytes:
    """Return the page as a PDF, as it would be printed."""
    pdf = folder / "page.pdf"
    _chromium(page, folder, f"--print-to-pdf={pdf}", "--no-pdf-header-footer", dump=False)
    return pdf.read_bytes()


def _chromium(
    page: Path, folder: Path, *options: str, dark: bool = False, width: int = 1200, dump: bool = True
) -> tuple[str, str]:
    program = browser()
    assert program is not None
    arguments = [
        program,
        "--headless",
        "--no-sandbox",  # root may not use it, and CI is root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--host-resolver-rules=MAP * ~NOTFOUND",  # nothing leaves this machine, not even Chromium's own calls
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},1600",
        *(["--force-dark-mode"] if dark else []),
        *options,
        *(["--dump-dom"] if dump else []),
        page.as_uri(),
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", timeout=120, check=True)
    return done.stdout, done.stderr


def _asked(log: Path) -> list[str]:
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    parameters = [event.get("params", {}) for event in events]
    return [one["url"] for one in parameters if "url" in one and one.get("initiator", _NO_PAGE) != _NO_PAGE]
