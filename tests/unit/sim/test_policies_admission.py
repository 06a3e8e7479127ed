"""Filters and their sketch by hand."""

from collections.abc import Callable

import pytest
from runs_kit import flat, runs

from models.errors import InputError
from sim.policies.admission import BreakEven, Frequency, MinimumPrefix, TinyLfu
from sim.policies.placement import WriteThroughSelective, writes_of
from sim.policies.sketch import CountMinSketch
from sim.prefix_tree import KEY_BITS
from sim.runs import Runs


def nobody(_: int) -> Runs:
    return ()


def rivals(*keys: int) -> Callable[[int], Runs]:
    return lambda wanted: [range(key, key + 1) for key in keys[:wanted]]


def test_a_sketch_counts_and_saturates() -> None:
    sketch = CountMinSketch(1000, 10_000)
    for _ in range(20):
        sketch.add([range(10)])
    sketch.add([range(5, 12)])
    assert sketch.estimates([range(8, 14)]).tolist() == [15, 15, 1, 1, 0, 0]
    assert sketch.estimates([range(11, 8, -1)]).tolist() == [1, 1, 15]
    assert sketch.estimates(()).tolist() == []


def test_a_sketch_halves_its_counts_after_so_many_samples() -> None:
    sketch = CountMinSketch(1000, 12)
    sketch.add([range(3)])
    sketch.add([range(3)])
    sketch.add([range(3)])
    assert sketch.estimates([range(3)]).tolist() == [3, 3, 3]
    sketch.add([range(3)])
    assert sketch.estimates([range(3)]).tolist() == [2, 2, 2]
    sketch.add([range(3)])
    sketch.add([range(3)])
    assert sketch.estimates([range(3)]).tolist() == [2, 2, 2]  # 4 halved: the halved samples count as half


def test_a_sketch_that_is_far_too_small_overestimates_and_never_overflows() -> None:
    sketch = CountMinSketch(2, 10**9)
    sketch.add([range(100_000)])
    assert sketch.estimates([range(50)]).tolist() == [15] * 50


def test_a_sketch_tells_replicas_apart() -> None:
    sketch = CountMinSketch(1000, 10_000)
    for replica in (0, 3, 700):
        sketch.add([range((replica << KEY_BITS) + 7, (replica << KEY_BITS) + 9)])
    assert sketch.estimates([range(6, 10)]).tolist() == [0, 1, 1, 0]
    assert sketch.estimates([range((5 << KEY_BITS) + 6, (5 << KEY_BITS) + 10)]).tolist() == [0, 0, 0, 0]


def test_tinylfu_holds_each_candidate_against_its_victim() -> None:
    admission = TinyLfu(capacity_chunks=1000)
    for _ in range(3):
        admission.use(runs(1, 2))
    admission.use(runs(1, 2, 3, 4))
    for _ in range(2):
        admission.use(runs(11, 12, 13))
    # Counts: 1 and 2 have 4, 3 and 4 have 1, 11 to 13 have 2.
    assert flat(admission.admit(runs(1, 2, 3, 4), 0, rivals(11, 12, 13, 14))) == [1, 2]
    assert flat(admission.admit(runs(1, 2, 3, 4), 1, rivals(11, 12, 13, 14))) == [1, 2]
    assert flat(admission.admit(runs(1, 2, 3, 4), 2, rivals(14, 11))) == [1, 2, 3]
    assert flat(admission.admit(runs(1, 2, 3, 4), 4, nobody)) == [1, 2, 3, 4]
    assert flat(admission.admit(runs(3, 4), 0, rivals(1))) == []
    assert flat(admission.admit(runs(11, 3), 0, rivals(12, 14))) == []  # as popular is not more popular


def test_frequency_forgets_what_is_older_than_its_window() -> None:
    now_s = 0.0
    admission = Frequency(now_s=lambda: now_s, uses=2, window_s=10.0)
    admission.use(runs(1, 2))
    assert flat(admission.admit(runs(1, 2), 0, nobody)) == []
    now_s = 4.0
    admission.use(runs(1, 2, 3))
    assert flat(admission.admit(runs(1, 2, 3), 0, nobody)) == [1, 2]
    now_s = 10.0
    assert flat(admission.admit(runs(1, 2, 3), 0, nobody)) == [1, 2]
    now_s = 10.5
    assert flat(admission.admit(runs(1, 2, 3), 0, nobody)) == []


def test_a_chunk_of_a_long_prompt_stays_welcome() -> None:
    admission = MinimumPrefix(chunk_tokens=32, min_tokens=65)
    admission.use(runs(1, 2))
    assert flat(admission.admit(runs(1, 2), 0, nobody)) == []
    admission.use(runs(1, 2, 3))
    admission.use(runs(1, 2))
    assert flat(admission.admit(runs(1, 2, 4), 0, nobody)) == [1, 2]


def test_break_even_compares_whole_prefixes() -> None:
    admission = BreakEven(recompute_s=lambda chunks: 0.25 * chunks**2, load_s=lambda chunks: 0.75 * chunks)
    admission.use(runs(1, 2, 3))  # 2.25 s either way
    assert flat(admission.admit(runs(1, 2, 3), 0, nobody)) == []
    admission.use(runs(1, 2, 3, 4))  # 4 s against 3 s
    assert flat(admission.admit(runs(1, 2, 3, 4), 0, nobody)) == [1, 2, 3, 4]


def test_selective_placement_counts_for_ever() -> None:
    placement = WriteThroughSelective(uses=2)
    assert flat(placement.used(runs(1, 2))) == []
    assert flat(placement.used(runs(1, 2, 3))) == [1, 2]
    assert flat(placement.used(runs(1, 3, 4))) == [1, 3]


def test_parameters_that_make_no_sense_are_refused() -> None:
    for make, words in (
        (lambda: WriteThroughSelective(uses=0), "uses is 0"),
        (lambda: Frequency(now_s=float, uses=0), "uses is 0"),
        (lambda: Frequency(now_s=float, window_s=0.0), "window_s is 0"),
        (lambda: TinyLfu(capacity_chunks=4, samples_per_chunk=0), "samples_per_chunk is 0"),
        (lambda: MinimumPrefix(chunk_tokens=32, min_tokens=0), "min_tokens is 0"),
    ):
        with pytest.raises(InputError, match=words):
            make()


class Never:
    """A placement of somebody else, with a mistake."""

    writes = "sometimes"


def test_a_placement_must_say_when_it_writes() -> None:
    with pytest.raises(InputError, match="writes is 'sometimes'; must be one of at-use, at-eviction, never"):
        writes_of(f"{__name__}:Never")
