"""Every entry loads and names its sources; wrong entries are refused with file, key and what is allowed."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from models.accelerator import load_accelerator
from models.catalogue import entries, kind_of, load_entry
from models.errors import CatalogueError, InputError, UnknownNameError
from models.figures import KINDS
from models.link import load_link
from models.llm import load_llm
from models.storage import load_device

FactRows = Callable[[str], list[dict[str, str]]]
LOADERS = {"llm": load_llm, "accelerator": load_accelerator, "storage": load_device, "link": load_link}
ALL = [(kind, name) for kind in KINDS for name in entries(kind)]


@pytest.mark.parametrize(("kind", "name"), ALL, ids=str)
def test_every_entry_loads_and_every_figure_has_a_source(kind: str, name: str) -> None:
    entry = load_entry(kind, name)
    assert entry.title
    assert LOADERS[kind](name).name == name
    for figure_name, figure in entry.figures.items():
        where = f"{kind} {name} {figure_name}"
        # A short source is a key that was not spelled out under `sources`.
        assert len(figure.source) > 12, where
        assert entry.si(figure_name) >= 0, where
        assert "/work" not in figure.source, where
        # Nothing may pass as read on a page that nobody read.
        assert not (figure.unverified and figure.status in {"measured", "datasheet"}), where
        assert "from memory" not in figure.source.split(";")[0] or figure.unverified, where


def test_names_and_aliases_are_unique_and_found() -> None:
    assert load_entry("accelerators", "H200").name == "h200-sxm"
    assert load_entry("storage", "gp5000").name == "fx100"
    assert load_llm("DeepSeek-R1").name == "deepseek-v3"
    with pytest.raises(UnknownNameError, match="did you mean 'h200-sxm'"):
        load_accelerator("h200-smx")
    with pytest.raises(UnknownNameError, match="catalogue kind 'gpus'"):
        entries("gpus")
    assert kind_of("links") == "link"


# Names and units of the tables against ours; the unit of a rate decides the factor.
GPU_METRICS = {
    "bf16_tflops": ("bf16_peak", 1e12), "fp8_tflops": ("fp8_peak", 1e12), "fp4_tflops": ("fp4_peak", 1e12),
    "hbm_bw": ("hbm_bandwidth", 1e9), "scaleup_bw_per_gpu_unidir": ("scale_up_bandwidth", 1e9),
    "scaleup_bw_per_gpu_bidir": ("scale_up_bandwidth", 0.5e9), "host_link_unidir": ("host_link_bandwidth", 1e9),
    "tdp": ("tdp", 1.0),
}  # fmt: skip
CAPACITY = {"GB": 1e9, "GiB": 2**30, "MiB (nvidia-smi)": 2**20}
# The catalogue departs from the table here; the entry's note says why.
CONFLICTS = {
    ("b200-sxm", "host_link_unidir"), ("gb200", "host_link_unidir"), ("gb300", "host_link_unidir"),
    ("rubin", "fp4_tflops"),
}  # fmt: skip


def test_accelerators_equal_the_table(fact_rows: FactRows) -> None:
    checked = 0
    for row in fact_rows("gpus.csv"):
        name = row["gpu"].split(" (")[0].lower()
        entry = load_entry("accelerator", {"gh200": "gh200-96gb"}.get(name, name))
        if row["metric"] == "hbm_capacity" and row["unit"] in CAPACITY:
            assert entry.si("hbm_capacity") == pytest.approx(float(row["value"]) * CAPACITY[row["unit"]]), name
            checked += 1
        if row["metric"] in GPU_METRICS and (name, row["metric"]) not in CONFLICTS:
            figure, factor = GPU_METRICS[row["metric"]]
            assert entry.si(figure) == pytest.approx(float(row["value"]) * factor), (name, row["metric"])
            if row["status"] == "unverified":
                assert entry.figures[figure].unverified, (name, figure)
            checked += 1
    assert checked >= 120


def test_h200_is_sold_in_decimal_bytes() -> None:
    assert load_accelerator("h200-sxm").hbm_bytes == 141_000_000_000


STORAGE_ITEMS = {
    "Micron 9650 PRO/MAX (PCIe6 x4)": "micron-9650", "Micron 9550 (PCIe5 x4)": "micron-9550",
    "Micron 7600 (PCIe5 x4)": "micron-7600", "Micron 6600 ION QLC (PCIe5 x4)": "micron-6600-ion",
    "Samsung PM1743 (PCIe5 x4)": "samsung-pm1743", "Samsung PM1733 3.84TB (PCIe4 x4)": "samsung-pm1733",
    "Samsung PM1733 (PCIe4 x4)": "samsung-pm1733", "Samsung PM983 1.92TB (PCIe3 x4)": "samsung-pm983",
    "Samsung PM983 (PCIe3 x4)": "samsung-pm983", "Samsung PM9A3 (PCIe4 x4)": "samsung-pm9a3",
    "Solidigm D7-P5520 (PCIe4 x4)": "solidigm-d7-p5520", "Solidigm D7-PS1010 (PCIe5 x4)": "solidigm-d7-ps1010",
}  # fmt: skip
STORAGE_METRICS = {
    "seq_read": ("read_bandwidth", 1e9), "seq_write": ("write_bandwidth", 1e9), "rand_read_4k": ("read_iops", 1.0),
    "rand_write_4k": ("write_iops", 1.0),
}  # fmt: skip


def test_drives_equal_the_table(fact_rows: FactRows) -> None:
    checked = 0
    for row in fact_rows("storage.csv"):
        if row["item"] not in STORAGE_ITEMS or row["metric"] not in STORAGE_METRICS:
            continue
        figure, factor = STORAGE_METRICS[row["metric"]]
        entry = load_entry("storage", STORAGE_ITEMS[row["item"]])
        assert entry.si(figure) == pytest.approx(float(row["value"]) * factor), (entry.name, figure)
        assert entry.figures[figure].unverified == (row["status"] == "unverified"), (entry.name, figure)
        checked += 1
    assert checked >= 20


def test_links_equal_the_table(fact_rows: FactRows) -> None:
    for row in fact_rows("storage.csv"):
        if row["category"] == "link":
            generation = row["item"].split()[1].lower()
            assert load_link(f"pcie-{generation}-x4").nominal_bytes_per_s == pytest.approx(float(row["value"]) * 1e9)
        if row["category"] == "nic":
            name = row["item"].split()[0].lower()
            assert load_link(name).nominal_bytes_per_s == pytest.approx(float(row["value"]) * 1e9 / 8)


GOOD = """
title: My GPU
status: assumed
source: a page that I read, 2026-12-01
base: h100-sxm
figures:
  hbm_bandwidth: 5 TB/s
  hbm_capacity: {value: 96, unit: GiB, status: announced, source: a leak, spread: 0.1}
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_user_file_may_build_on_a_shipped_entry(tmp_path: Path) -> None:
    mine = load_accelerator(write(tmp_path, GOOD))
    assert mine.name == "mine"
    assert mine.hbm_bytes_per_s == 5e12
    assert mine.hbm_bytes == 96 * 2**30
    assert mine.peak_flops_per_s == load_accelerator("h100-sxm").peak_flops_per_s
    assert any(caveat.startswith("hbm_capacity (announced") for caveat in mine.caveats)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwith: 5 TB/s"), r"figures\.hbm_bandwith: unknown key; did you mean 'hbm_b"),
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwidth: 5"), "has no unit"),
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwidth: 5 TB"), r"figures\.hbm_bandwidth: .*unknown or wrong unit"),
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwidth: fast TB/s"), "must be a number, a space and a unit"),
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwidth: -5 TB/s"), "at least 0"),
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwidth: 0 TB/s"), "must be above 0"),
        (("status: assumed", "status: guessed"), "status"),
        (("status: announced", "status: rumour"), r"figures\.hbm_capacity\.status"),
        (("spread: 0.1", "spred: 0.1"), r"hbm_capacity\.spred: unknown key; did you mean 'spread'"),
        (("base: h100-sxm", "base: h900"), "unknown accelerator 'h900'"),
        (("base: h100-sxm", ""), "figures: lacks"),
        (("source: a page that I read, 2026-12-01", ""), "has no source"),
        (("title: My GPU", "titel: My GPU"), "did you mean 'title'"),
        (("figures:", "figures: 3\nother:"), "must be a mapping"),
        (("title: My GPU", "title: [unclosed"), r"mine\.yaml:\d+: not YAML"),
        (("title: My GPU", "traits: {colour: red}"), "colour: unknown key"),
        (("title: My GPU", "kind: llm"), "kind: is 'llm'; must be 'accelerator'"),
        (("hbm_bandwidth: 5 TB/s", "hbm_bandwidth: '5'"), "has no unit"),
        (("value: 96, unit: GiB", "unit: GiB"), "value is None"),
        (("figures:", "title: again\nfigures:"), r"mine\.yaml:\d+: key 'title' stands twice"),
        (("source: a page that I read, 2026-12-01", "source: [a, b]"), "source"),
        (("title: My GPU", "curves: {h2d: 3}"), r"curves: h2d: is 3; must be a mapping"),
    ],
)
def test_bad_entries(change: tuple[str, str], problem: str, tmp_path: Path) -> None:
    old, new = change
    assert old in GOOD
    with pytest.raises((CatalogueError, UnknownNameError), match=problem) as caught:
        load_accelerator(write(tmp_path, GOOD.replace(old, new, 1)))
    assert "\n" not in str(caught.value)


def test_a_user_file_may_build_on_another_but_not_on_itself(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "next.yaml").write_text("base: mine.yaml\nsource: guesswork\nfigures: {hbm_bandwidth: 6 TB/s}", "utf-8")
    faster = load_accelerator(str(tmp_path / "next.yaml"))
    assert (faster.hbm_bytes_per_s, faster.hbm_bytes) == (6e12, 96 * 2**30)
    with pytest.raises(CatalogueError, match="is built on itself"):
        load_accelerator(write(tmp_path, GOOD.replace("base: h100-sxm", "base: next.yaml")))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats() | st.text("ab:{}[]*&- 1.G", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd", max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_any_value_of_any_key_gives_an_entry_or_one_line(data: st.DataObject) -> None:
    raw = yaml.safe_load(GOOD)
    keys = ["title", "status", "source", "base", "figures", "name", "aliases", "note", "traits", "curves", "sources"]
    key, junk = data.draw(st.sampled_from(keys)), data.draw(JUNK)
    if data.draw(st.booleans()):
        raw[key] = junk
    else:
        raw["figures"]["hbm_capacity"] = junk
    message = ""
    with TemporaryDirectory() as folder:
        try:
            load_accelerator(write(Path(folder), yaml.safe_dump(raw)))
        except InputError as error:
            message = str(error)
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="cannot be read"):
        load_accelerator(str(tmp_path / "none.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00bad")
    with pytest.raises(CatalogueError, match="not UTF-8"):
        load_accelerator(str(tmp_path / "bytes.yaml"))
    with pytest.raises(CatalogueError, match="must be a mapping"):
        load_accelerator(write(tmp_path, "- 1"))


def test_words_are_checked(tmp_path: Path) -> None:
    text = "base: ddr5\ntraits: {duplex: maybe}\n"
    with pytest.raises(CatalogueError, match=r"traits\.duplex: is 'maybe'; allowed: yes, no"):
        load_device(write(tmp_path, text))


def test_unknown_figure_of_an_entry() -> None:
    entry = load_entry("storage", "ddr5")
    assert entry.optional_si("capacity") is None
    with pytest.raises(CatalogueError, match="has no figure 'capacity'"):
        entry.si("capacity")
