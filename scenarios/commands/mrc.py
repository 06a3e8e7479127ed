"""`kvtier mrc`: hit ratios of eviction policies by capacity, from one read of a trace."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from models.errors import InputError, TraceError, did_you_mean
from models.units import format_bytes, parse_quantity
from scenarios.commands.plots import check_plot_file
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_pairs, print_table

if TYPE_CHECKING:
    from sim.mrc.curves import Point
    from sim.mrc.segments import Visits

# As kvcache-simulator 0.1.3 has it by default; libCacheSim counts from the first access.
_WARMUP: Final = 0.5
_KV_DTYPE: Final = "bf16"
# Points of a curve unless capacities are given: each halves the one before, down from all blocks of the trace.
_DEFAULT_POINTS: Final = 14
_PROGRESS_EVERY: Final = 1024  # requests read


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the user asked for, as it was written."""

    trace: str
    format: str | None
    policies: str
    capacities: str | None
    plain: bool
    structure: str | None
    warmup: float | None
    full_blocks: bool
    llm: str | None
    kv_dtype: str | None


def print_curves(question: Question, *, plot: str | None, as_json: bool) -> None:
    """Print the curves as a table or as JSON and draw them; progress goes to stderr. Raises KvTierError."""
    policies = _checked(question)
    if plot is not None:
        check_plot_file(Path(plot))  # said now rather than after the replays
    wanted = _listed("--capacities", question.capacities) if question.capacities is not None else []
    kv_bytes_per_token = _kv_bytes_per_token(question)
    sizes = [_size(text, kv_bytes_per_token) for text in wanted]
    with Progress("read") as progress:
        visits = _read(question, progress)
    block_bytes = kv_bytes_per_token * visits.block_tokens
    capacities = _capacities(sizes, visits, block_bytes)
    with Progress(f"replayed for {len(policies) * len(capacities)} points") as progress:
        points = list(_points(question, visits, policies, capacities, progress))
    rows = [_row(point, block_bytes) for point in points]
    counted = len(visits.ends) - _first_counted(question, visits)
    document = _document(question, visits, counted, block_bytes, rows)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if plot is not None:
        from sim.results.mrc_plot import save_curves

        save_curves(rows, plot, title=f"{visits.name}: {counted:,} requests", plain=question.plain)
        sys.stderr.write(f"kvtier: saved to {plot}\n")


def _checked(question: Question) -> list[str]:
    """Return the names of the policies, each once; raises InputError for what can be told before the trace is read."""
    from sim.mrc.curves import STRUCTURES, check_policy

    policies = list(dict.fromkeys(_listed("--policies", question.policies)))
    for name in policies:
        check_policy(name)
    if question.structure is not None:
        if question.plain:
            raise InputError("--structure: prefixes play no part with --plain; leave one of the two out")
        if question.structure not in STRUCTURES:
            hint = did_you_mean(question.structure, STRUCTURES)
            raise InputError(f"unknown --structure '{question.structure}'{hint} (allowed: {', '.join(STRUCTURES)})")
    if question.warmup is not None and not 0.0 <= question.warmup < 1.0:
        raise InputError(f"--warmup is {question.warmup:g}; must be a share of the requests, at least 0 and below 1")
    return policies


def _listed(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{option}: '{text}' has an empty entry; write values with commas between them")
    return names


def _kv_bytes_per_token(question: Question) -> int:
    """Return the KV bytes of a token over all ranks [B], 0 where no model is named."""
    if question.llm is None:
        if question.kv_dtype is not None:
            raise InputError("--kv-dtype: say with --llm of which model")
        return 0
    from models.llm import load_llm

    return load_llm(question.llm).kv_bytes_per_token(question.kv_dtype or _KV_DTYPE)


def _size(text: str, kv_bytes_per_token: int) -> tuple[str, float, bool]:
    """Return a capacity as (how it was written, number, whether that is in bytes)."""
    if re.fullmatch(r"[-+]?[0-9][0-9_]*", text):
        blocks = int(text)
        if blocks < 1:
            raise InputError(f"--capacities: '{text}' blocks; a cache must have at least 1")
        return text, blocks, False
    n_bytes = parse_quantity(text, "bytes", "--capacities")
    if re.fullmatch(r"[-+0-9.eE_]+", text):
        raise InputError(f"--capacities: '{text}' is neither a whole number of blocks nor has it a unit such as GB")
    if not kv_bytes_per_token:
        raise InputError(f"--capacities: '{text}' is in bytes; say with --llm of which model, or give blocks")
    return text, n_bytes, True


def _read(question: Question, progress: Progress) -> "Visits":
    """Read the trace, of requests or of accesses; raises InputError where the question does not fit it."""
    from sim.mrc.segments import read_accesses, read_requests
    from sim.traces.block_trace import is_block_trace, open_block_trace
    from sim.traces.files import read_head
    from sim.traces.reading import open_trace

    def on_request(requests: int) -> None:
        if requests % _PROGRESS_EVERY == 0:
            progress(None, requests)

    is_file = question.trace != "-" and Path(question.trace).is_file()
    if question.format is None and is_file and is_block_trace(read_head(Path(question.trace))):
        if not question.plain:
            raise TraceError(question.trace, "is a block trace, which has no prefixes: add --plain")
        if question.llm is not None:
            raise TraceError(question.trace, "is a block trace, whose objects have bytes of their own: leave --llm out")
        return read_accesses(open_block_trace(question.trace), on_request)
    trace = open_trace(question.trace, question.format)
    if not trace.has_prefixes:
        raise TraceError(question.trace, "does not say which blocks its prompts share, so nothing in it can hit")
    return read_requests(trace, partial_blocks=not question.full_blocks, on_request=on_request)


def _capacities(sizes: Sequence[tuple[str, float, bool]], visits: "Visits", block_bytes: int) -> list[int]:
    """Return the capacities in blocks, ascending, each once."""
    if not sizes:
        most = visits.distinct_blocks
        return sorted({max(most >> halvings, 1) for halvings in range(_DEFAULT_POINTS)})
    found = set()
    for text, number, in_bytes in sizes:
        blocks = int(number // block_bytes) if in_bytes else int(number)
        if blocks < 1:
            tokens = visits.block_tokens
            raise InputError(f"--capacities: '{text}' holds no block ({tokens} tokens, {format_bytes(block_bytes)})")
        found.add(blocks)
    return sorted(found)


def _first_counted(question: Question, visits: "Visits") -> int:
    share = question.warmup if question.warmup is not None else 0.0 if question.plain else _WARMUP
    return int(len(visits.ends) * share)


def _points(
    question: Question, visits: "Visits", policies: Sequence[str], capacities: Sequence[int], progress: Progress
) -> Iterator["Point"]:
    from sim.mrc.curves import Curves

    n_replays, done = len(policies) * len(capacities), 0
    n_requests = len(visits.ends)

    def on_progress(share: float) -> None:
        replays = done + share
        progress(replays / n_replays, int(replays * n_requests))

    curves = Curves(
        visits,
        plain=question.plain,
        structure=question.structure,
        first_counted=_first_counted(question, visits),
        on_progress=on_progress,
    )
    for policy in policies:
        for capacity in capacities:
            yield curves.point(policy, capacity)
            done += 1
            on_progress(0.0)


def _row(point: "Point", block_bytes: int) -> dict[str, Any]:
    """Return a point as JSON has it."""
    blocks, tokens = point.hit_ratio_blocks, point.hit_ratio_tokens
    ratio = blocks if point.structure == "plain" or tokens is None else tokens
    return {
        "policy": point.policy,
        "structure": point.structure,
        "capacity_blocks": point.capacity_blocks,
        "capacity_bytes": point.capacity_blocks * block_bytes if block_bytes else None,
        "hit_ratio": ratio,
        "miss_ratio": 1.0 - ratio,
        "hit_ratio_blocks": blocks,
        "hit_ratio_tokens": tokens,
        "hit_ratio_bytes": point.hit_ratio_bytes,
        "hit_blocks": point.hit_blocks,
        "hit_tokens": point.hit_tokens if tokens is not None else None,
    }


def _document(
    question: Question, visits: "Visits", counted: int, block_bytes: int, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "trace": visits.name,
        "mode": "plain" if question.plain else "prefix",
        "hit_ratio_counts": "blocks" if question.plain else "tokens",
        "requests": len(visits.ends),
        "counted_requests": counted,
        "block_references": int(visits.request_blocks.sum()),
        "distinct_blocks": visits.distinct_blocks,
        "partial_blocks": "left out" if question.full_blocks else "counted",
        "block_tokens": visits.block_tokens or None,
        "block_bytes": block_bytes or None,
        "llm": question.llm,
        "kv_dtype": (question.kv_dtype or _KV_DTYPE) if question.llm else None,
        "curves": rows,
    }


def _print(document: Mapping[str, Any]) -> None:
    """Print one line a capacity and one column a policy."""
    rows, block_bytes = document["curves"], document["block_bytes"]
    plain, unit = document["mode"] == "plain", "blocks" if document["block_tokens"] else "objects"
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    ratios = {(row["policy"], row["capacity_blocks"]): row["hit_ratio"] for row in rows}
    table = []
    for capacity in sorted({row["capacity_blocks"] for row in rows}):
        size = [f"{capacity:,}"] + ([format_bytes(capacity * block_bytes)] if block_bytes else [])
        table.append(size + [f"{100.0 * ratios[policy, capacity]:.2f}" for policy in policies])
    requests = "requests" if unit == "blocks" else "accesses"
    counted = f"{document['counted_requests']:,} of {document['requests']:,} {requests} counted"
    sys.stdout.write(f"{document['trace']}: hit ratio [% of {unit if plain else 'prompt tokens'}], {counted}\n\n")
    print_table([unit, *(["bytes"] if block_bytes else []), *policies], table, numbers_from=0)
    if not plain:
        structures = {row["policy"]: row["structure"] for row in rows}
        sys.stdout.write("\n")
        print_pairs(
            (structure, ", ".join(policy for policy in policies if structures[policy] == structure))
            for structure in dict.fromkeys(structures.values())
        )
