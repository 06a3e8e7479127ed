"""What all tests share: how hypothesis runs, and where the real traces and measured results lie."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Helpers that several test files import (test folders are no packages).
sys.path.append(str(Path(__file__).parent / "kit"))

# A machine that is shared or slow may take any time for one example; that says nothing about the code under test.
settings.register_profile("kvtier", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kvtier")

# A relative path counts from the checkout, wherever pytest was started.
SHARED = (Path(__file__).parents[1] / os.environ.get("KVTIER_SHARED", "../shared")).resolve()


def pytest_report_header() -> str:
    """Say it in every report: without the data, the tests on real traces are skipped."""
    return f"real traces and measured results: {SHARED if SHARED.is_dir() else 'none (set KVTIER_SHARED)'}"


@pytest.fixture(scope="session")
def conversation_trace() -> Path:
    """The Mooncake conversation trace: an hour of 12,031 real chat requests."""
    path = SHARED / "traces" / "mooncake" / "conversation_trace.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path.name}: set KVTIER_SHARED to the folder that holds traces/")
    return path


@pytest.fixture(scope="session")
def measured_folder() -> Path:
    """The folder of measured results, for tests that hold tables of the project against their origin."""
    path = SHARED / "measured"
    if not path.is_dir():
        pytest.skip("no measured results: set KVTIER_SHARED to the folder that holds measured/")
    return path
