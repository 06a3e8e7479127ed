"""What a block trace looks like: how often and how soon its objects are used again."""

from array import array
from collections import Counter
from typing import Any

import numpy as np

from sim.traces.block_trace import BlockTrace
from sim.traces.columns import OnRequest
from sim.traces.reuse_statistics import IDLE_S, REFERENCE_BINS, REUSE_PERCENTILES
from sim.traces.stack_distance import lru_stack_distances, previous_references
from sim.traces.statistics_text import bins_text, figures_text, text
from sim.traces.weighted import chance_of_more, mean_and_percentiles, percentiles, shares

_SIZE_PERCENTILES = (50, 90, 99)


def block_trace_statistics(trace: BlockTrace, on_access: OnRequest = lambda _: None) -> dict[str, Any]:
    """Return the figures of a block trace as a dict that JSON can hold; None where one does not exist.

    Each access to an object counts alike, whatever its size. Times are seconds, distances objects. Raises TraceError
    where the trace is malformed or holds no access.
    """
    at_s, keys, sizes_bytes = array("d"), array("q"), array("q")
    operations: Counter[str] = Counter()
    for number, access in enumerate(trace.accesses()):
        at_s.append(access.at_s)
        keys.append(access.key)
        sizes_bytes.append(access.size_bytes)
        operations[access.op] += 1
        on_access(number + 1)
    stamps_s = np.frombuffer(at_s, dtype=np.float64)
    sizes = np.frombuffer(sizes_bytes, dtype=np.int64)
    previous = previous_references(np.frombuffer(keys, dtype=np.int64))
    reused = previous >= 0
    reuse_s = stamps_s[reused] - stamps_s[previous[reused]]
    _, times = np.unique(np.frombuffer(keys, dtype=np.int64), return_counts=True)
    is_last = np.ones(len(keys), dtype=np.bool_)
    is_last[previous[reused]] = False
    duration_s = float(stamps_s.max() - stamps_s.min())
    ones = np.ones(len(times), dtype=np.int64)
    return {
        "name": trace.name,
        "accesses": len(keys),
        "objects": len(times),
        "duration_s": duration_s,
        "rate_accesses_per_s": len(keys) / duration_s if duration_s else None,
        "operations": {name: count for name, count in operations.most_common() if name},
        "size_bytes": mean_and_percentiles(sizes, _SIZE_PERCENTILES),
        "accessed_bytes": int(sizes.sum()),
        "infinite_cache_hit_ratio": int(reused.sum()) / len(keys),
        "share_of_objects_by_references": shares(times, REFERENCE_BINS, ones),
        "reuse_time_s": percentiles(reuse_s, REUSE_PERCENTILES),
        "stack_distance_objects": percentiles(lru_stack_distances(previous), REUSE_PERCENTILES),
        "reused_later_given_idle_s": chance_of_more(
            reuse_s, np.ones(len(reuse_s), dtype=np.int64), (stamps_s[-1] - stamps_s)[is_last], ones, IDLE_S
        ),
    }


def format_block_statistics(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of `block_trace_statistics` as rows (what, value with its unit)."""
    operations = ", ".join(f"{name} {text(count)}" for name, count in statistics["operations"].items())
    return [
        ("block trace", f"{statistics['name']} (accesses to a cache; it holds no requests)"),
        ("accesses", text(statistics["accesses"])),
        ("objects", text(statistics["objects"])),
        ("duration", text(statistics["duration_s"], "s")),
        ("rate", text(statistics["rate_accesses_per_s"], "accesses/s")),
        *([("operations", operations)] if operations else []),
        ("size", figures_text(statistics["size_bytes"], "bytes")),
        ("infinite-cache hit ratio", text(statistics["infinite_cache_hit_ratio"])),
        ("objects by number of accesses", bins_text(statistics["share_of_objects_by_references"])),
        ("time between uses of an object", figures_text(statistics["reuse_time_s"], "s")),
        ("used again after idle seconds", bins_text(statistics["reused_later_given_idle_s"])),
        ("LRU stack distance", figures_text(statistics["stack_distance_objects"], "objects")),
    ]
