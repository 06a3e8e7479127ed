"""The command line: exit codes, one line for what is wrong, tables on stdout, everything else on stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from models.errors import SimulationError
from scenarios import cli
from scenarios.commands import discovery, progress

ROOT = Path(cli.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SPREAD = {"mean": 1.25, "p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 4.0}
SUMMARY = {
    "requests": {"submitted": 12031, "completed": 12030, "rejected": 1},
    "makespan_s": 3600.0,
    "throughput": {"output_tokens_per_s": 1138.5, "input_tokens_per_s": 40123.4, "requests_per_s": 3.3},
    "ttft_s": SPREAD,
    "tpot_s": dict.fromkeys(SPREAD),
    "itl_s": SPREAD,
    "e2e_s": SPREAD,
    "ttft_parts_s": {"queue": 0.5, "load": 0.5, "compute": 0.25, "other": 0.0},
    "load_by_tier_s": {"dram": 0.1, "fabric[x]": 0.35},
    "hit_ratio_tokens": 0.374,
    "tiers": {
        "hbm": {
            "hit_tokens": 5,
            "read_bytes": 0,
            "write_bytes": 0,
            "evicted_bytes": 7,
            "peak_used_bytes": 8_000_000_000,
            "capacity_bytes": 9_000_000_000,
        }
    },
    "links": {
        "fabric": {
            "read_bytes": 7.67e9,
            "write_bytes": 1e9,
            "busy_fraction": 0.88,
            "peak_bytes_per_s": 10.6e9,
            "busy_mean_bytes_per_s": None,
        }
    },
    "preemptions": 3,
    "bottleneck": "fabric link (read)",
    "warnings": ["a figure is announced"],
    "slo": {"limits": {"ttft_s": 2.0}, "attainment": 0.9, "goodput_requests_per_s": 3.0},
    "engine": {"wall_s": 1.5, "requests_per_wall_s": 8020.0, "events": 80000},
    "percentile_rule": "linear",
}


@pytest.fixture
def simulated(monkeypatch):
    """Replace the simulation; what it is called with stands in the list."""
    calls = []

    def simulate(scenario, *, progress):
        progress(0.5, 10)
        calls.append(scenario)
        return SimpleNamespace(summary=lambda: SUMMARY, save=lambda folder: Path(folder).mkdir())

    module = ModuleType("scenarios.build")
    module.simulate = simulate
    monkeypatch.setitem(sys.modules, "scenarios.build", module)
    return calls


def test_run_prints_tables_and_warnings_apart(simulated, small, capsys) -> None:
    assert cli.main(["run", small, "--set", "cluster.replicas=3", "--seed", "9"]) == 0
    assert simulated[0].cluster.replicas == 3
    assert simulated[0].run.seed == 9
    out, err = capsys.readouterr()
    assert err == "kvtier: warning: a figure is announced\n"
    for text in (
        "small",
        "12,030 completed, 1 rejected, of 12,031",
        "TTFT",
        "TPOT",
        "ITL",
        "from fabric[x]",
        "others' loads, software",
        "37.4% of prompt",
    ):
        assert text in out
    for text in ("bottleneck  fabric link (read)", "88.0%", "7.67 GB", "40.0%", "met by 90.0%", "1.25 s"):
        assert text in out


def test_run_json_is_one_object_and_nothing_else(simulated, small, tmp_path, capsys) -> None:
    assert cli.main(["run", small, "--json", "--out", str(tmp_path / "result")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == SUMMARY
    assert (tmp_path / "result").is_dir()
    assert "saved to" in err


def test_out_that_is_a_file_is_refused_before_the_run(simulated, small, capsys) -> None:
    assert cli.main(["run", small, "--out", small]) == 2
    assert not simulated
    assert "is a file; a result needs a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (SimulationError("the ledger does not balance"), 1, "kvtier: the ledger does not balance\n"),
        (OSError(28, "No space left on device"), 1, "kvtier: [Errno 28] No space left on device\n"),
        (KeyboardInterrupt(), 130, "kvtier: interrupted\n"),
    ],
)
def test_a_run_that_fails(simulated, monkeypatch, small, capsys, raised, code, line) -> None:
    def simulate(scenario, *, progress):
        raise raised

    monkeypatch.setattr(sys.modules["scenarios.build"], "simulate", simulate)
    assert cli.main(["run", small]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "nothing-like-it"], "unknown scenario 'nothing-like-it'"),
        (["run", "no/such.yaml"], "no/such.yaml: cannot be read: No such file or directory"),
        (["run"], "Missing argument 'SCENARIO'"),
        (
            ["run", "{small}", "--set", "tiers.dram.capcity=1"],
            "--set tiers.dram.capcity: unknown key; did you mean 'capacity'?",
        ),
        (
            ["run", "{small}", "--set", "tiers.dram.eviction=lruu"],
            "--set tiers.dram.eviction: unknown eviction policy 'lruu'",
        ),
        (
            ["run", "{small}", "--set", "llm=llama-3.1-405b", "--set", "tiers.hbm.capacity=10 GB"],
            "llm llama-3.1-405b on 1 x h200-sxm: does not fit: 811.7 GB of weights in",
        ),
        (["run", "{small}", "--seed", "-1"], "'--seed': Input should be greater than or equal to 0"),
        (["run", "{small}", "--seed", "x"], "'--seed': Input should be a valid integer"),
        (["run", "{small}", "--colour"], "No such option: --colour"),
        (["runn", "{small}"], "No such command 'runn'"),
        (["trace", "info", "no-such-trace.jsonl"], "no-such-trace.jsonl"),
        (["trace", "info", "{small}"], "small.yaml:1: "),
        (
            ["trace", "info", "{small}", "--format", "mooncak"],
            "unknown trace format 'mooncak'; did you mean 'mooncake'?",
        ),
        (["list", "llamas"], "unknown kind 'llamas'"),
        (["show", "llama-3.1-8bb"], "unknown name 'llama-3.1-8bb'; did you mean 'llama-3.1-8b'?"),
        (["show", "llm", "llama-3.1-8bb"], "unknown llm 'llama-3.1-8bb'; did you mean 'llama-3.1-8b'?"),
        (["show", "eviction", "lruu"], "unknown eviction policy 'lruu'; did you mean 'lru'?"),
        (["show", "stack", "no-such-stack"], "unknown stack 'no-such-stack'"),
        (["show", "trace-format", "mooncak"], "unknown trace format 'mooncak'; did you mean 'mooncake'?"),
        (["show", "nonsense", "lru"], "unknown kind 'nonsense'"),
        (["show", "no/such.yaml"], "no/such.yaml: cannot be read"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(small, capsys, arguments, line) -> None:
    assert cli.main([argument.replace("{small}", small) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kvtier: ")
    assert err.count("\n") == 1
    assert line in err


@pytest.mark.parametrize(
    "verb",
    [
        *("", "run", "compare", "sweep", "mrc", "list", "show"),
        *("trace", "trace info", "trace convert", "trace sample", "trace generate"),
    ],
)
def test_every_help_text_shows_an_example(capsys, verb) -> None:
    assert cli.main([*verb.split(), "--help"]) == 0
    assert f"Example: kvtier {verb}".strip() in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["trace"]])
def test_a_verb_too_few_shows_the_help(capsys, arguments) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out + err).startswith("Usage: kvtier")


KINDS = [
    "llms",
    "accelerators",
    "storage",
    "links",
    "scenarios",
    "stacks",
    "evictions",
    "placements",
    "admissions",
    "routers",
    "schedulers",
    "load-choices",
    "prefetches",
    "generators",
    "trace-formats",
]


@pytest.mark.parametrize("kind", KINDS)
def test_list_knows_the_kind(capsys, kind) -> None:
    assert cli.main(["list", kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)[kind]
    assert all(row["name"] for row in rows)
    assert cli.main(["list", kind.removesuffix("s")]) == 0
    out = capsys.readouterr().out
    assert all(row["name"] in out for row in rows)


def test_list_without_a_kind_lists_all(capsys) -> None:
    assert cli.main(["list", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)
    assert list(names) == KINDS
    assert "lru" in names["evictions"]
    assert cli.main(["list"]) == 0
    assert "llama-3.1-8b" in capsys.readouterr().out


def test_show_an_entry_with_sources(capsys) -> None:
    assert cli.main(["show", "storage", "fx100"]) == 0
    out = capsys.readouterr().out
    assert "read_bandwidth" in out
    assert "source" in out
    assert "measured" in out
    assert cli.main(["show", "fx100", "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert all(figure["source"] and figure["status"] for figure in entry["figures"].values())


def test_show_a_policy_a_format_and_a_scenario(capsys, small) -> None:
    assert cli.main(["show", "lru"]) == 0
    assert "sim.policies.eviction:Lru" in capsys.readouterr().out
    assert cli.main(["show", "trace-format", "mooncake"]) == 0
    assert "timestamp" in capsys.readouterr().out
    assert cli.main(["show", small, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tiers"]["dram"]["capacity"] == 500_000_000_000
    assert cli.main(["show", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Scenario"


def test_show_a_name_of_several_kinds_asks_which(ship, capsys) -> None:
    ship("stacks/lru.yaml", "description: a profile\n")
    assert cli.main(["show", "lru"]) == 2
    err = capsys.readouterr().err
    assert "`kvtier show stack lru`, `kvtier show eviction lru`" in err
    assert cli.main(["show", "stack", "lru"]) == 0


def test_trace_info(tmp_path, capsys) -> None:
    row = {"timestamp": 1000, "input_length": 600, "output_length": 10, "hash_ids": [1, 2]}
    rows = [row, {**row, "timestamp": 2000, "hash_ids": [1, 3]}]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in rows))
    assert cli.main(["trace", "info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2
    assert cli.main(["trace", "info", str(path)]) == 0
    assert "hit ratio" in capsys.readouterr().out


def test_installed_verbs_are_found(monkeypatch, capsys) -> None:
    import typer

    verb = typer.Typer()

    @verb.command()
    def run_it(times: int = 1) -> None:
        """Do it."""
        typer.echo("done " * times)

    def broken() -> None:
        raise ImportError("no such part")

    found = {
        "calibrate": SimpleNamespace(load=lambda: verb, value="x:y"),
        "validate": SimpleNamespace(load=broken, value="x:z"),
        "wrong": SimpleNamespace(load=lambda: 3, value="x:w"),
    }
    monkeypatch.setattr(discovery, "_installed", lambda: found)
    assert cli.main(["calibrate", "--times", "2"]) == 0
    assert capsys.readouterr().out == "done done \n"
    assert cli.main(["validate"]) == 1
    assert "verb 'validate' (x:z) cannot be loaded: ImportError: no such part" in capsys.readouterr().err
    assert cli.main(["wrong"]) == 1
    assert "is no typer.Typer" in capsys.readouterr().err
    del found["validate"], found["wrong"]
    assert cli.main(["--help"]) == 0
    assert "calibrate" in capsys.readouterr().out


def test_progress_is_quiet_at_first_and_then_a_line_now_and_then(monkeypatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress("small") as show:
        for tenth in range(10):
            show(tenth / 10, 1000 * tenth)
            now[0] += 0.5
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "small: 4,000 requests, 40%\nsmall: 8,000 requests, 80%\n"


def test_progress_counts_requests_where_the_length_of_a_trace_is_not_known(monkeypatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress("trace") as show:
        for step in range(5):
            show(None, step)
            now[0] += 0.5
    assert capsys.readouterr().err == "trace: 4 requests\n"


def test_progress_says_how_long_it_will_take_yet_where_that_is_asked_for(monkeypatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress("small", unit="of 8 runs", eta=True) as show:
        for fraction in (None, 0.25):
            now[0] += 3.0
            show(fraction, 2)
    assert capsys.readouterr().err == "small: 2 of 8 runs\nsmall: 2 of 8 runs, 25%, 18 s left\n"


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m scenarios.cli list llms | head -1"
    done = subprocess.run(command, shell=True, cwd="/", env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # A reader that is gone before the first byte makes the write itself fail.
    script = f"{sys.executable} -m scenarios.cli show schema | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd="/", env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_run_starts_without_the_slow_libraries(small) -> None:
    code = (
        "import sys, scenarios.cli, scenarios.loader, scenarios.commands.run, scenarios.build\n"
        f"scenarios.loader.load_scenario({small!r})\n"
        "slow = {'pandas', 'scipy', 'matplotlib', 'rich', 'quantiphy'} & set(sys.modules)\n"
        "print(' '.join(sorted(slow)))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["quantiphy"]  # units are read with it
