"""The workload of a scenario as drivers: traces opened, generators seeded, and the chunk size that they share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from models.errors import ScenarioError
from scenarios import workload as schema
from scenarios.schema import Scenario
from scenarios.workload import Load
from sim.generators import GENERATORS
from sim.traces import BadLines, open_trace
from sim.traces.record import Trace
from sim.traces.sessions import SessionTrace, by_session, placed, poisson_starts, read_once, uniform_starts
from sim.workload.contexts import ClosedLoop, Contexts, PoissonLoad, Wave
from sim.workload.open_loop import OpenLoop, blocks_per_chunk
from sim.workload.phases import Driver, Phase
from sim.workload.sessions import SessionLoop

_STREAMS: Final = 3
"""Independent random streams of a run: the generator of requests, the arrival of waves, the start of sessions."""


class Warnings:
    """What is said with the result; to be read after the run, which finds the malformed lines of a trace."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.bad_lines: list[tuple[str, BadLines]] = []

    def __iter__(self) -> Iterator[str]:
        yield from self.known
        for where, bad_lines in self.bad_lines:
            summary = bad_lines.summary()
            if summary is not None:
                yield f"{where}: {summary}"


class Loads:
    """What a scenario sends, and :attr:`chunk_tokens`, the unit of residency below HBM that it leads to [tokens].

    Parameters
    ----------
    scenario : Scenario
        As loaded.

    Raises
    ------
    InputError
        If a trace cannot be read, or traces do not agree with the engine's blocks or each other on a chunk.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._workload = scenario.workload
        self._seeds = np.random.SeedSequence(scenario.run.seed).spawn(_STREAMS)
        self.warnings = Warnings()
        self._keeps_answers = any(tier.stores == "prompt+output" for tier in scenario.tiers.values())
        stack_tokens = scenario.engine.chunk_tokens or scenario.transfer.chunk_tokens
        # By place among the phases: the trace, and how many of its blocks make a chunk.
        self._traces: dict[int, tuple[Trace, int]] = {}
        sizes: dict[int, str] = {}
        for index, load in enumerate(self._workload.phases or (self._workload,)):
            trace = self._open(load)
            if trace is None:
                continue
            where = f"trace {trace.name}"
            count = blocks_per_chunk(trace.block_tokens, stack_tokens, scenario.engine.block_tokens, where)
            self._traces[index] = trace, count
            sizes[count * trace.block_tokens] = where
            if not trace.has_prefixes:
                self.warnings.known.append(f"{where} says nothing about shared prefixes: no request can hit")
        if len(sizes) > 1:
            listed = " and ".join(f"{tokens} ({where})" for tokens, where in sizes.items())
            raise ScenarioError("workload.phases", f"chunks would differ: {listed} tokens; set engine.chunk_tokens")
        self.chunk_tokens = next(iter(sizes), stack_tokens)

    def _open(self, load: Load) -> Trace | None:
        if load.trace is not None:
            bad_lines = BadLines(skip=load.skip_bad_lines)
            trace = open_trace(load.trace, load.format, bad_lines=bad_lines)
            self.warnings.bad_lines.append((f"trace {trace.name}", bad_lines))
            self.warnings.known += [f"trace {trace.name}: {note}" for note in getattr(trace, "notes", ())]
            return trace
        synthetic = load.synthetic
        if synthetic is None:
            return None
        if load.is_fallback:
            self.warnings.known.append(
                f"no trace given (--trace FILE): running the synthetic workload '{synthetic.generator}' instead"
            )
        given = {
            "requests": synthetic.requests,
            "duration_s": synthetic.duration,
            "sessions": synthetic.sessions,
            "session_rate_per_s": synthetic.session_rate_per_s,
            "block_tokens": synthetic.block_tokens,
        }
        return GENERATORS.create(
            synthetic.generator,
            seed=int(self._seeds[0].generate_state(1)[0]),
            length_scale=synthetic.length_scale,
            **{name: value for name, value in given.items() if value is not None},
        ).trace()

    def phases(self) -> list[Phase]:
        """Return the phases of the run, one where the workload is a single load."""
        if self._workload.phases is None:
            return [Phase(name="run", driver=self._driver(0, self._workload))]
        return [
            Phase(name=phase.name, driver=self._driver(index, phase), clear=phase.clear, restart=phase.restart)
            for index, phase in enumerate(self._workload.phases)
        ]

    def _driver(self, index: int, load: Load) -> Driver:
        if index in self._traces:
            if load.sessions is not None:
                return self._session_loop(index, load, load.sessions)
            return self._open_loop(index, load)
        random = np.random.default_rng([*self._seeds[1].generate_state(4).tolist(), index])
        if load.closed_loop is not None:
            return self._closed_loop(load.closed_loop, random)
        if load.poisson is not None:
            return self._poisson(load.poisson, random)
        assert load.wave is not None  # the schema lets no load go without one of them
        return self._wave(load.wave, random)

    def _open_loop(self, index: int, load: Load) -> OpenLoop:
        trace, chunk_blocks = self._traces[index]
        if isinstance(trace, SessionTrace) and not trace.starts_known:
            problem = f"is needed, as {{starts: uniform, over: 4 h}}: {trace.name} does not say when sessions start"
            raise ScenarioError("workload.sessions", problem)
        expected = load.synthetic.requests if load.trace is None and load.synthetic is not None else None
        return OpenLoop(
            trace=trace,
            chunk_blocks=chunk_blocks,
            rate_scale=load.rate_scale,
            limit=load.limit,
            expected=expected,
        )

    def _closed_loop(self, loop: schema.ClosedLoop, random: np.random.Generator) -> ClosedLoop:
        return ClosedLoop(
            contexts=Contexts(
                prompt_tokens=loop.prompt_tokens,
                output_tokens=loop.output_tokens,
                chunk_tokens=self.chunk_tokens,
                shortest=loop.shortest,
                random=random,
                own_tokens=loop.own_tokens,
            ),
            concurrency=loop.concurrency,
            requests=loop.requests,
            sessions=loop.sessions,
            first_session=loop.first_session,
            think_s=loop.think_time,
            per_replica=loop.per_replica,
            random=random if loop.shuffle else None,
        )

    def _poisson(self, poisson: schema.Poisson, random: np.random.Generator) -> PoissonLoad:
        return PoissonLoad(
            contexts=self._contexts(poisson.prompt_tokens, poisson.output_tokens),
            rate_per_s=poisson.rate_per_s,
            requests=poisson.requests,
            sessions=poisson.sessions,
            random=random,
            first_session=poisson.first_session,
        )

    def _wave(self, wave: schema.Wave, random: np.random.Generator) -> Wave:
        return Wave(
            contexts=self._contexts(wave.prompt_tokens, wave.output_tokens),
            requests=wave.requests,
            random=random,
            first_session=wave.first_session,
            jitter_s=wave.arrival_jitter,
            shuffle=wave.shuffle,
            per_replica=wave.per_replica,
        )

    def _session_loop(self, index: int, load: Load, how: schema.Sessions) -> SessionLoop:
        trace, chunk_blocks = self._traces[index]
        sessions = by_session(trace)
        random = np.random.default_rng([*self._seeds[2].generate_state(4).tolist(), index])
        expected: int | None = None
        if load.trace is not None or how.over is not None:
            sessions = read_once(sessions, how.limit)
            numbers = [session.requests for session in sessions.sessions()]
            expected = sum(numbers)
            if how.over is not None:
                sessions = placed(sessions, uniform_starts(len(numbers), how.over, random))
        if how.rate_per_s is not None:
            sessions = placed(sessions, poisson_starts(how.rate_per_s, random))
        return SessionLoop(
            trace=sessions,
            chunk_blocks=chunk_blocks,
            users=how.users,
            rate_scale=load.rate_scale,
            think_scale=how.think_scale,
            limit=how.limit,
            expected=expected,
            knows_answers=self._keeps_answers,
        )

    def _contexts(self, prompt_tokens: int, output_tokens: int) -> Contexts:
        return Contexts(prompt_tokens=prompt_tokens, output_tokens=output_tokens, chunk_tokens=self.chunk_tokens)
