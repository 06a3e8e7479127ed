"""ServeGen's client files: the values of hand-written files, and every way in which they can be wrong."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest

from models.errors import TraceError
from sim.traces.servegen_files import read_clients

RATES = "0,0,0,,0,0\n600,1.5,1.25,Gamma,0.64,1.0417\n1200,2,3.5,Weibull,0.34,0.1\n1800,0,0,,0,0\n"


def dataset(**windows):
    return json.dumps({key.removeprefix("w"): fields for key, fields in windows.items()})


def fields(inputs="{100: 0.25, 300: 0.75}", outputs="{7: 1.0}", **more):
    return {"input_tokens": inputs, "output_tokens": outputs, **more}


def folder(tmp_path, **files):
    for name, content in files.items():
        kind = "trace.csv" if name.startswith("rates") else "dataset.json"
        number = name.removeprefix("rates").removeprefix("lengths")
        (tmp_path / f"chunk-{number}-{kind}").write_text(content)
    return tmp_path


def archive(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode())
            packed.addfile(info, io.BytesIO(content.encode()))
    return path


def test_windows_and_distributions_come_out_as_they_stand(tmp_path):
    (client,) = read_clients(folder(tmp_path, rates3=RATES, lengths3=dataset(w0=fields())))
    assert client.client_id == 3
    first, second = client.arrivals
    assert (first.starts_at_s, first.ends_at_s, first.rate_per_s, first.cv) == (600, 1200, 1.5, 1.25)
    assert (first.family, first.shape, first.scale_s) == ("Gamma", 0.64, 1.0417)
    assert (second.starts_at_s, second.ends_at_s, second.family) == (1200, 1800, "Weibull")
    inputs = client.lengths_at(600)["input_tokens"]
    assert inputs.values.tolist() == [100, 300]
    assert inputs.probabilities.tolist() == [0.25, 0.75]
    assert inputs.mean == 250


def test_the_last_window_lasts_as_long_as_the_one_before(tmp_path):
    (client,) = read_clients(folder(tmp_path, rates0="0,0,0,,0,0\n300,1,1,Gamma,1,1\n"))
    assert (client.arrivals[0].starts_at_s, client.arrivals[0].ends_at_s) == (300, 600)


def test_values_are_sorted_and_probabilities_made_to_add_up_to_one_exactly(tmp_path):
    thirds = fields(inputs="{30: 0.3333333, 10: 0.3333333, 20: 0.3333333}")
    (client,) = read_clients(folder(tmp_path, rates0=RATES, lengths0=dataset(w0=thirds)))
    inputs = client.lengths_at(0)["input_tokens"]
    assert inputs.values.tolist() == [10, 20, 30]
    assert np.isclose(inputs.probabilities.sum(), 1, rtol=0, atol=1e-15)


def test_lengths_hold_until_the_next_window_that_is_not_empty(tmp_path):
    lengths = dataset(
        w0=fields(inputs="{}", outputs="{}"),
        w21600=fields(inputs="{1: 1.0}"),
        w43200=fields(inputs="{}"),
        w64800=fields(inputs="{2: 1.0}"),
    )
    (client,) = read_clients(folder(tmp_path, rates0=RATES, lengths0=lengths))
    assert [client.lengths_at(at_s)["input_tokens"].mean for at_s in (0, 21600, 50_000, 64_799, 64_800)] == [
        1,
        1,
        1,
        1,
        2,
    ]


def test_only_the_asked_time_is_kept(tmp_path):
    broken_outside = dataset(
        w0=fields(inputs="no dict"), w21600=fields(inputs="{1: 1.0}"), w43200=fields(), w64800=fields(inputs="no dict")
    )
    rows = "".join(f"{start},1,1,Gamma,1,1\n" for start in range(0, 86_400, 600))
    path = folder(tmp_path, rates0=rows, lengths0=broken_outside)
    (client,) = read_clients(path, from_s=30_300, until_s=50_000)
    assert [window.starts_at_s for window in client.arrivals] == list(range(30_000, 50_000, 600))
    assert [window.starts_at_s for window in client.lengths] == [21_600, 43_200]
    with pytest.raises(TraceError, match="window '64800', input_tokens: is 'no dict'"):
        read_clients(path, from_s=30_300)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_archives_are_read_in_any_order_and_other_files_passed_over(tmp_path, mode):
    files = {
        "m/chunk-10-dataset.json": dataset(w0=fields()),
        "m/._chunk-2-trace.csv": "macOS leaves such files in archives",
        "m/README.md": "text",
        "m/chunk-2-trace.csv": RATES,
        "m/chunk-10-trace.csv": RATES,
    }
    clients = read_clients(archive(tmp_path / "clients", files, mode))
    assert [(client.client_id, len(client.lengths)) for client in clients] == [(2, 0), (10, 1)]
    assert clients[0].lengths_at(0) is None


def test_fields_of_reasoning_and_multimodal_models_are_kept(tmp_path):
    both = fields(reason_ratio="{0.5: 0.5, 0.75: 0.5}", image_count="{0: 1.0}")
    (client,) = read_clients(folder(tmp_path, rates0=RATES, lengths0=dataset(w0=both)))
    assert sorted(client.lengths_at(0)) == ["image_count", "input_tokens", "output_tokens", "reason_ratio"]
    assert client.lengths_at(0)["reason_ratio"].mean == 0.625


@pytest.mark.parametrize(
    ("rates", "problem"),
    [
        ("", "trace.csv: the file is empty"),
        ("0,1,1,Gamma,1,1\n", "has one row only"),
        (
            "0,0,0,,0,0\n600,1,1,Gamma,1\n",
            ":2: has 5 values; a row has 6: window start, rate, CV, family, shape, scale",
        ),
        ("0,0,0,,0,0\n\n", ":2: has 1 values"),
        ("time,rate,cv,pat,a,b\n0,0,0,,0,0\n", ":1: window start is 'time'; must be a number of 0 or more"),
        ("600,0,0,,0,0\n600,0,0,,0,0\n", ":2: window start is 600; must be after the one before, 600"),
        ("0,-1,1,Gamma,1,1\n600,0,0,,0,0\n", ":1: rate is '-1'"),
        ("0,nan,1,Gamma,1,1\n600,0,0,,0,0\n", ":1: rate is 'nan'"),
        ("0,1,inf,Gamma,1,1\n600,0,0,,0,0\n", ":1: CV is 'inf'"),
        ("0,1,1,Pareto,1,1\n600,0,0,,0,0\n", ":1: family is 'Pareto'; must be Gamma or Weibull, or empty"),
        ("0,1,1,Gamma,0,1\n600,0,0,,0,0\n", ":1: shape is 0 and scale 1; both must be above 0"),
    ],
)
def test_malformed_rates_name_file_line_and_reason(tmp_path, rates, problem):
    with pytest.raises(TraceError) as caught:
        read_clients(folder(tmp_path, rates0=rates))
    assert str(caught.value).startswith(str(tmp_path / "chunk-0-trace.csv"))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ("{", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ("[]", "is []; must be a JSON object of window starts"),
        (dataset(start=fields()), "window start is 'start'; must be a number"),
        (dataset(w0=fields(), **{"w0.0": fields()}), "windows '0' and '0.0' start at the same time"),
        (dataset(w0=[]), "window '0': is []; must be a JSON object of fields"),
        (dataset(w0={}), "window '0': is {}; must be a JSON object of fields"),
        (dataset(w0=fields(inputs=5)), "window '0', input_tokens: is 5; must be the text of a Python dict"),
        (dataset(w0=fields(inputs="{1: ")), "is '{1: '; must be the text of a Python dict"),
        (dataset(w0=fields(inputs="__import__('os').getcwd()")), "must be the text of a Python dict"),
        (dataset(w0=fields(inputs="{open('x'): 1}")), "must be the text of a Python dict"),
        (dataset(w0=fields(inputs="{[]: 1.0}")), "must be the text of a Python dict"),
        (dataset(w0=fields(inputs="[1]")), "is '[1]'; must be the text of a Python dict"),
        (dataset(w0=fields(inputs="(" * 5000)), "must be the text of a Python dict"),
        (dataset(w0=fields(inputs="{'a': 1.0}")), "holds 'a'; must be"),
        (dataset(w0=fields(inputs="{-1: 1.0}")), "holds -1; must be"),
        (dataset(w0=fields(inputs="{True: 1.0}")), "holds True; must be"),
        (dataset(w0=fields(inputs="{1: 1e999}")), "holds inf; must be"),
        (dataset(w0=fields(inputs=f"{{{10**400}: 1.0}}")), "holds 1000"),
        (dataset(w0=fields(outputs="{1: 0.5, 2: 0.4}")), "output_tokens: probabilities add up to 0.9; must be 1"),
    ],
)
def test_malformed_lengths_name_file_key_and_reason(tmp_path, lengths, problem):
    with pytest.raises(TraceError) as caught:
        read_clients(folder(tmp_path, rates0=RATES, lengths0=lengths))
    assert str(caught.value).startswith(str(tmp_path / "chunk-0-dataset.json"))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "chunk-0-trace.csv").write_bytes(b"0,0,0,\xff,0,0\n")
    with pytest.raises(TraceError, match=r"not UTF-8 text \(byte 7 is 0xff\)"):
        read_clients(tmp_path)


def test_what_is_no_set_of_clients(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read_clients(tmp_path / "none")
    with pytest.raises(TraceError, match="holds no files"):
        read_clients(tmp_path)
    with pytest.raises(TraceError, match="holds no ServeGen client"):
        read_clients(archive(tmp_path / "a.tar.gz", {"README": "text"}))
    with pytest.raises(TraceError, match=r"chunk-4-dataset\.json has no chunk-4-trace\.csv beside it"):
        read_clients(archive(tmp_path / "b.tar.gz", {"chunk-4-dataset.json": "{}", "chunk-5-trace.csv": RATES}))
    with pytest.raises(TraceError, match=r"a second trace\.csv of client 1"):
        read_clients(archive(tmp_path / "c.tar.gz", {"a/chunk-1-trace.csv": RATES, "b/chunk-1-trace.csv": RATES}))
    with pytest.raises(TraceError, match="not a file name"):
        read_clients("a\0b")


def test_damaged_archives(tmp_path):
    path = archive(tmp_path / "a.tar.gz", {f"chunk-{n}-trace.csv": RATES * 1 for n in range(200)})
    packed = path.read_bytes()
    for damaged in (
        packed[: len(packed) // 2],
        packed[:60] + bytes(40) + packed[100:],
        b"text",
        gzip.compress(b"text"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(TraceError, match=str(path)):
            read_clients(path)
