"""Runs the variants of a scenario on the same random numbers and holds them against the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from models.errors import InputError, KvTierError
from scenarios.comparison.bounds import Distance, distances
from scenarios.comparison.intervals import CONFIDENCE, BlockDraws, Difference, difference_over_seeds, resolution_of
from scenarios.comparison.least_wear import least_wear
from scenarios.comparison.metrics import Metrics, medians, metrics_of
from scenarios.comparison.sample import Sample, sample_of
from scenarios.comparison.variants import Variant
from scenarios.economics.economics_texts import economics_warnings
from scenarios.runner import Report, run_tasks
from scenarios.schema import Scenario

# The middle one of a variant's runs is the one that its summary is of; ties and even numbers take the lower.
_MIDDLE_BY: Final = "ttft_s.p50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What became of one variant.

    Parameters
    ----------
    variant : Variant
        What was run.
    seeds : tuple of int
        Of its runs.
    runs : tuple of dict
        Metrics of each run; empty where one failed.
    summary : dict or None
        Of the run with the middle TTFT p50: a run that was, so that its parts add up. None where one failed.
    error : KvTierError or None
        Why it failed.
    sample : Sample or None
        Its only run in blocks; None with several seeds.
    middle_seed : int or None
        Seed of the run that the summary is of.
    """

    variant: Variant
    seeds: tuple[int, ...]
    runs: tuple[Metrics, ...] = ()
    summary: dict[str, Any] | None = None
    error: KvTierError | None = None
    sample: Sample | None = None
    middle_seed: int | None = None

    @property
    def metrics(self) -> Metrics:
        """The median over its runs of each metric; empty where it failed."""
        return medians(self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Variants side by side.

    Parameters
    ----------
    name : str
        Of the scenario.
    variants : tuple of Compared
        In the order they were given.
    differences : dict
        By variant, then metric: that variant less :attr:`first`.
    distances : tuple of Distance
        How far each is from its bound, where a bound is among the variants.
    method : str
        What the intervals rest on.
    """

    name: str
    variants: tuple[Compared, ...]
    differences: dict[str, dict[str, Difference]]
    distances: tuple[Distance, ...]
    method: str

    @property
    def first(self) -> Compared | None:
        """The variant that the others are held against: the first that did not fail."""
        return _first_that_ran(self.variants)

    @property
    def title(self) -> str:
        """What is compared, on one line: the scenario, the key whose values name the variants, the seeds."""
        keys = {key for found in self.variants for key in found.variant.settings}
        by_value = len(keys) == 1 and all(found.variant.settings for found in self.variants)
        parts = [f"{self.name} by {keys.pop()}" if by_value else self.name]
        seeds = len(self.variants[0].seeds)
        if seeds > 1:
            parts.append(f"medians over {seeds} seeds")
        return ", ".join(parts)

    @property
    def failed(self) -> list[Compared]:
        """Those that failed."""
        return [found for found in self.variants if found.error is not None]

    def warnings(self) -> list[str]:
        """Return what the runs warn of, each thing once, with the variant where it is not so for all."""
        said = self._said_by(lambda summary: summary["warnings"])
        if self._strangers():
            said["other requests than the first variant's, so no interval; give several --seeds"] = self._strangers()
        return self._once(said)

    def economics_warnings(self) -> list[str]:
        """Return what cost, power and wear of the runs lack or rest on, told as :meth:`warnings` are."""
        return self._once(
            self._said_by(lambda summary: economics_warnings(summary["economics"]) if "economics" in summary else ())
        )

    def _said_by(self, warnings_of: Callable[[dict[str, Any]], Iterable[str]]) -> dict[str, list[str]]:
        """Return by warning the variants whose runs warn of it."""
        said: dict[str, list[str]] = {}
        for found in self.variants:
            for warning in () if found.summary is None else warnings_of(found.summary):
                said.setdefault(warning, []).append(found.variant.name)
        return said

    def _once(self, said: dict[str, list[str]]) -> list[str]:
        ran = len(self.variants) - len(self.failed)
        return [text if len(names) == ran else f"{', '.join(names)}: {text}" for text, names in said.items()]

    def _strangers(self) -> list[str]:
        """Return the variants whose requests cannot be paired with those of the first one."""
        first = self.first
        if first is None or first.sample is None:
            return []
        samples = [(found.variant.name, found.sample) for found in self.variants if found.sample is not None]
        return [name for name, sample in samples if not first.sample.pairs_with(sample)]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values: the JSON contract of ``kvtier compare --json``."""
        first, least = self.first, least_wear(self)
        return {
            "scenario": self.name,
            "first": None if first is None else first.variant.name,
            "confidence": CONFIDENCE,
            "method": self.method,
            "variants": [_variant_dict(found) for found in self.variants],
            "differences": [
                {"variant": name, "metric": metric, **_difference_dict(difference)}
                for name, by_metric in self.differences.items()
                for metric, difference in by_metric.items()
            ],
            "distances_to_bound": [distance.to_dict() for distance in self.distances],
            **({} if least is None else {"least_wear": least.to_dict()}),
        }


def compare(
    variants: Sequence[Variant],
    *,
    seeds: int = 1,
    jobs: int | None = None,
    progress: Report | None = None,
    keep: Path | None = None,
) -> Comparison:
    """Run all variants and hold each against the first that does not fail.

    With one seed, intervals come from blocks of the run; with several, from the differences seed by seed. The seeds
    follow on that of each scenario, and are the same for all variants.

    Parameters
    ----------
    variants : sequence of Variant
        From :func:`scenarios.comparison.load_variants`.
    seeds : int
        Runs of each, at least 1.
    jobs, progress
        As for :func:`scenarios.runner.run_tasks`.
    keep : Path or None
        A folder to which every run is saved (:func:`run_folder`).

    Raises
    ------
    InputError
        If seeds are varied and counted, or if all variants fail for one and the same reason, which is then raised.
    """
    bases = {variant.scenario.run.seed for variant in variants}
    if seeds > 1 and len(bases) > 1:
        raise InputError("run.seed is varied, so --seeds cannot give all variants the same seeds")
    tasks = [
        _task(at, _seeded(variant.scenario, variant.scenario.run.seed + step), in_blocks=seeds == 1, keep=keep)
        for at, variant in enumerate(variants)
        for step in range(seeds)
    ]
    outcomes: list[Any] = [None] * len(tasks)
    with closing(run_tasks(_run, tasks, jobs=jobs, progress=progress)) as ended:
        for index, outcome in ended:
            outcomes[index] = outcome
    found = [
        _compared(variant, tuple(task.scenario.run.seed for task in tasks[at : at + seeds]), outcomes[at : at + seeds])
        for variant, at in zip(variants, range(0, len(tasks), seeds), strict=True)
    ]
    _raise_common(found)
    first = _first_that_ran(found)
    differences = {} if first is None else _differences(first, found)
    ran = [(one.variant.name, one.variant.values(), one.metrics) for one in found if one.runs]
    return Comparison(
        name=variants[0].scenario.name,
        variants=tuple(found),
        differences=differences,
        distances=tuple(distances(ran)),
        method="paired differences over seeds, t interval" if seeds > 1 else _block_method(first),
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """One run, whether its blocks are wanted, and where it is saved, if it is."""

    scenario: Scenario
    in_blocks: bool
    save_to: Path | None


def _task(at: int, scenario: Scenario, *, in_blocks: bool, keep: Path | None) -> _Task:
    return _Task(scenario, in_blocks, None if keep is None else keep / run_folder(at, scenario.run.seed))


def run_folder(variant: int, seed: int) -> str:
    """Return what the folder with a run of a variant, by its place, is called while the comparison goes on."""
    return f"{variant:02d}-seed{seed}"


@dataclass(frozen=True, slots=True)
class _Ran:
    """What is kept of a run: small, whatever its length, since it comes from another process."""

    summary: dict[str, Any]
    metrics: Metrics
    sample: Sample | None


def _run(task: _Task, report: Callable[[float | None, int], None]) -> _Ran:
    from scenarios.build import add_economics, assemble, build, run
    from sim.recording import WindowedIntervals

    assembly = assemble(task.scenario)
    simulation = build(task.scenario, assembly)
    intervals = WindowedIntervals(simulation.clock)
    if task.in_blocks:
        simulation.intervals = intervals
    result = run(simulation, progress=report)
    add_economics(task.scenario, result, assembly)
    if task.save_to is not None:
        result.save(task.save_to)
    summary = result.summary()
    return _Ran(summary, metrics_of(summary), sample_of(result, intervals) if task.in_blocks else None)


def _seeded(scenario: Scenario, seed: int) -> Scenario:
    return scenario.model_copy(update={"run": scenario.run.model_copy(update={"seed": seed})})


def _compared(variant: Variant, seeds: tuple[int, ...], outcomes: Sequence[Any]) -> Compared:
    for outcome in outcomes:
        if outcome.error is not None:
            return Compared(variant=variant, seeds=seeds, error=outcome.error)
    runs: list[_Ran] = [outcome.value for outcome in outcomes]
    by_middle = sorted(zip(runs, seeds, strict=True), key=lambda run: run[0].metrics[_MIDDLE_BY] or 0.0)
    middle, middle_seed = by_middle[(len(runs) - 1) // 2]
    return Compared(
        variant=variant,
        seeds=seeds,
        runs=tuple(run.metrics for run in runs),
        summary=middle.summary,
        sample=runs[0].sample,
        middle_seed=middle_seed,
    )


def _raise_common(found: Sequence[Compared]) -> None:
    """Raise the error of all, where it is one: a trace that cannot be read is not a finding about variants."""
    errors = [one.error for one in found]
    first = errors[0]
    if first is not None and all(type(error) is type(first) and str(error) == str(first) for error in errors):
        raise first


def _first_that_ran(found: Sequence[Compared]) -> Compared | None:
    return next((one for one in found if one.error is None), None)


def _differences(first: Compared, found: Sequence[Compared]) -> dict[str, dict[str, Difference]]:
    others = [one for one in found if one is not first and one.error is None]
    if first.sample is None:
        return {one.variant.name: _seed_differences(first.runs, one.runs) for one in others}
    draws = BlockDraws(first.sample, first.seeds[0])
    return {
        one.variant.name: draws.differences(first.runs[0], one.sample, one.runs[0])
        for one in others
        if one.sample is not None
    }


def _seed_differences(first: Sequence[Metrics], other: Sequence[Metrics]) -> dict[str, Difference]:
    differences = {}
    for metric in other[0]:
        pairs = [(one.get(metric), two.get(metric)) for one, two in zip(first, other, strict=True)]
        both = [(one, two) for one, two in pairs if one is not None and two is not None]
        if both:
            firsts, others = zip(*both, strict=True)
            differences[metric] = difference_over_seeds(firsts, others, resolution=resolution_of(metric))
    return differences


def _block_method(first: Compared | None) -> str:
    if first is None or first.sample is None or not first.sample.blocks:
        return "none: the run is too short to be cut into blocks, give several --seeds"
    return f"block bootstrap over {first.sample.blocks} blocks of sessions or requests of one run"


def _variant_dict(found: Compared) -> dict[str, Any]:
    head = {"name": found.variant.name, "settings": found.variant.values()}
    if found.summary is None:
        return head | {"error": str(found.error)}
    by_seed = [{"seed": seed, "metrics": run} for seed, run in zip(found.seeds, found.runs, strict=True)]
    return head | {"summary": found.summary, "metrics": found.metrics, "runs": by_seed} | found.summary


def _difference_dict(difference: Difference) -> dict[str, Any]:
    return {
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "equal": difference.equal,
    }
