import io
import itertools
import json
import math
import tarfile
from pathlib import Path

import numpy as np
import pytest

from models.errors import InputError
from sim.generators import GENERATORS
from sim.generators.servegen import ServeGenGenerator, _arrivals
from sim.traces.record import TraceRecord
from sim.traces.servegen_files import ArrivalWindow

N_CLIENTS, N_WINDOWS = 43, 36
HOURS_6_S = N_WINDOWS * 600.0
TOTAL_RATE_PER_S = 4.0


def shares() -> list[float]:
    """Rates of clients with the skew of ServeGen's m-small: the first has .30, 5 % of them .52 and 10 % .71 of all."""
    rest = [1 / rank for rank in range(5, N_CLIENTS + 1)]
    return [0.30, 0.22, 0.12, 0.07, *(0.29 * share / sum(rest) for share in rest)]


def shape_of(client: int) -> tuple[str, float, float]:
    """Family, shape and CV: the largest clients are nearly Poisson, the fifth comes in bursts."""
    if client == 4:
        return "Gamma", 0.04, 5.0
    if client % 4 == 1:
        shape = 0.82
        return "Weibull", shape, math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    return "Gamma", 0.67, 0.67**-0.5


def client_files() -> dict[str, str]:
    files = {}
    for client, share in enumerate(shares()):
        family, shape, cv = shape_of(client)
        rows = []
        for window in range(N_WINDOWS):
            # Busier by a half in the second of three hours out of six; the scale column is not what sets the rate.
            rate = TOTAL_RATE_PER_S * share * (1.5 if window >= N_WINDOWS / 2 else 0.5)
            rows.append(f"{600 * window},{rate},{cv},{family},{shape},1")
        files[f"chunk-{client}-trace.csv"] = "\n".join(rows) + "\n"
        # Each client has one length of its own, by which its requests are told.
        fields = {"input_tokens": f"{{{1000 + client}: 1.0}}", "output_tokens": "{7: 0.5, 9: 0.5}"}
        files[f"chunk-{client}-dataset.json"] = json.dumps({"0": fields})
    return files


def archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(f"model/{name}")
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content.encode()))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return archive(tmp_path_factory.mktemp("servegen") / "m-small.tar.gz", client_files())


@pytest.fixture(scope="module")
def records(model) -> list[TraceRecord]:
    return list(ServeGenGenerator(path=model, duration_s=HOURS_6_S).trace().records())


def of_client(records: list[TraceRecord], client: int) -> np.ndarray:
    return np.array([record.arrived_at_s for record in records if record.prompt_tokens == 1000 + client])


def test_rates_are_those_of_the_files(records):
    assert len(records) / HOURS_6_S == pytest.approx(TOTAL_RATE_PER_S, rel=0.03)
    in_first_half = sum(record.arrived_at_s < HOURS_6_S / 2 for record in records)
    assert in_first_half / len(records) == pytest.approx(0.25, abs=0.015)
    arrivals_s = [record.arrived_at_s for record in records]
    assert arrivals_s == sorted(arrivals_s)


def test_clients_are_as_unequal_as_those_of_the_service(records):
    # ServeGen, m-small: the first client, 5 % and 10 % of the clients have .30, .52 and .71 of the rate.
    counts = np.sort([len(of_client(records, client)) for client in range(N_CLIENTS)])[::-1]
    shares_seen = np.cumsum(counts)[[0, 1, 3]] / len(records)
    assert shares_seen == pytest.approx([0.30, 0.52, 0.71], abs=0.015)


def test_each_client_bursts_in_its_own_way(records):
    # Inside the second half, where rates stand still.
    measured, weights = [], []
    for client in range(5):
        gaps_s = np.diff([at_s for at_s in of_client(records, client) if at_s > HOURS_6_S / 2])
        measured.append(gaps_s.std() / gaps_s.mean())
        weights.append(len(gaps_s))
        assert measured[-1] == pytest.approx(shape_of(client)[2], rel=0.06 if client != 4 else 0.2)
    # Rate-weighted: half of the requests come from clients with a CV near 1.22, as in m-small.
    in_order = np.argsort(measured)
    median = np.searchsorted(np.cumsum(np.array(weights)[in_order]) / sum(weights), 0.5)
    assert measured[in_order[median]] == pytest.approx(1.22, rel=0.06)


def test_lengths_are_drawn_from_the_clients_distributions(records):
    assert {record.output_tokens for record in records} == {7, 9}
    assert np.mean([record.output_tokens for record in records]) == pytest.approx(8.0, abs=0.05)
    assert not any(record.block_ids for record in records)


def test_idle_windows_and_later_lengths(tmp_path):
    files = {
        "chunk-0-trace.csv": "0,2,1,Gamma,1,1\n600,0,0,,0,0\n1200,2,1,Weibull,1,1\n",
        "chunk-0-dataset.json": json.dumps(
            {
                "0": {"input_tokens": "{10: 1.0}", "output_tokens": "{1: 1.0}"},
                "1200": {"input_tokens": "{20: 1.0}", "output_tokens": "{1: 1.0}"},
            }
        ),
    }
    trace = ServeGenGenerator(path=archive(tmp_path / "a.tar.gz", files), requests=100_000).trace()
    assert not trace.has_prefixes
    records = list(trace.records())
    assert len(records) == pytest.approx(2_400, rel=0.08)
    for record in records:
        assert not 600 <= record.arrived_at_s < 1200
        assert record.prompt_tokens == (10 if record.arrived_at_s < 600 else 20)
    late = list(ServeGenGenerator(path=tmp_path / "a.tar.gz", requests=9_999, from_s=1_500.0).trace().records())
    assert len(late) == pytest.approx(600, rel=0.15)
    assert {record.prompt_tokens for record in late} == {20}
    assert late[0].arrived_at_s < 10


@pytest.mark.parametrize(("family", "shape"), [("Gamma", 0.05), ("Weibull", 0.3)])
def test_a_trace_begins_in_the_midst_of_a_gap(family, shape):
    # With a burst at its start it would send too much at first: the mean rate holds for the first moments too.
    window = ArrivalWindow(
        starts_at_s=0, ends_at_s=2.0, rate_per_s=1.0, cv=1.0, family=family, shape=shape, scale_s=1.0
    )
    random = np.random.default_rng(0)
    counts = [sum(1 for _ in _arrivals((window,), 1.0, 0.0, random)) for _ in range(4_000)]
    assert np.mean(counts) == pytest.approx(2.0, abs=4 * np.std(counts) / math.sqrt(len(counts)))
    assert np.mean(counts) == pytest.approx(2.0, rel=0.25)


def test_a_gap_may_reach_over_several_windows():
    # .6 requests a window on average: were a gap cut off or begun anew at each, there would be one or none in each.
    def window(number: int, rate_per_s: float) -> ArrivalWindow:
        starts_at_s = 600.0 * number
        return ArrivalWindow(
            starts_at_s=starts_at_s,
            ends_at_s=starts_at_s + 600,
            rate_per_s=rate_per_s,
            cv=1.0,
            family="Gamma",
            shape=20.0,
            scale_s=1.0,
        )

    windows = tuple(window(number, 0.0005 + 0.001 * (number % 2)) for number in range(4_000))
    arrivals_s = list(_arrivals(windows, 1.0, 0.0, np.random.default_rng(0)))
    assert len(arrivals_s) == pytest.approx(4_000 * 0.6, rel=0.02)
    in_busy_windows = sum(at_s // 600 % 2 == 1 for at_s in arrivals_s)
    assert in_busy_windows / len(arrivals_s) == pytest.approx(0.75, abs=0.02)


def test_rates_and_lengths_scale(model):
    base, more, fast, short = (
        list(ServeGenGenerator(path=model, duration_s=1800.0, **scale).trace().records())
        for scale in ({}, {"session_rate_per_s": 10.0}, {"rate_scale": 3.0}, {"length_scale": 0.5})
    )
    assert len(base) / 1800 == pytest.approx(TOTAL_RATE_PER_S / 2, rel=0.1)  # the first half is the calm one
    assert len(more) / 1800 == pytest.approx(10, rel=0.1)
    assert len(fast) == pytest.approx(3 * len(base), rel=0.1)
    both = itertools.zip_longest(base, fast[: len(base)])
    assert all(slow.arrived_at_s == pytest.approx(3 * quick.arrived_at_s) for slow, quick in both)
    assert [r.prompt_tokens for r in short] == pytest.approx([r.prompt_tokens / 2 for r in base], abs=1)


def test_a_seed_is_a_stream(model):
    trace = GENERATORS.create("servegen", path=model, requests=500, seed=3).trace()
    assert trace.name == "servegen-seed-3"
    assert list(trace.records()) == list(trace.records())
    assert list(trace.records()) != list(ServeGenGenerator(path=model, requests=500).trace().records())


def test_clients_without_lengths_are_refused_borrow_or_are_skipped(tmp_path):
    files = client_files()
    del files["chunk-1-dataset.json"]
    path = archive(tmp_path / "a.tar.gz", files)
    with pytest.raises(InputError, match="no lengths of client 1; borrow or skip"):
        ServeGenGenerator(path=path, requests=10).trace()
    counts = {}
    for how in ("borrow", "skip"):
        drawn = list(ServeGenGenerator(path=path, duration_s=3600.0, missing_lengths=how).trace().records())
        assert not any(record.prompt_tokens == 1001 for record in drawn)
        counts[how] = len(drawn)
    assert counts["skip"] / counts["borrow"] == pytest.approx(0.78, abs=0.04)
    rates_only = {name: content for name, content in files.items() if name.endswith("csv")}
    path = archive(tmp_path / "b.tar.gz", rates_only)
    with pytest.raises(InputError, match="no client has any"):
        ServeGenGenerator(path=path, requests=10, missing_lengths="borrow").trace()


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({}, "either requests or duration_s"),
        ({"requests": 1, "missing_lengths": "guess"}, "missing_lengths is guess; must be refuse or borrow or skip"),
        ({"requests": 1, "from_s": -1.0}, "from_s is -1.0; must be 0 or more"),
        ({"requests": 1, "session_rate_per_s": 0.0}, "session_rate_per_s is 0.0"),
    ],
)
def test_parameters_that_make_no_workload_are_refused(parameters, problem):
    with pytest.raises(InputError, match=problem):
        ServeGenGenerator(path="anything", **parameters)


def test_a_recording_that_is_over_is_refused(model):
    with pytest.raises(InputError, match=r"no client of .* sends anything from 1e\+06 s on"):
        ServeGenGenerator(path=model, requests=1, from_s=1e6).trace()
