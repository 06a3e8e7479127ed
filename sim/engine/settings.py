"""The limits and habits of one engine, as the step loop reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The engine's limits and habits.

    Parameters
    ----------
    block_tokens, chunk_tokens : int
        Engine block and unit of residency below HBM [tokens]; the second is a multiple of the first.
    max_num_batched_tokens, max_num_seqs : int
        Token budget of a step, and most requests that run at once.
    prefix_caching : bool
        Whether finished chunks stay findable in HBM.
    caches_answers : bool
        Whether chunks that answers fill are findable in HBM too, where the workload knows them.
    synchronous_loads : bool
        Whether loads stop the batch.
    synchronous_storage_loads : bool or None
        The same for requests of which any part comes from drives; None: as the others.
    synchronous_stores : bool
        Whether the copy out of HBM extends the step.
    min_load_tokens : int
        Hits below HBM shorter than this are recomputed [tokens].
    request_software_s : float
        Software time that each synchronous load adds (key hashing, buffer set-up) [s].
    mixed_step_factor : float
        Time factor of steps that mix prefill and decode.
    mixed_steps : bool
        Whether a step computes prompts and decodes at once; False: prompts first, and nobody decodes meanwhile.
    receive_interval : int
        Decode steps between two looks at what has arrived, while requests decode.
    window_tokens : int or None
        Attention window of the model's windowed layers.
    state_units : int
        HBM blocks of the fixed state that a running sequence holds (linear-attention layers).
    overlap_layers : int
        Layers over which a step's synchronous loads overlap with its forward pass; 0: it begins when they have ended.
    recomputes_failed_loads : bool
        Whether what a load failed to bring is computed; else its request fails.
    decode_jumps : bool
        False: one event a decode step.
    """

    block_tokens: int
    chunk_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_caching: bool = True
    caches_answers: bool = False
    synchronous_loads: bool = False
    synchronous_storage_loads: bool | None = None
    synchronous_stores: bool = False
    min_load_tokens: int = 0
    request_software_s: float = 0.0
    mixed_step_factor: float = 1.0
    mixed_steps: bool = True
    receive_interval: int = 1
    window_tokens: int | None = None
    state_units: int = 0
    overlap_layers: int = 0
    recomputes_failed_loads: bool = False
    decode_jumps: bool = True
