"""Whatever is done to a file of measurements, importing it works or says in one line why it does not."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import SAMPLES

from calibration.importers.device import import_device
from calibration.importers.reading import IMPORTERS, read_measurements
from models.errors import InputError

JUNK = [
    "",
    "0",
    "-1",
    "nan",
    "inf",
    "1e400",
    '"x"',
    "{",
    "}",
    "[",
    ",",
    ",,",
    "null",
    "\x00",
    "é",
    "\n",
    " ",
    "true",
    "{}",
]


def imported(kind: str, text: str, folder: Path) -> None:
    file = folder / "sample.txt"
    file.write_text(text, encoding="utf-8")
    try:
        import_device([(str(file), read_measurements(file, kind))], name="x").yaml()
    except InputError as error:
        line = str(error)
    else:
        return
    assert "\n" not in line
    assert line.startswith(str(file))


def test_there_is_a_sample_of_every_format() -> None:
    assert sorted(SAMPLES) == IMPORTERS.names()


@pytest.mark.parametrize("kind", SAMPLES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_damaged_file_gives_no_traceback(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = SAMPLES[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.sampled_from(JUNK)) + text[end:]
    imported(kind, text, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("kind", SAMPLES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_number_that_is_not_what_it_should_be_gives_no_traceback(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = SAMPLES[kind]
    numbers = list(re.finditer(r"[0-9.]+", text))
    chosen = data.draw(st.sampled_from(numbers))
    text = text[: chosen.start()] + data.draw(st.sampled_from(JUNK[:7])) + text[chosen.end() :]
    imported(kind, text, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_file_of_another_format_is_refused(kind: str, tmp_path: Path) -> None:
    for other, text in SAMPLES.items():
        if other != kind:
            file = tmp_path / "other.txt"
            file.write_text(text, encoding="utf-8")
            with pytest.raises(InputError):
                read_measurements(file, kind)
