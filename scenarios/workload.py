"""The workload of a scenario: what is sent to the replicas, and when."""

from math import isclose
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from scenarios.quantity import AS_TUPLE, Names, Part, Seconds, refuse

Kind = Literal["trace", "synthetic", "closed_loop", "wave", "poisson", "phases"]
_KINDS: Final = ("trace", "synthetic", "closed_loop", "wave", "poisson")


class Synthetic(Part):
    """A seeded generator of sessions; its length is a number of requests or sessions, or a duration."""

    generator: str = Field(default="chat", description="Generator name, or package.module:Class.")
    requests: int | None = Field(default=None, ge=1, description="Stop after this many requests.")
    sessions: int | None = Field(
        default=None, ge=1, description="Stop after this many sessions, where it can count them."
    )
    duration: Seconds | None = Field(default=None, gt=0, description="Stop at this time [s] of the generator's clock.")
    session_rate_per_s: float | None = Field(
        default=None, gt=0, description="New sessions a second; null: the generator's own rate."
    )
    length_scale: float = Field(default=1.0, gt=0, description="Factor on all prompt and output lengths.")
    block_tokens: int | None = Field(
        default=None, ge=1, description="Tokens a block of the generated prefix chain; null: the generator's own."
    )

    @model_validator(mode="after")
    def _has_one_end(self) -> "Synthetic":
        if sum(end is not None for end in (self.requests, self.duration, self.sessions)) != 1:
            raise refuse((), "give exactly one of requests, duration and sessions")
        return self


class ClosedLoop(Part):
    """A fixed number of clients; each sends its next request when the last one has ended."""

    concurrency: int = Field(ge=1, description="Clients, each with one request outstanding.")
    requests: int = Field(ge=1, description="Requests in all.")
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    sessions: int | None = Field(
        default=None, ge=1, description="Distinct contexts, used in turn; null: a new one for each request."
    )
    first_session: int = Field(
        default=0, ge=0, description="Number of the first context; equal numbers share a prefix."
    )
    think_time: Seconds = Field(default=0.0, description="Pause of a client between its requests [s].")
    shuffle: bool = Field(
        default=False, description="Requests come in random order, each context as often as in turn; false: in turn."
    )
    own_tokens: int = Field(
        default=0,
        ge=0,
        description="Tokens at the end of each prompt that no other request has: a question behind a shared prefix.",
    )
    shortest: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Prompts and outputs are drawn evenly between this share of their length and all of it (the "
        "random-range-ratio of serving benchmarks); 1: all alike.",
    )
    per_replica: bool = Field(
        default=False, description="Counts are those of one replica, and every replica gets as many."
    )

    @model_validator(mode="after")
    def _own_tokens_fit(self) -> "ClosedLoop":
        if self.own_tokens > self.prompt_tokens:
            problem = f"is {self.own_tokens}; must be at most prompt_tokens ({self.prompt_tokens})"
            raise refuse(("own_tokens",), problem)
        return self


class Wave(Part):
    """One wave: all requests are sent at once, each with a context of its own."""

    requests: int = Field(ge=1, description="Requests in the wave.")
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    first_session: int = Field(
        default=0, ge=0, description="Number of the first context; equal numbers share a prefix."
    )
    arrival_jitter: Seconds = Field(default=0.0, description="Arrivals are spread evenly at random over this time [s].")
    shuffle: bool = Field(
        default=True, description="Contexts arrive in random order; false: in the order of their numbers."
    )
    per_replica: bool = Field(
        default=False, description="Counts are those of one replica, and every replica gets as many."
    )


class Poisson(Part):
    """Requests at a rate, whatever the cluster does, each over one of a number of contexts drawn at random."""

    rate_per_s: float = Field(gt=0, description="Mean requests a second of a Poisson process.")
    requests: int = Field(ge=1, description="Requests in all.")
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    sessions: int = Field(ge=1, description="Contexts, each as likely as the others.")
    first_session: int = Field(
        default=0, ge=0, description="Number of the first context; equal numbers share a prefix."
    )


class Sessions(Part):
    """Replays a trace or a generator by sessions: each turn is sent when the last answer has been thought about."""

    starts: Literal["trace", "uniform", "poisson", "users"] = Field(
        default="trace",
        description="When sessions start: as the trace says, spread evenly at random over `over`, at random at "
        "`rate_per_s`, or when one of `users` has ended the session before.",
    )
    over: Seconds | None = Field(default=None, gt=0, description="Time over which uniform starts are spread [s].")
    rate_per_s: float | None = Field(default=None, gt=0, description="Sessions a second of poisson starts.")
    users: int | None = Field(default=None, ge=1, description="Sessions under way at a time.")
    think_scale: float = Field(default=1.0, ge=0, description="Factor on the pauses between answer and next turn.")
    limit: int | None = Field(default=None, ge=1, description="Take only this many sessions.")

    @model_validator(mode="after")
    def _has_its_figure(self) -> "Sessions":
        for key, kind in (("over", "uniform"), ("rate_per_s", "poisson"), ("users", "users")):
            given = getattr(self, key) is not None
            if given != (self.starts == kind):
                raise refuse((key,), f"is {'used with' if given else 'needed for'} starts: {kind}")
        return self


class Load(Part):
    """What one phase sends: exactly one of trace, synthetic, closed_loop, wave and poisson."""

    trace: str | None = Field(
        default=None, min_length=1, description="Trace file; null with a synthetic workload beside it: use that one."
    )
    format: str | None = Field(default=None, description="Format of the trace; null: found from the file.")
    skip_bad_lines: bool = Field(
        default=False,
        description="Leave malformed lines of the trace out, and say how many; false: the first one ends the run.",
    )
    rate_scale: float = Field(
        default=1.0, gt=0, description="Arrivals come this many times faster, in unchanged order."
    )
    limit: int | None = Field(
        default=None, ge=1, description="Take only this many requests of the trace or the generator."
    )
    synthetic: Synthetic | None = Field(default=None, description="Synthetic requests.")
    sessions: Sessions | None = Field(
        default=None,
        description="Send the trace or the generator session by session, each turn after the last answer; null: every "
        "request at its own time.",
    )
    closed_loop: ClosedLoop | None = Field(default=None, description="Closed loop at a concurrency.")
    wave: Wave | None = Field(default=None, description="All requests at once.")
    poisson: Poisson | None = Field(default=None, description="Requests at a rate, over contexts drawn at random.")

    @property
    def kind(self) -> Kind:
        """Name of the one key that holds the load; a trace wins over the synthetic workload beside it."""
        for name in _KINDS:
            if getattr(self, name) is not None:
                return name
        return "phases"

    @property
    def is_fallback(self) -> bool:
        """Whether a synthetic workload stands in for a trace that was not given (results must say so)."""
        return self.kind == "synthetic" and "trace" in self.model_fields_set

    def _given(self) -> list[str]:
        open_loop = "trace" if self.trace is not None else "synthetic"
        has_open_loop = self.trace is not None or self.synthetic is not None
        rest = [name for name in ("closed_loop", "wave", "poisson") if getattr(self, name) is not None]
        return [open_loop, *rest] if has_open_loop else rest

    def _check_given(self, given: list[str], allowed: str) -> None:
        if not given and "trace" in self.model_fields_set:
            problem = (
                "is null, and no synthetic workload stands beside it to be used instead; name a file (--trace FILE)"
            )
            raise refuse(("trace",), problem)
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise refuse((), f"give exactly one of {allowed}; got {found}")
        if self.format is not None and "trace" not in self.model_fields_set:
            raise refuse(("format",), "is used with trace only")
        if self.skip_bad_lines and "trace" not in self.model_fields_set:
            raise refuse(("skip_bad_lines",), "is used with trace only")
        if given[0] not in {"trace", "synthetic"}:
            for key, default in (("rate_scale", 1.0), ("limit", None), ("sessions", None)):
                if getattr(self, key) != default:
                    raise refuse((key,), f"is used with trace and synthetic only; this workload is {given[0]}")
        if self.sessions is not None and self.limit is not None:
            raise refuse(("limit",), "counts requests, which sessions are not cut at; set workload.sessions.limit")


class Phase(Load):
    """One phase of several on the same warm cluster; the next begins when all requests of this one have ended."""

    name: str = Field(min_length=1)
    clear: Names = Field(default=(), description="Tiers emptied before this phase begins.")
    restart: bool = Field(
        default=False, description="Engines restart before this phase: HBM and indexes held by a process are lost."
    )

    @model_validator(mode="after")
    def _is_one_load(self) -> "Phase":
        self._check_given(self._given(), ", ".join(_KINDS))
        return self


Share = Annotated[float, Field(ge=0, le=1)]


class Workload(Load):
    """What is sent: exactly one of trace, synthetic, closed_loop, wave, poisson and phases."""

    phases: Annotated[tuple[Phase, ...], AS_TUPLE] | None = Field(
        default=None, min_length=1, description="Loads one after another."
    )
    priorities: Annotated[tuple[Share, ...], AS_TUPLE] | None = Field(
        default=None,
        min_length=1,
        description="Shares of the sessions with priority 0 (most urgent), 1, ..., drawn at random; null: all alike. "
        "engine.scheduling: priority heeds it.",
    )

    @model_validator(mode="after")
    def _is_one_load(self) -> "Workload":
        given = self._given() + (["phases"] if self.phases is not None else [])
        self._check_given(given, ", ".join([*_KINDS, "phases"]))
        if self.priorities is not None and not isclose(sum(self.priorities), 1.0, abs_tol=1e-6):
            raise refuse(("priorities",), f"add up to {sum(self.priorities):g}; shares must add up to 1")
        names: set[str] = set()
        for index, phase in enumerate(self.phases or ()):
            if phase.name in names:
                raise refuse(("phases", index, "name"), f"'{phase.name}' is the name of an earlier phase")
            names.add(phase.name)
        return self
