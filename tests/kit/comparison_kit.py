"""Samples made of numbers whose truth is known, as if they were the TTFT of requests in blocks."""

import numpy as np

from scenarios.comparison.sample import Ratio, Sample, _per_block, _ranked
from sim.arrays import Floats


def a_sample(ttft_s: Floats, *, blocks: int = 30, prompt_tokens: int = 100, ranked: bool = True) -> Sample:
    """A run of requests with these TTFT, in time order; runs of other prompts are of another workload."""
    labels = np.arange(ttft_s.size) * blocks // ttft_s.size
    count = np.bincount(labels, minlength=blocks)
    return Sample(
        workload=np.stack([count * prompt_tokens, count, count], axis=1),
        ratios={"ttft_s.mean": Ratio(_per_block(labels, blocks, ttft_s), count.astype(np.float64))},
        ranked={"ttft_s": _ranked(ttft_s, labels, blocks)} if ranked else {},
    )


def metrics(ttft_s: Floats) -> dict[str, float | None]:
    quantiles = {f"ttft_s.p{q}": float(np.quantile(ttft_s, q / 100)) for q in (50, 90, 99)}
    return {"ttft_s.mean": float(ttft_s.mean()), **quantiles}


def waiting_times(random: np.random.Generator, requests: int, memory: float = 0.8) -> Floats:
    """TTFT whose logarithm is a first-order autoregression: neighbours are alike, as in one queue."""
    noise = random.normal(size=requests) * np.sqrt(1.0 - memory**2)
    noise[0] = random.normal()
    level = np.empty(requests)
    last = 0.0
    for place, step in enumerate(noise.tolist()):
        last = memory * last + step if place else step
        level[place] = last
    return np.exp(0.5 * level)
