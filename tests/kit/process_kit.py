"""Looks at processes from outside, by /proc where the system has it."""

import os
import time
from pathlib import Path


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    # One that has ended and that nobody has asked about yet counts as gone.
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(processes: list[int], within_s: float = 10.0) -> bool:
    until_s = time.monotonic() + within_s
    while any(alive(process) for process in processes):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def in_group(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group:
                found.append(int(entry.name))
    return found
