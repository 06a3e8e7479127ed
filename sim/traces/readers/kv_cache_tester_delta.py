"""Coding-agent sessions of kv-cache-tester, each prompt written as its difference from the one before.

A re-encoding of callanjfox/kv-cache-tester (Apache-2.0), traces/*.json, that loses no ids: see
`sim.traces.readers.kv_cache_tester` for what they mean. After a line that begins a session come its requests. A block
list is the first `keep` ids of the request before it in its stream (the main agent, or one `agent`), then the runs in
`new`, [first id, number of ids]; `nb` is its length.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from models.errors import TraceError
from sim.traces.agent_log import LoggedRequest
from sim.traces.agent_trace import AgentHeader, Agents, AgentTrace, header_of, logged_request, require_same
from sim.traces.bad_lines import BadLines
from sim.traces.fields import BadRowError, block_runs, json_object, text
from sim.traces.files import Head, numbered_lines
from sim.traces.reading import READERS

_BROKEN = "follows a malformed line of its session, so its blocks cannot be known"


@READERS.register("kv-cache-tester-delta")
class DeltaReader:
    """JSON lines: one with trace, block_size, scope begins a session; its requests: t (s), in, out, keep, new, nb."""

    several_files: ClassVar[bool] = False

    def __init__(self, drop_repeats: bool = False) -> None:
        self._drop_repeats = drop_repeats

    def sniff(self, head: Head) -> bool:
        """Return whether the first line begins a session."""
        return all(f'"{key}"' in head.first_line for key in ("trace", "block_size", "scope"))

    def open(self, path: Path, bad_lines: BadLines) -> "DeltaTrace":
        """Return the trace in *path*, without reading it yet."""
        return DeltaTrace(path=path, bad_lines=bad_lines, drop_repeats=self._drop_repeats)


class DeltaTrace(AgentTrace):
    """A file of sessions in which each request says what it keeps of the block list before it and what is new."""

    def first_header(self) -> AgentHeader:
        """Return what the first sound session says of its blocks; raises TraceError where there is none."""
        for number, line in numbered_lines(self.path):
            if not line.strip():
                continue
            try:
                return header_of(json_object(line), "scope")
            except BadRowError as error:
                if not self.bad_lines.skip:
                    raise TraceError(f"{self.path}:{number}", f"no session begins here: {error}") from error
        raise TraceError(str(self.path), "no session begins in the file")

    def logged_sessions(self, first: AgentHeader) -> Iterator[Agents]:
        """Yield the sessions; after a malformed line the rest of its session is malformed too."""
        agents: Agents = {}
        broken = False
        for number, line in numbered_lines(self.path):
            if not line.strip():
                continue
            try:
                row = json_object(line)
                if "trace" in row:
                    if agents:
                        yield agents
                    agents, broken = {}, False
                    require_same(header_of(row, "scope"), first)
                elif broken:
                    self.bad_lines.report(f"{self.path}:{number}", _BROKEN)
                else:
                    agent = text(row, "agent") if "agent" in row else None
                    before = agents.get(agent, [])
                    request = _request(row, first, before)
                    agents.setdefault(agent, before).append(request)
            except BadRowError as error:
                self.bad_lines.report(f"{self.path}:{number}", str(error))
                broken = True
        if agents:
            yield agents


def _request(row: dict[str, Any], header: AgentHeader, before: list[LoggedRequest]) -> LoggedRequest:
    keep, runs, blocks = block_runs(row, held=before[-1].blocks if before else 0, max_id=header.max_id)
    return logged_request(row, header, before, keep=keep, runs=runs, blocks=blocks)
