import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from models.errors import TraceError
from sim.traces import BadLines, open_trace
from sim.traces.files import members, numbered_lines, read_head

ROW = json.dumps({"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}) + "\n"
ROWS = (ROW * 3).encode()


def archive(path: Path, mode: str = "w:gz", **files: bytes) -> Path:
    with tarfile.open(path, mode) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(f"folder/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def read(path: Path) -> int:
    return sum(1 for _ in open_trace(path).records())


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("inner", [bytes, gzip.compress])
def test_the_one_file_of_an_archive_is_the_trace(tmp_path, mode, inner):
    hidden = {"._trace": b"\x00\x05\x16\x07", "trace": inner(ROWS)}
    path = archive(tmp_path / "trace.tar", mode, **hidden)
    assert read(path) == 3
    assert read_head(path).name == "folder/trace"
    with pytest.raises(TraceError, match=r"trace\.tar:4: not a JSON object"):
        read(archive(path, mode, trace=inner(ROWS + b"{")))


def test_an_archive_of_several_files_is_no_trace_of_one(tmp_path):
    with pytest.raises(TraceError, match="holds several files, folder/b among them; a trace of this format is one"):
        read(archive(tmp_path / "trace.tgz", a=ROWS, b=ROWS))
    with pytest.raises(TraceError, match="holds no files; a trace is a text file, or an archive or folder of some"):
        read(archive(tmp_path / "trace.tgz"))


def test_damaged_archives(tmp_path):
    path = archive(tmp_path / "trace.tar", "w", a=ROWS, b=ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[:1600])
    with pytest.raises(TraceError, match="the tar archive is damaged or truncated"):
        list(members(path))
    # A damaged header in the middle ends an archive for tarfile: the files behind it would be lost without a word.
    at = whole.index(b"folder/b")
    path.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    with pytest.raises(TraceError, match=rf"the tar archive is damaged or truncated \(bad header at byte {at}\)"):
        list(members(path))
    path.write_bytes(whole)
    assert [member.name for member in members(path)] == ["folder/a", "folder/b"]


def test_a_folder_is_its_files_by_name(tmp_path):
    for name in ("b.jsonl.gz", "a.jsonl", ".c.jsonl"):
        (tmp_path / name).write_bytes(gzip.compress(ROWS) if "gz" in name else ROWS)
    (tmp_path / "sub").mkdir()
    found = [(member.name, member.whole()) for member in members(tmp_path)]
    assert found == [("a.jsonl", ROWS), ("b.jsonl", ROWS)]
    with pytest.raises(TraceError, match="is a folder; a trace of the format 'mooncake' is one file"):
        open_trace(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK\x03\x04rest", "is a zip archive; a trace is text, plain or gzipped, or a tar archive of it"),
        (b"\x28\xb5\x2f\xfdrest", "is compressed with zstd"),
        (b"\xfd7zXZ\x00rest", "is compressed with xz"),
        (b"PAR1rest", "is a Parquet file"),
        (b"\x7fELF\x00\x01\x02", "is a binary file; a trace is UTF-8 text"),
        (ROW.encode("utf-16"), "is a binary file"),
        (gzip.compress(bytes(1000), mtime=0), "is a binary file"),
        (b"Dear reader,\n", ":1: not a trace format that kvtier knows; known are "),
    ],
)
def test_files_that_are_no_trace(tmp_path, content, problem):
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        open_trace(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_the_head_of_a_file_is_bounded_and_its_lines_are_whole(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"\n \n" + b'{"a": "' + b"x" * 10**6 + b'"}\n' + b"y" * 10**6)
    head = read_head(path)
    assert head.name == "long.jsonl"
    assert len(head.text) == len(head.first_line) == 1 << 16
    assert [len(line) for _, line in numbered_lines(path)] == [1, 2, 10**6 + 10, 10**6]


def test_lines_and_whole_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.traces.files._MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("sim.traces.files._MAX_WHOLE_BYTES", 1 << 18)
    path = tmp_path / "long"
    path.write_bytes(b"x" * 999)
    assert [len(line) for _, line in numbered_lines(path)] == [999]
    path.write_bytes(b"x" * (1 << 18))
    assert [len(member.whole()) for member in members(path)] == [1 << 18]
    with pytest.raises(TraceError, match=":1: line is longer than 1000 bytes"):
        list(numbered_lines(path))
    path.write_bytes(b"x" * ((1 << 18) + 1))
    with pytest.raises(TraceError, match="is longer than 262144 bytes; it is read as one piece"):
        [member.whole() for member in members(path)]


SCRIPT = """
from sim.traces import open_trace
from models.errors import TraceError
try:
    trace = open_trace("-")
    print(trace.name, trace.path, sum(1 for _ in trace.records()), sum(1 for _ in open_trace("-").records()))
except TraceError as error:
    print(error)
"""


def run_script(content: bytes | None, folder: Path) -> str:
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT]
    if content is None:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    result = subprocess.run(command, input=content, env=environment, capture_output=True, check=True)
    assert not result.stderr
    return result.stdout.decode().strip()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_read_as_often_as_needed_and_kept_no_longer(tmp_path, pack):
    said = run_script(pack(ROWS), tmp_path)
    assert said.startswith(f"standard input {tmp_path}/kvtier-")
    assert said.endswith("/standard input 3 3")
    assert list(tmp_path.iterdir()) == []


def test_standard_input_without_a_trace(tmp_path):
    assert "the file is empty; a trace holds at least one request" in run_script(b"", tmp_path)
    assert run_script(None, tmp_path) == "standard input: is closed; pipe a trace into it"
    assert list(tmp_path.iterdir()) == []


def test_standard_input_that_is_a_terminal_or_finds_no_room(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(TraceError, match="standard input: is a terminal; pipe a trace into it"):
        open_trace("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ROWS)))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: f"/nowhere/{prefix}")
    with pytest.raises(TraceError, match=r"standard input: cannot be kept in a temporary file \(No such file"):
        open_trace("-")


def test_bad_lines_count_each_line_of_each_file_once():
    bad_lines = BadLines(skip=True)
    assert bad_lines.summary() is None
    assert bad_lines.none_left() is None
    for _ in range(2):
        for file in ("a:b", "c"):
            for line in (3, 1, 900, 7, 8, 9):
                bad_lines.report(f"{file}:{line}", "odd")
    assert bad_lines.count == 12
    assert [error.where for error in bad_lines.first] == ["a:b:3", "a:b:1", "a:b:900", "a:b:7", "a:b:8"]
    assert bad_lines.summary() == "12 malformed lines left out; the first: a:b:3: odd"
    one = BadLines(skip=True)
    one.report("a:1", "odd")
    assert one.none_left() == "no request is left: 1 malformed line left out; the first: a:1: odd"
    with pytest.raises(TraceError, match="a:1: odd"):
        BadLines().report("a:1", "odd")


def test_rows_that_come_hours_too_late_end_or_are_counted(tmp_path):
    path = tmp_path / "trace.jsonl"
    stamps = [*range(3_600_000, 3_610_001), 0]
    path.write_text(
        "".join(f'{{"timestamp": {at}, "input_length": 9, "output_length": 1, "hash_ids": [1]}}\n' for at in stamps)
    )
    with pytest.raises(TraceError, match=r":10002: arrival at 0 s stands more than 10000 rows too late"):
        read(path)
    bad_lines = BadLines(skip=True)
    assert sum(1 for _ in open_trace(path, bad_lines=bad_lines).records()) == 10_001
    assert bad_lines.count == 1
