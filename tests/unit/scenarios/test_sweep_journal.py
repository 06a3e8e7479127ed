"""The journal of a sweep: nothing that it holds is lost, and nothing is taken over that it does not hold whole."""

import json
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest

from models.errors import InputError
from scenarios.sweeping import journal as journals
from scenarios.sweeping.journal import Ran, open_journal

ONE, TWO, FAILED = Ran(summary={"ttft_s": {"p50": 0.1}}), Ran(summary={"x": None}), Ran(error="does not fit")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "s.parquet"


def written(out: Path, *, complete: bool = False, **runs: Ran) -> Path:
    with open_journal(out, resume=True) as journal:
        for key, ran in runs.items():
            journal.add(key, ran)
        if complete:
            journal.complete()
    return out.with_name("s.parquet.journal")


def taken(out: Path) -> dict[str, Ran]:
    with open_journal(out, resume=True) as journal:
        return journal.ran


def test_what_was_put_down_is_there_again(out: Path) -> None:
    written(out, a=ONE, b=FAILED)
    written(out, c=TWO)
    assert taken(out) == {"a": ONE, "b": FAILED, "c": TWO}


def test_a_journal_of_nothing_does_not_stay_and_one_of_anything_does(out: Path) -> None:
    path = written(out)
    assert not path.exists()
    with suppress(KeyboardInterrupt), open_journal(out, resume=False):
        assert path.exists()
        raise KeyboardInterrupt
    assert not path.exists()
    for ran in (ONE, FAILED, Ran(error="its process died", again=True)):
        written(out, a=ran)
        written(out)
        assert path.exists()
        path.unlink()
    path.write_text("mine\n", encoding="utf-8")
    with pytest.raises(InputError, match="is no journal"), open_journal(out, resume=False):
        pass
    assert path.read_text(encoding="utf-8") == "mine\n"


def test_a_journal_that_was_taken_away_while_it_was_opened_is_not_written(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = journals._lock

    def lock(file: FileIO, path: Path) -> None:
        path.unlink()
        real(file, path)

    monkeypatch.setattr(journals, "_lock", lock)
    with pytest.raises(InputError, match="another sweep is writing it"), open_journal(out, resume=False):
        pass


def test_what_failed_by_chance_is_not_taken_over(out: Path) -> None:
    written(out, a=Ran(error="its process died", again=True), b=ONE)
    assert taken(out) == {"b": ONE}
    written(out, a=ONE)
    assert taken(out) == {"a": ONE, "b": ONE}


def test_a_line_that_was_cut_off_anywhere_is_dropped_and_the_next_one_is_whole(out: Path) -> None:
    path = written(out, a=ONE, b=TWO)
    content = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        with open_journal(out, resume=True) as journal:
            whole = sum(end <= cut for end in ends)
            assert list(journal.ran) == ["a", "b"][: max(whole - 1, 0)], cut
            assert journal.dropped == (cut not in {0, *ends} and whole > 0), cut
            journal.add("c", FAILED)
        assert taken(out)["c"] == FAILED, cut
        assert [json.loads(line) for line in path.read_text().splitlines()], cut


@pytest.mark.parametrize("line", [b"\x00\x00\x00", b"[1]", b'{"key": 1, "summary": {}}', b'{"key": "d"}', b"\xff"])
def test_a_damaged_line_is_dropped(out: Path, line: bytes) -> None:
    path = written(out, a=ONE)
    path.write_bytes(path.read_bytes() + line + b"\n")
    written(out, b=TWO)
    with open_journal(out, resume=True) as journal:
        assert (journal.ran, journal.dropped) == ({"a": ONE, "b": TWO}, 1)


def test_runs_are_not_thrown_away_unless_their_sweep_got_through(out: Path) -> None:
    path = written(out)
    with open_journal(out, resume=False):
        pass  # nothing to lose
    written(out, a=ONE)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"holds 1 runs of a sweep that did not get through; --resume takes them over"):
        open_journal(out, resume=False).__enter__()
    assert path.read_bytes() == before
    written(out, complete=True)
    assert taken(out) == {"a": ONE}
    with open_journal(out, resume=False) as journal:
        assert journal.ran == {}
    written(out, complete=True, b=TWO)
    written(out, c=ONE)  # begun again
    with pytest.raises(InputError, match="did not get through"):
        open_journal(out, resume=False).__enter__()


def test_another_version_is_refused_and_begun_afresh_only_if_told(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(out, complete=True, a=ONE)
    before = path.read_bytes()
    monkeypatch.setattr(journals, "code_fingerprint", lambda: "another")
    with pytest.raises(InputError, match="was written by another version of kvtier"):
        open_journal(out, resume=True).__enter__()
    assert path.read_bytes() == before
    with open_journal(out, resume=False) as journal:
        assert journal.ran == {}


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b'{"a": 1}\n', b"\x00\x01"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_file_of_something_else_stays_as_it_is(out: Path, content: bytes, resume: bool) -> None:
    path = out.with_name("s.parquet.journal")
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no journal of a sweep"):
        open_journal(out, resume=resume).__enter__()
    assert path.read_bytes() == content


def test_two_sweeps_do_not_write_one_journal(out: Path) -> None:
    pytest.importorskip("fcntl")
    with open_journal(out, resume=True), pytest.raises(InputError, match="another sweep is writing it"):
        open_journal(out, resume=True).__enter__()
    written(out, a=ONE)


def test_a_journal_that_cannot_be_written_is_bad_input(out: Path) -> None:
    out.with_name("s.parquet.journal").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        open_journal(out, resume=False).__enter__()
