"""The parameters that ship come out of their fit again, and what that takes: `pytest -m benchmark -s`."""

import resource
import time

import pytest

from calibration.fit_plan import load_plan
from calibration.fitted_file import fitted_document
from calibration.fitting import fit
from scenarios.parameters import read_parameters

pytestmark = pytest.mark.benchmark


def number(value: object) -> float:
    return float(str(value).split()[0])


def cpu_s() -> float:
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def test_the_fit_that_ships_comes_out_again() -> None:
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    found = fitted_document(fit(load_plan("r1-r2")), command="", date="")["parameters"]
    print(f"\ncalibrate r1-r2: {time.perf_counter() - began_s:.0f} s, {cpu_s() - began_cpu_s:.0f} s of processor time")
    shipped = read_parameters("fitted/r1-r2").plain()["parameters"]
    assert list(found) == list(shipped)
    for key, parameter in found.items():
        assert number(parameter["value"]) == pytest.approx(number(shipped[key]["value"]), rel=0.01), key
        assert parameter["held_by"] == shipped[key]["held_by"], key
