"""Standard input as a file: a trace is opened once to see its format and again for each run, and a pipe only once."""

import atexit
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from models.errors import TraceError

_NAME = "standard input"


@cache
def spooled_input() -> Path:
    """Return a temporary file with all that came over standard input, kept until the process ends.

    Raises TraceError where standard input is closed or a terminal, or where there is no room for the file.
    """
    if sys.stdin is None:
        raise TraceError(_NAME, "is closed; pipe a trace into it")
    if sys.stdin.isatty():
        raise TraceError(_NAME, "is a terminal; pipe a trace into it")
    try:
        folder = Path(tempfile.mkdtemp(prefix="kvtier-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = folder / _NAME
        with path.open("wb") as spool:
            shutil.copyfileobj(sys.stdin.buffer, spool, 1 << 20)
    except OSError as error:
        raise TraceError(_NAME, f"cannot be kept in a temporary file ({error.strerror or error})") from error
    return path
