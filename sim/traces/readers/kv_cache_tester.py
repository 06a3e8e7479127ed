"""Coding-agent sessions of kv-cache-tester, as published.

Source of the format: callanjfox/kv-cache-tester (Apache-2.0), traces/*.json. A session has a main agent and sub-agents,
whose requests are nested; times count from its start, and nothing says when it started. Block lists hold full blocks
only. Ids stand for one session (scope local: made unique here) or for all (scope global). Requests without output are
kept. How pauses and the times of sub-agents are read: `sim.traces.agent_log`.

An early release (version 6, scope global) logs most requests twice, once streaming and once not. They are counted, and
left out only with the option `drop_repeats`: a request sent twice is no error in itself, and nothing goes unasked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from models.errors import TraceError
from sim.traces.agent_trace import AgentHeader, Agents, AgentTrace, header_of, logged_request, require_same
from sim.traces.bad_lines import BadLines
from sim.traces.fields import BadRowError, json_object, seconds, shown, text
from sim.traces.files import Head, Member, members
from sim.traces.reading import READERS
from sim.traces.turns import difference


@READERS.register("kv-cache-tester")
class RawReader:
    """JSON files, one a session: id, block_size, hash_id_scope, requests with t (s), in, out, hash_ids; or a folder."""

    several_files: ClassVar[bool] = True

    def __init__(self, drop_repeats: bool = False) -> None:
        self._drop_repeats = drop_repeats

    def sniff(self, head: Head) -> bool:
        """Return whether the file begins like a session."""
        return head.text.lstrip().startswith("{") and all(
            f'"{key}"' in head.text for key in ("hash_id_scope", "requests")
        )

    def open(self, path: Path, bad_lines: BadLines) -> "RawTrace":
        """Return the trace in *path*, without reading it yet."""
        return RawTrace(path=path, bad_lines=bad_lines, drop_repeats=self._drop_repeats)


class RawTrace(AgentTrace):
    """Session files as published; to `bad_lines` a file is one line, so a malformed request takes its whole session."""

    def first_header(self) -> AgentHeader:
        """Return what the first sound session says of its blocks; raises TraceError where there is none."""
        for member in self._members():
            try:
                return header_of(json_object(member.whole()), "hash_id_scope")
            except BadRowError as error:
                if not self.bad_lines.skip:
                    raise TraceError(f"{member.where}:1", f"not a session: {error}") from error
        raise TraceError(str(self.path), "holds no session; they are .json files")

    def logged_sessions(self, first: AgentHeader) -> Iterator[Agents]:
        """Yield the sessions in the order of the files."""
        for member in self._members():
            try:
                agents = _agents(json_object(member.whole()), first)
            except BadRowError as error:
                self.bad_lines.report(f"{member.where}:1", str(error))
            else:
                if agents:
                    yield agents

    def _members(self) -> Iterator[Member]:
        """Yield the session files; an archive or a folder may hold others, such as a licence."""
        for member in members(self.path):
            if member.name.endswith(".json") or member.where == str(self.path):
                yield member


def _agents(session: dict[str, Any], first: AgentHeader) -> Agents:
    """Return the requests in a session file; raises BadRowError where something in it is malformed."""
    require_same(header_of(session, "hash_id_scope"), first)
    agents: Agents = {}
    lists: dict[str | None, list[int]] = {}
    for where, agent, begins_at_s, row in _rows(session):
        before = agents.setdefault(agent, [])
        try:
            ids = _ids(row, first.max_id)
            keep, runs = difference(lists.get(agent, []), ids)
            request = logged_request(row, first, before, keep=keep, runs=runs, blocks=len(ids), begins_at_s=begins_at_s)
        except BadRowError as error:
            raise BadRowError(f"{where}: {error}") from error
        lists[agent] = ids
        before.append(request)
    return agents


def _rows(session: dict[str, Any]) -> Iterator[tuple[str, str | None, float, dict[str, Any]]]:
    """Yield (place, sub-agent or None, time at which its log begins [s], request) for all requests of a session."""
    for where, row in _objects(session, "requests"):
        if row.get("type") != "subagent":
            yield where, None, 0.0, row
            continue
        agent, begins_at_s = text(row, "agent_id"), seconds(row, "t")
        for inner, nested in _objects(row, "requests"):
            yield f"{where}.{inner}", agent, begins_at_s, nested


def _objects(holder: dict[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = holder.get(key)
    if type(rows) is not list:
        raise BadRowError(f"{key} is {shown(rows)}; must be a list")
    for index, row in enumerate(rows):
        if type(row) is not dict:
            raise BadRowError(f"{key}[{index}] is {shown(row)}; must be an object")
        yield f"{key}[{index}]", row


def _ids(row: dict[str, Any], max_id: int) -> list[int]:
    ids = row.get("hash_ids")
    if type(ids) is not list or (ids and set(map(type, ids)) != {int}):
        raise BadRowError(f"hash_ids is {shown(ids)}; must be a list of whole numbers")
    if ids and not (min(ids) >= 0 and max(ids) <= max_id):
        raise BadRowError(f"hash_ids holds ids from {min(ids)} to {max(ids)}; must be from 0 to {max_id}")
    return ids
