"""`kvtier report`: what stands on the page is what was found, and anyone can read it."""

import json
import re
import shutil
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from report_kit import SMALL, Page, save_all
from three_tiers import THREE_TIERS

from models.errors import InputError
from models.units import format_seconds
from scenarios import cli
from scenarios.build import simulate
from scenarios.comparison.saved import load_comparison
from scenarios.comparison.wording import difference_cell
from scenarios.loader import load_scenario
from scenarios.reporting import report
from scenarios.reporting.kinds import sections_of
from sim.results.plot import measured_ttft_s
from sim.results.result import SimulationResult

HERE = "the catalogue entries that this names cannot be read"
GATE = {
    "name": "mine",
    "passed": False,
    "gates": {
        "G3": {
            "title": "the candidate gains",
            "verdict": "FAIL",
            "checks": [
                {
                    "point": "c8",
                    "figure": "ttft_s.p50",
                    "measure": "reduction",
                    "is_share": True,
                    "at_least": 0.25,
                    "at_most": None,
                    "above": False,
                    "precision": 0.01,
                    "subjects": ["a", "b"],
                    "evidence": ["measured"],
                    "value": 0.125,
                    "margin": -0.12,
                    "chance": 0.02,
                    "verdict": "FAIL",
                }
            ],
        }
    },
    "evidence": {"a": {"kind": "measured", "figures": {"ttft_s.p50": [10.5]}}},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save_all(folder)
    (folder / "gate.json").write_text(json.dumps(GATE), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def pages(saved: Path) -> dict[str, str]:
    names = ("run", "compared", "swept.parquet", "planned", "gate.json")
    return {name: report(saved / name) for name in names} | {"all": report(saved)}


def test_a_run_is_told_with_its_own_figures(saved: Path, pages: dict[str, str]) -> None:
    result = SimulationResult.load(saved / "run")
    summary, page = result.summary(), Page(pages["run"])
    assert "kvtier" in page.text
    for statistic in ("mean", "p50", "p90", "p99", "max"):
        assert format_seconds(summary["ttft_s"][statistic]) in page.text
    assert f"Bottleneck: {summary['bottleneck']}." in page.text
    for name, tier in summary["tiers"].items():
        assert name in page.text
        assert f"{tier['hit_tokens']:,}" in page.text
    for warning in summary["warnings"]:
        assert warning in page.text
    drivers = summary["uncertainty"]["drivers"]["ttft_s.p50"]["causes"]
    assert drivers[0]["name"].removeprefix("figures.") in page.text
    assert "tensor_parallel: 1" in page.text, "the resolved scenario"


@pytest.mark.parametrize(
    ("name", "overrides"),
    [("quickstart", ["run.warmup=60 s", "workload.synthetic.requests=60"]), ("r2-fx100-c16", [])],
    ids=["warm-up", "one phase"],
)
def test_drawings_are_of_the_requests_that_are_counted(name: str, overrides: list[str]) -> None:
    result = simulate(load_scenario(name, overrides=overrides))
    summary, drawn = result.summary(), measured_ttft_s(result)
    assert 0 < drawn.size == summary["requests"]["completed"] < result.table("requests")["ttft_s"].size
    assert drawn[-1] == summary["ttft_s"]["max"]


def test_every_figure_of_the_parts_has_its_source_and_status(pages: dict[str, str]) -> None:
    from models.catalogue import load_entry

    for name in ("run", "compared", "swept.parquet", "planned"):
        text = Page(pages[name]).text
        assert HERE not in text
        for kind, part in (("accelerator", "h100-sxm"), ("storage", "nvme-gen4")):
            for figure in load_entry(kind, part).figures.values():
                assert figure.source in text
                assert figure.text in text
        assert "assumed" in text


def test_a_comparison_says_which_is_better_and_whether_it_is_noise(saved: Path, pages: dict[str, str]) -> None:
    found = load_comparison(saved / "compared").comparison
    text = Page(pages["compared"]).text
    more = found.differences["60 GB"]["ttft_s.p90"]
    assert more.difference < 0.0
    base = found.variants[0].metrics["ttft_s.p90"]
    # On the page its interval stands below it, which takes a line break that the page keeps.
    assert f">{difference_cell('ttft_s.p90', base, more)}<" in pages["compared"]
    assert "60 GB has the lowest TTFT p90" in text
    assert format_seconds(found.variants[1].metrics["ttft_s.p90"] or 0.0) in text
    assert all(one.summary is not None and one.summary["bottleneck"] in text for one in found.variants)


def test_a_saved_comparison_reads_back_as_it_was(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["compare", *SMALL, "--vary", "tiers.dram.capacity=2 GB,60 GB", "--jobs", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    loaded = json.loads(json.dumps(load_comparison(saved / "compared").comparison.to_dict()))
    for found in (printed, loaded):
        for variant in found["variants"]:
            variant.pop("engine")
            variant["summary"].pop("engine")
    assert loaded == printed
    for name, folder in load_comparison(saved / "compared").runs.items():
        summary = SimulationResult.load(folder).summary()
        assert summary["ttft_s"] == next(v for v in printed["variants"] if v["name"] == name)["ttft_s"]


def test_sweeps_plans_and_gates_are_told(saved: Path, pages: dict[str, str]) -> None:
    swept, planned, gate = (Page(pages[name]).text for name in ("swept.parquet", "planned", "gate.json"))
    assert "workload.rate_scale" in swept
    assert "moves it most, by a factor of" in swept
    plan = json.loads((saved / "planned" / "plan.json").read_text(encoding="utf-8"))
    assert plan["feasible"]
    assert f"Bottleneck: {plan['bottleneck']}." in planned
    assert "at most 800 ms" in planned
    assert "The gates are not passed. Failed: G3. ttft_s.p50 (reduction) at c8 is 12.5%" in gate
    assert "at least 25.0% (to 1.0%)" in gate
    assert "10.5 s" in gate


def test_what_verbs_print_is_enough_for_a_plan(saved: Path, tmp_path: Path) -> None:
    said = json.loads((saved / "planned" / "plan.json").read_text(encoding="utf-8"))
    for key in ("format", "format_version", "files", "resolved"):
        del said[key]
    (tmp_path / "printed.json").write_text(json.dumps(said), encoding="utf-8")
    assert f"Bottleneck: {said['bottleneck']}." in Page(report(tmp_path / "printed.json")).text


def test_a_printed_plan_may_be_called_as_a_saved_one_is(saved: Path, tmp_path: Path) -> None:
    said = json.loads((saved / "planned" / "plan.json").read_text(encoding="utf-8"))
    added = ("format", "format_version", "files", "resolved")
    printed = {key: value for key, value in said.items() if key not in added}
    (tmp_path / "plan.json").write_text(json.dumps(printed), encoding="utf-8")
    assert [section.kind for section in sections_of(tmp_path)] == ["plan"]
    # What was saved and is damaged is still told as such.
    (tmp_path / "plan.json").write_text(json.dumps(said | {"format": "other"}), encoding="utf-8")
    with pytest.raises(InputError, match="is not of a kvtier plan"):
        sections_of(tmp_path)


@pytest.mark.parametrize("name", ["run", "compared", "swept.parquet", "planned", "gate.json", "all"])
def test_a_page_needs_nothing_else_and_can_be_read_aloud(name: str, pages: dict[str, str]) -> None:
    page = Page(pages[name])
    assert not page.all("script", "iframe", "object", "audio", "video")
    for attributes in page.all("a", "link", "img", "use", "image"):
        target = attributes.get("href", attributes.get("src", attributes.get("xlink:href", "")))
        assert target.startswith(("#", "data:")), target
    assert not re.search(r"url\((?!#)|@import", pages[name])
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]+)\)|xlink:href=\"#([^\"]+)\"|[^:]href=\"#([^\"]+)\"", pages[name]))
    assert {"".join(one) for one in used} <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    drawings = [attributes for attributes in page.all("div") if attributes.get("role") == "img"]
    assert len(drawings) == len(page.all("figure")) == len(page.all("figcaption"))
    assert all(len(attributes["aria-label"]) > 30 for attributes in drawings)
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(attributes.get("scope") in {"col", "row"} for attributes in page.all("th"))
    assert page.all("html")[0]["lang"] == "en"
    if name == "all":
        assert len(page.all("article")) == 5


def test_colours_can_be_told_from_the_paper_in_both_schemes() -> None:
    css = (resources.files("scenarios.reporting") / "page_files" / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(blocks) == 3, "light, dark and paper"
    for block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for text in ("ink", "muted", "accent", "good", "bad", "warn"):
            assert _contrast(colours[text], colours["paper"]) >= 4.5, text
            assert _contrast(colours[text], colours["raised"]) >= 4.5, text
        for tone in ("good", "bad", "warn"):
            assert _contrast(colours[tone], colours[f"{tone}-back"]) >= 4.5, tone
        # WCAG 2.2, 1.4.11: what a drawing says must stand out 3:1.
        lines = [name for name in colours if name.startswith("c-")]
        assert len(lines) == 7
        assert all(_contrast(colours[name], colours["paper"]) >= 3.0 for name in lines)


def _contrast(one: str, two: str) -> float:
    """Contrast ratio of two colours (WCAG 2.2, definition of contrast ratio)."""
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_drawings_have_no_colour_of_their_own_for_ink(pages: dict[str, str]) -> None:
    drawings = re.findall(r"<svg.*?</svg>", pages["run"], re.DOTALL)
    assert len(drawings) >= 6
    for drawing in drawings:
        assert not re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", drawing)
        assert "var(--ink)" in drawing or "var(--muted)" in drawing


def test_the_same_result_gives_the_same_page(saved: Path, pages: dict[str, str]) -> None:
    assert report(saved / "run") == pages["run"]


def test_a_link_that_writes_fill_is_told_beside_prefill(tmp_path: Path) -> None:
    loop = "closed_loop: {concurrency: 1, requests: 40, sessions: 40, prompt_tokens: 8192, output_tokens: 8}"
    (tmp_path / "full.yaml").write_text(f"name: full\n{THREE_TIERS}workload: {{{loop}}}\n", encoding="utf-8")
    for bandwidth, full in (("1 GB/s", True), ("20 GB/s", False)):
        order = ["run", str(tmp_path / "full.yaml"), "--set", f"links.fabric.bandwidth={bandwidth}"]
        assert cli.main([*order, "--out", str(tmp_path / "out")]) == 0
        told = Page(report(tmp_path / "out")).text
        assert "Bottleneck: compute: prefill" in told
        assert ("; also full: fabric link (write, " in told) is full
        assert ("what helps is faster GPUs" in told, "A link is full besides" in told) == (True, full)


def test_names_of_users_are_text(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "run", tmp_path / "odd")
    scenario = json.loads((tmp_path / "odd" / "scenario.json").read_text(encoding="utf-8"))
    scenario["name"] = "<script>alert(1)</script>"
    (tmp_path / "odd" / "scenario.json").write_text(json.dumps(scenario), encoding="utf-8")
    page = report(tmp_path / "odd")
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_report_lies_in_its_folder_and_goes_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "result"
    assert cli.main(["run", *SMALL, "--out", str(folder)]) == 0
    capsys.readouterr()
    assert cli.main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert cli.main(["run", *SMALL, "--out", str(folder)]) == 0
    assert not (folder / "report.html").exists()


def test_a_saved_comparison_is_replaced_but_nothing_else_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = ["compare", *SMALL, "--vary", "run.seed=1,2", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert cli.main(order) == 0
    assert cli.main(order) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"], "nothing is left beside it"
    (tmp_path / "out" / "mine.txt").write_text("kept", encoding="utf-8")
    capsys.readouterr()
    assert cli.main(order) == 2
    assert "mine.txt" in capsys.readouterr().err
    assert (tmp_path / "out" / "mine.txt").exists()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / "none", "there is no such file or folder"),
        (lambda folder: folder, "holds nothing that can be reported"),
    ],
)
def test_nothing_to_report_is_bad_input(make, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(make(tmp_path))]) == 2
    assert says in capsys.readouterr().err


def test_damage_is_bad_input_and_leaves_none(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(saved / "compared", tmp_path / "broken")
    manifest = tmp_path / "broken" / "comparison.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"differences"', '"odd"'), encoding="utf-8")
    assert cli.main(["report", str(tmp_path / "broken")]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not (tmp_path / "broken" / "report.html").exists()
    assert cli.main(["report", str(saved / "run"), "-o", str(tmp_path / "page.pdf")]) == 2
    assert "must end in .html" in capsys.readouterr().err


def test_money_energy_and_wear_are_told_as_the_commands_print_them(
    saved: Path, pages: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure and word that `run` and `compare` print with --economics, those on stderr too, is on the page."""
    for name in ("run", "compared"):
        assert "Money, energy and wear" not in pages[name], "it was not asked for"
    run, compared = (tmp_path / name for name in ("run", "compared"))
    varied = ["--vary", "tiers.nvme.placement=write-through,none", "--jobs", "1"]
    capsys.readouterr()
    for folder, order in ((run, ["run", *SMALL]), (compared, ["compare", *SMALL, *varied])):
        assert cli.main([*order, "--economics", "--out", str(folder)]) == 0
        out, err = capsys.readouterr()
        text = " ".join(Page(report(folder)).text.split())
        chapter = text[text.index("Money, energy and wear") :]
        printed = out[out.index("\ncost " if folder == run else "\nvariant         USD/M tokens") :]
        for cell in re.split(r"\s{2,}|\n|─+", printed):
            assert cell.casefold() in chapter.casefold()
        warnings = [line.removeprefix("kvtier: warning: ") for line in err.splitlines() if "(assumed" in line]
        assert any(warning.startswith("economics rest on assumed") and "price" in warning for warning in warnings)
        assert all(warning in chapter for warning in warnings)
