"""`kvtier trace`: info, convert, sample and generate, and bad input to each of them."""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from row_trace_samples import ROW_SAMPLES
from trace_samples import SAMPLES

from models.errors import InputError
from scenarios import cli
from scenarios.commands.trace_options import parameters
from scenarios.commands.trace_output import write_lines
from sim.traces.sessions import Session

ROOT = Path(cli.__file__).parents[1]
KVTIER = [sys.executable, "-m", "scenarios.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
BLOCKS = "version,time,op,size,lbn\n1,0,2a,512,7\n1,5,28,512,8\n1,9,28,1024,7\n1,10,28,1024,7\n"


@pytest.fixture
def sample(tmp_path) -> Callable[[str], str]:
    """Write the sample of a format and return its path."""

    def write(format: str) -> str:
        path = tmp_path / f"{format}.trace"
        path.write_text({**SAMPLES, **ROW_SAMPLES, "blocks": BLOCKS}[format])
        return str(path)

    return write


@pytest.fixture
def info(capsys) -> Callable[..., dict[str, object]]:
    def run(*arguments: str) -> dict[str, object]:
        assert cli.main(["trace", "info", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("format", [*SAMPLES, *ROW_SAMPLES])
def test_info_of_every_format(sample, info, capsys, format) -> None:
    figures = info(sample(format))
    assert (figures["requests"] > 0, figures["bad_lines"]) == (True, 0)
    assert cli.main(["trace", "info", sample(format)]) == 0
    table, said = capsys.readouterr()
    assert "None" not in table
    assert not said


def test_info_of_a_block_trace(sample, info, capsys) -> None:
    figures = info(sample("blocks"))
    assert (figures["accesses"], figures["objects"], figures["accessed_bytes"]) == (4, 2, 3072)
    assert figures["operations"] == {"28": 3, "2a": 1}
    assert figures["infinite_cache_hit_ratio"] == 0.5
    assert (figures["reuse_time_s"]["p50"], figures["stack_distance_objects"]["p50"]) == (5.0, 0.5)
    # Key 7 after 9 s and 1 s; key 8 not in the 5 s to the end, key 7 not in 0 s.
    assert figures["reused_later_given_idle_s"]["0"] == 0.5
    assert cli.main(["trace", "info", sample("blocks")]) == 0
    assert "28 3, 2a 1" in capsys.readouterr().out
    assert cli.main(["trace", "info", sample("blocks"), "--plot", "x.png"]) == 2
    assert cli.main(["trace", "convert", sample("blocks")]) == 2
    assert "is a block trace" in capsys.readouterr().err


def test_starts_give_sessions_their_times(sample, info, capsys) -> None:
    path = sample("kv-cache-tester-delta")
    figures = info(path)
    assert (figures["starts_known"], figures["duration_s"]) == (False, None)
    placed = info(path, "--starts", "uniform:4 h", "--seed", "3")
    assert placed["starts_known"]
    assert placed["duration_s"] > 80.0
    assert placed == info(path, "--starts", "uniform:4 h", "--seed", "3")
    assert placed["duration_s"] != info(path, "--starts", "uniform:4 h", "--seed", "4")["duration_s"]
    assert info(path, "--starts", "poisson:0.001/s")["rate_requests_per_s"] is not None
    assert cli.main(["trace", "info", path]) == 0
    assert "--starts gives them times" in capsys.readouterr().out


def test_plot(tmp_path, sample, capsys) -> None:
    out = tmp_path / "trace.png"
    assert cli.main(["trace", "info", sample("mooncake"), "--plot", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert str(out) in capsys.readouterr().err
    for format in ("kv-cache-tester", "azure"):  # without starts, without prefixes
        assert cli.main(["trace", "info", sample(format), "--plot", str(tmp_path / "trace.svg")]) == 0
    assert "<svg" in (tmp_path / "trace.svg").read_text()


def test_matplotlib_is_loaded_for_a_plot_only(sample) -> None:
    code = "import sys; from scenarios import cli; cli.main(['trace', 'info', sys.argv[1]]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, sample("mooncake")], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded
    assert not loaded & {"matplotlib", "pandas", "scipy", "rich", "pyarrow"}


def test_options_of_a_format(sample, info) -> None:
    assert info(sample("llmservingsim"), "--block-tokens", "2")["block_references"] == 2
    assert info(sample("llmservingsim"), "--set", "block_tokens=1")["block_references"] == 6
    assert info(sample("kv-cache-tester-delta"), "--set", "drop_repeats=true")["requests"] == 5


def test_bad_lines_are_counted_and_said(tmp_path, info, capsys) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(SAMPLES["mooncake"] + "rubbish\n{}\n")
    assert cli.main(["trace", "info", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"kvtier: {path}:5: not a JSON object")
    figures = info(str(path), "--skip-bad-lines")
    assert (figures["requests"], figures["bad_lines"]) == (4, 2)
    assert "2 malformed lines left out; the first: " in figures["warnings"][0]
    for verb in (["convert"], ["sample", "--share", "1"]):
        assert cli.main(["trace", verb[0], str(path), *verb[1:], "--skip-bad-lines"]) == 0
        assert "2 malformed lines left out" in capsys.readouterr().err


def test_convert_to_stdout_and_to_files(tmp_path, sample, capsysbinary) -> None:
    source = sample("hash64c")
    assert cli.main(["trace", "convert", source]) == 0
    lines, said = capsysbinary.readouterr()
    assert [json.loads(line)["input_length"] for line in lines.splitlines()] == [20, 40, 64]
    assert b"blocks are of 16 tokens" in said
    for name in ("out.jsonl", "out.jsonl.gz"):
        assert cli.main(["trace", "convert", source, "-o", str(tmp_path / name)]) == 0
    packed = (tmp_path / "out.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "out.jsonl").read_bytes() == lines
    assert cli.main(["trace", "convert", source, "-o", str(tmp_path / "other.jsonl.gz")]) == 0
    assert (tmp_path / "other.jsonl.gz").read_bytes() == packed
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "hash64c.trace",
        "other.jsonl.gz",
        "out.jsonl",
        "out.jsonl.gz",
    ]


def test_a_file_is_written_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("as it was")

    def lines():
        yield b"one\n"
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        write_lines(lines(), str(path))
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]
    write_lines([b"one\n"], str(path))
    assert path.read_text() == "one\n"
    mode = path.stat().st_mode
    (tmp_path / "plain").touch()
    assert mode == (tmp_path / "plain").stat().st_mode
    write_lines([b"one\n"], os.devnull)
    assert not Path(os.devnull).is_file()


def test_sample(sample, capsys) -> None:
    assert cli.main(["trace", "sample", sample("kv-cache-tester-delta"), "--sessions", "1", "--seed", "0"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) in (1, 4)
    assert "took 1 of 2 sessions" in err
    assert "the rate is" in err


def test_generate_is_seeded_and_takes_parameters(capsys) -> None:
    def generated(*arguments: str) -> list[dict[str, object]]:
        assert cli.main(["trace", "generate", "chat", *arguments]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    rows = generated("--requests", "30")
    assert len(rows) == 30
    assert rows == generated("--requests", "30", "--seed", "0") != generated("--requests", "30", "--seed", "1")
    quick = generated("--requests", "30", "--set", "session_rate_per_s=20.85/s", "--set", "block_tokens=256 tokens")
    assert quick[0]["timestamp"] == pytest.approx(rows[0]["timestamp"] / 10)
    assert len(quick[0]["hash_ids"]) == -(-quick[0]["input_length"] // 256)
    assert all(row["timestamp"] < 90_000 for row in generated("--duration", "1.5 min"))


def test_generated_sub_agents_are_sessions_of_their_own(monkeypatch, capsys) -> None:
    from sim.generators import GENERATORS, coding_agent

    draw = GENERATORS.get("coding-agent")(requests=1)._sessions

    def agents_only() -> Iterator[Session]:
        return islice((session for session in draw() if len(session.streams) > 1), 3)

    monkeypatch.setattr(coding_agent.CodingAgentGenerator, "_sessions", lambda _: agents_only())
    assert cli.main(["trace", "generate", "coding-agent", "--requests", "100000"]) == 0
    out, err = capsys.readouterr()
    names = Counter(json.loads(line)["session_id"] for line in out.splitlines())
    wanted = {
        f"{session.session_id}/{number}" if number else session.session_id: sum(1 for _ in stream.turns())
        for session in agents_only()
        for number, stream in enumerate(session.streams)
    }
    assert names == wanted
    assert f"no sub-agents: {len(wanted) - 3} became" in err


def test_help_names_the_generators(capsys) -> None:
    assert cli.main(["trace", "generate", "--help"]) == 0
    assert "Generators: chat" in capsys.readouterr().out


def test_generate_can_be_piped_into_a_run_and_into_info(tmp_path) -> None:
    make = subprocess.Popen(
        [*KVTIER, "trace", "generate", "chat", "--requests", "50"], env=ENVIRONMENT, stdout=subprocess.PIPE
    )
    # A file of this name beside the scenario or in the folder is not meant by `-`.
    (tmp_path / "-").write_text("nothing")
    run = subprocess.run(
        [*KVTIER, "run", "quickstart", "--trace", "-", "--json"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        stdin=make.stdout,
        capture_output=True,
        check=False,
    )
    make.stdout.close()
    assert (make.wait(), run.returncode) == (0, 0)
    assert json.loads(run.stdout)["requests"] == {"submitted": 50, "completed": 50, "rejected": 0, "failed": 0}


def test_a_reader_that_stops_early_is_no_error() -> None:
    make = subprocess.Popen(
        [*KVTIER, "trace", "generate", "chat", "--requests", "20000"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert make.stdout.readline().startswith(b'{"timestamp"')
    make.stdout.close()
    assert make.stderr.read() == b""
    make.stderr.close()
    assert make.wait() == 0


class Options:
    def __init__(
        self,
        wait_s: float | None = None,
        chunk_tokens: int = 1,
        rate_per_s: float = 1.0,
        name: str = "",
        deep: bool = False,
        room_bytes: int = 0,
        pairs: tuple[int, ...] = (),
    ) -> None:
        pass


def test_parameters_have_units() -> None:
    texts = [
        "wait_s=4 h",
        "chunk_tokens=2 ktokens",
        "rate_per_s=3 requests/s",
        "name=a=b",
        "deep=yes",
        "room_bytes=2 GB",
    ]
    assert parameters(Options, texts) == {
        "wait_s": 14_400.0,
        "chunk_tokens": 2000,
        "rate_per_s": 3.0,
        "name": "a=b",
        "deep": True,
        "room_bytes": 2_000_000_000,
    }
    assert parameters(Options, ["wait_s=null", "unknown=3"]) == {"wait_s": None, "unknown": "3"}
    for text, problem in (
        ("wait_s=5 GB", "unknown or wrong unit"),
        ("chunk_tokens=1.5", "must be a whole number"),
        ("deep=2", "must be true or false"),
        ("pairs=1", "cannot be given on the command line"),
        ("wait_s", "not of the form key=value"),
    ):
        with pytest.raises(InputError, match=problem):
            parameters(Options, [text])


BACKWARDS = "".join(
    json.dumps({"timestamp": stamp, "input_length": 5, "output_length": 1, "hash_ids": [0]}) + "\n"
    for stamp in (*range(20_000_000, 20_010_100), 5)
)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["info", "{folder}"], "folder: holds no files"),
        (["info", "{binary}"], "is a binary file"),
        (["info", "{other}"], "not a trace format that kvtier knows"),
        (["info", "{backwards}"], "backwards:10101: arrival at 0.005 s stands more than 10000 rows too late"),
        (["convert", "{backwards}"], "sort the file by time"),
        (["info", "{trace}", "--plot", "x.gif"], "must end in .png, .svg, .pdf"),
        (["info", "{trace}", "--plot", "no/such/x.png"], "there is no folder no/such"),
        (["info", "{trace}", "--starts", "uniform:4 h"], "says when its requests arrive"),
        (["info", "{agents}", "--starts", "often"], "must be uniform:TIME"),
        (["info", "{agents}", "--starts", "poisson:2 s"], "unknown or wrong unit"),
        (["info", "{agents}", "--starts", "uniform:0"], "must be above 0"),
        (["info", "{trace}", "--set", "colour=3"], "has no parameter 'colour' (allowed: block_tokens)"),
        (["info", "{trace}", "--set", "block_tokens=x"], "is not a quantity"),
        (["convert", "{agents}", "--block-tokens", "100"], "must be a multiple of the trace's 64"),
        (["convert", "{trace}", "-o", "{folder}"], "is a folder"),
        (["convert", "{trace}", "-o", "no/such/out"], "cannot be written"),
        (["sample", "{trace}"], "exactly one of --sessions and --share"),
        (["sample", "{trace}", "--sessions", "9"], "must be from 1 to the"),
        (["sample", "{trace}", "--share", "2"], "--share"),
        (["generate", "chatt", "--requests", "3"], "did you mean 'chat'?"),
        (["generate", "chat"], "needs either requests or duration_s"),
        (["generate", "chat", "--requests", "3", "--set", "sead=1"], "has no parameter 'sead'; did you mean 'seed'?"),
        (["generate", "chat", "--requests", "3", "--set", "length_scale=-1"], "must be above 0"),
        (["generate", "chat", "--duration", "5 GB"], "unknown or wrong unit"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(tmp_path, capsys, arguments, line) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "other").write_text("to be or not to be\n")
    (tmp_path / "backwards").write_text(BACKWARDS)
    (tmp_path / "trace").write_text(SAMPLES["mooncake"])
    (tmp_path / "agents").write_text(SAMPLES["kv-cache-tester-delta"])
    paths = {f"{{{path.name}}}": str(path) for path in tmp_path.iterdir()}
    assert cli.main(["trace", *(paths.get(argument, argument) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    # On a slow machine progress comes before it.
    (problem,) = [said for said in err.splitlines() if said.startswith("kvtier: ")]
    assert err.endswith(f"{problem}\n")
    assert line in problem
    assert not out or arguments[0] == "convert"
