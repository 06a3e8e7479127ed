"""What a scenario may say: every key with its type, range, default and meaning.

Defaults live here only. Times are seconds, sizes bytes and rates bytes a second once read; a file may write units.
Keys that need a catalogue or a registry to be judged are checked in `scenarios.checks`.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from models.catalogue import Changes
from scenarios.choices import Choice
from scenarios.economics.spec import Economics
from scenarios.events import Event
from scenarios.figure_changes import FigureChange
from scenarios.neighbours import Neighbour, check_neighbours
from scenarios.quantity import AS_TUPLE, BytesPerS, Part, Seconds, refuse
from scenarios.run_spec import LinkSpec, Run, Slo
from scenarios.tier_spec import TierSpec, check_hbm
from scenarios.workload import Workload

# Dots separate the keys of a --set path, so a name must not hold one.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class DecodePool(Part):
    """Replicas that only decode; those of the cluster then only compute prompts, and hand their KV over."""

    replicas: int = Field(default=1, ge=1, description="Engines that decode.")
    accelerator: str | None = Field(
        default=None, min_length=1, description="Catalogue name or path of an entry; null: the cluster's."
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, description="GPUs that share each layer of a decoding replica; null: as the others."
    )
    pipeline_parallel: int | None = Field(
        default=None,
        ge=1,
        description="Stages that the layers of a decoding replica are spread over; null: as the others.",
    )
    nodes: Literal["own", "shared"] = Field(
        default="own",
        description="own: on other nodes than those that prefill; shared: on the same, from the first on.",
    )
    replicas_per_node: int = Field(default=1, ge=1, description="Decoding replicas that share the links of one node.")
    router: Choice = Field(
        default="least-loaded",
        description="Which of them decodes a request, or package.module:Class; {name: {parameter: value}} sets more.",
    )
    handover_software: Seconds = Field(
        default=0.0, description="Software time before the first byte of each prompt that is handed over [s]."
    )

    @model_validator(mode="after")
    def _fills_a_node(self) -> "DecodePool":
        if self.replicas_per_node > self.replicas:
            problem = f"is {self.replicas_per_node}; must be at most cluster.decode.replicas ({self.replicas})"
            raise refuse(("replicas_per_node",), problem)
        return self


class Cluster(Part):
    """The accelerators, how a replica is laid over them, and how requests find a replica."""

    accelerator: str = Field(min_length=1, description="Catalogue name or the path of an entry (.yaml).")
    replicas: int = Field(default=1, ge=1, description="Engines serving the model.")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs that share each layer of a replica.")
    pipeline_parallel: int = Field(default=1, ge=1, description="Stages that the layers of a replica are spread over.")
    expert_parallel: bool = Field(
        default=False, description="Experts spread over the GPUs of a replica instead of sliced."
    )
    replicas_per_node: int = Field(default=1, ge=1, description="Replicas that share the tiers and links of one node.")
    host_link: str | None = Field(default=None, description="Link between GPU and host; null: the accelerator's own.")
    nic: str | None = Field(
        default="connectx-7", description="Network card of a node; null: the node's network is no limit."
    )
    switch: str | None = Field(
        default=None, description="Switch between the nodes and remote tiers, a port a node; null: no limit."
    )
    router: Choice = Field(
        default="round-robin", description="Router name, or package.module:Class; {name: {parameter: value}} sets more."
    )

    decode: DecodePool | None = Field(
        default=None, description="Prefill/decode disaggregation: the replicas that decode; null: all do both."
    )

    @model_validator(mode="after")
    def _fills_a_node(self) -> "Cluster":
        if self.replicas_per_node > self.replicas:
            problem = f"is {self.replicas_per_node}; must be at most cluster.replicas ({self.replicas})"
            raise refuse(("replicas_per_node",), problem)
        return self

    def decoding(self) -> "Cluster":
        """Return this cluster with the replicas of :attr:`decode` in place of its own; AssertionError without any."""
        pool = self.decode
        assert pool is not None
        own = {
            "accelerator": pool.accelerator or self.accelerator,
            "tensor_parallel": pool.tensor_parallel or self.tensor_parallel,
            "pipeline_parallel": pool.pipeline_parallel or self.pipeline_parallel,
        }
        return self.model_copy(update=own | {"replicas": pool.replicas, "replicas_per_node": pool.replicas_per_node})


class Engine(Part):
    """The inference engine; what is null follows vLLM's default of the stated version for the GPU."""

    version: str = Field(default="0.33.0", description="vLLM version whose defaults apply.")
    block_tokens: int = Field(default=16, ge=1, description="Tokens a KV block of HBM.")
    chunk_tokens: int | None = Field(
        default=None, ge=1, description="Tokens a chunk of residency; null: from the trace and the stack."
    )
    weight_dtype: str | None = Field(default=None, description="Type of the weights; null: the model's own.")
    kv_dtype: Literal["bf16", "fp8"] = Field(default="bf16", description="Type of the KV cache.")
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="Fraction of HBM that the engine takes."
    )
    max_num_batched_tokens: int | None = Field(default=None, ge=1, description="Token budget of a step.")
    max_num_seqs: int | None = Field(default=None, ge=1, description="Requests running at once in a replica.")
    max_model_len: int | None = Field(default=None, ge=1, description="Longest prompt and output together, tokens.")
    scheduling: Choice = Field(
        default="fcfs",
        description="In which order waiting requests are admitted, or package.module:Class; {name: {parameter: value}} "
        "sets more.",
    )
    prefix_caching: bool = Field(default=True, description="Blocks of ended requests stay in HBM for later ones.")
    mixed_step_factor: float = Field(
        default=1.0, ge=1, description="Factor on the time of steps that mix prefill and decode."
    )
    mixed_steps: bool = Field(
        default=True,
        description="A step computes prompts and decodes at once, as in vLLM; false: prompts first, and nobody decodes "
        "meanwhile, as in SGLang.",
    )
    receive_interval: int = Field(
        default=1,
        ge=1,
        description="Decode steps between two looks at what has arrived, while requests decode (SGLang's "
        "--scheduler-recv-interval).",
    )
    request_latency: Seconds = Field(
        default=0.0, description="Fixed front-end latency a request; requests overlap [s]."
    )
    tokenize_tokens_per_s: float | None = Field(
        default=None, gt=0, description="Tokeniser of a replica, one micro-batch after another; null: no limit."
    )
    tokenize_batch_wait: Seconds = Field(
        default=0.002, description="How long the tokeniser waits for more requests of a micro-batch [s]; vLLM: 2 ms."
    )
    kv_load_failure_policy: Literal["fail", "recompute"] = Field(
        default="fail",
        description="What becomes of a request when KV fails to load (tiers.NAME.load_failure_probability, events): "
        "fail ends it with an error, recompute computes what did not arrive. vLLM's names and default. Requests of a "
        "replica that restarts (events) fail too, or go to the router once more.",
    )
    decode_jumps: bool = Field(
        default=True, description="Take decode steps in one jump; false: one at a time, for checks."
    )
    step_times: str | None = Field(
        default=None,
        min_length=1,
        description="Step times in place of the roofline: a CSV of measured ones, or those of NVIDIA "
        "AIConfigurator's measured operators (kvtier[aiconfigurator]): aiconfigurator for vLLM's kernels, "
        "aiconfigurator-sglang, aiconfigurator-trtllm.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "Engine":
        if self.chunk_tokens is not None and self.chunk_tokens % self.block_tokens:
            problem = f"is {self.chunk_tokens}; must be a multiple of block_tokens ({self.block_tokens})"
            raise refuse(("chunk_tokens",), problem)
        budget, seqs = self.max_num_batched_tokens, self.max_num_seqs
        if budget is not None and seqs is not None and budget < seqs:
            raise refuse(("max_num_batched_tokens",), f"is {budget}; must be at least max_num_seqs ({seqs})")
        return self


class Transfer(Part):
    """The software path between HBM and the tiers below it; a stack profile fills it."""

    load: Literal["sync", "async"] = Field(
        default="async", description="sync: loads stall the batch, summed over its requests."
    )
    storage_load: Literal["sync", "async"] | None = Field(
        default=None,
        description="The same for requests of which any part comes from drives, an array or an object store; null: as "
        "load.",
    )
    store: Literal["sync", "async"] = Field(
        default="async", description="sync: the copy out of HBM makes the step longer."
    )
    chunk_tokens: int = Field(default=256, ge=1, description="Tokens a chunk that is read or written as one.")
    split_chunks: bool = Field(
        default=False,
        description="Where the chunks of residency are larger than chunk_tokens (a trace's blocks may be), drives read "
        "and write them in pieces of chunk_tokens.",
    )
    io_process: Literal["worker", "replica"] = Field(
        default="worker",
        description="Who reads and writes drives: each GPU's worker its part of a chunk, or one process of the replica "
        "all of it.",
    )
    loads_in_flight: int | None = Field(
        default=None,
        ge=1,
        description="Loads from drives, an array or an object store that a replica makes at once, first come first "
        "served; null: no limit. Estimates of load_or_recompute and of routers do not know who waits.",
    )
    copies_in_flight: int | None = Field(
        default=None, ge=1, description="Loads from memory that a replica makes at once; null: no limit."
    )
    reads_in_flight: int = Field(default=32, ge=1, description="Chunks that a load reads at once.")
    writes_in_flight: int = Field(default=4, ge=1, description="Chunks that a store writes at once.")
    read_software: Seconds = Field(default=0.0, description="Software time a chunk read [s].")
    write_software: Seconds = Field(default=0.0, description="Software time a chunk written [s].")
    read_stream_bandwidth: BytesPerS | None = Field(
        default=None, description="Ceiling of one chunk being read; null: none."
    )
    write_stream_bandwidth: BytesPerS | None = Field(
        default=None, description="Ceiling of one chunk being written; null: none."
    )
    process_bandwidth: BytesPerS | None = Field(
        default=None, description="Ceiling of one worker process (one a GPU); null: none."
    )
    eviction_software: Seconds = Field(
        default=0.0,
        description="Software time for each chunk that drives evict, one after another; the store that needs the room "
        "waits for it [s].",
    )
    request_software: Seconds = Field(default=0.0, description="Software time a request that loads [s].")
    staging: Literal["pipelined", "store-and-forward"] = Field(
        default="pipelined", description="Whether hops of a path overlap."
    )
    staging_timeout: Seconds | None = Field(
        default=None,
        description="How long a load waits for room in the memory that its reads are staged in; then it has failed "
        "(engine.kv_load_failure_policy). Such as 10 s; null: it waits as long as transfers under way will free room, "
        "and where there are none it passes unstaged, with a warning.",
    )
    lookup: Literal["any", "grouped"] = Field(
        default="any", description="grouped: a prefix comes from one tier at a time."
    )
    insertion: Literal["head-first", "tail-first"] = Field(
        default="tail-first", description="Which end of a prefix becomes the oldest where all of it was used at once."
    )
    min_load_tokens: int = Field(default=0, ge=0, description="A hit shorter than this is computed, not loaded.")
    load_or_recompute: Choice = Field(
        default="always-load",
        description="What of the KV in lower tiers is loaded: always-load, always-recompute (nothing), quicker (by "
        "estimates at admission: time to load beside the transfers under way, against time to compute), two-ended "
        "(computed from the front while it is loaded from the back, until both meet); or package.module:Class.",
    )
    layerwise: bool = Field(
        default=False,
        description="Synchronous loads overlap with the forward pass of their step, layer by layer: with L layers of l "
        "load and c compute each, both take l + (L - 1) max(c, l) + c. From every tier alike, though HiCache does so "
        "from host memory only.",
    )

    layer_objects: bool = Field(
        default=False,
        description="With layerwise: tiers hold an object for each layer of a chunk (LMCache's use_layerwise), so that "
        "reads and writes are as many times smaller and more, and the next layer's begin when the last one's have "
        "ended; false: layers are parts of one object.",
    )
    prefetch: Choice = Field(
        default="none",
        description="Whose KV is brought from slower tiers into memory ahead: none, at-enqueue (when a request joins "
        "the queue), look-ahead (the first {requests: 8} of the queue), next-turn ({after_s} after a turn of a session "
        "has ended), hicache ({policy: timeout}, wait_complete or best_effort; nothing else is loaded there); each "
        "takes {under_way_bytes}; or package.module:Class. A request waits, and others pass it, while "
        "its KV is on the way; what finds no room in memory is not brought.",
    )

    @model_validator(mode="after")
    def _overlaps(self) -> "Transfer":
        if self.layerwise and self.load != "sync":
            raise refuse(("layerwise",), "is for load: sync; an asynchronous load ends before its request's first step")
        if self.layerwise and self.staging != "pipelined":
            raise refuse(("layerwise",), "is for staging: pipelined; store-and-forward has all layers in memory first")
        if self.layer_objects and not self.layerwise:
            raise refuse(("layer_objects",), "is for layerwise: true; else the layers of a chunk are read at once")
        return self


class Scenario(Part):
    """A whole scenario."""

    name: str = Field(min_length=1)
    description: str = ""
    llm: str = Field(min_length=1, description="Catalogue name, or the path of a Hugging Face config.json.")
    cluster: Cluster
    engine: Engine = Field(default_factory=Engine)
    stack: str | None = Field(default=None, description="Stack profile below engine, transfer and tiers, which win.")
    transfer: Transfer = Field(default_factory=Transfer)
    tiers: dict[str, TierSpec] = Field(description="By name, fastest first; the first is hbm.")
    links: dict[str, LinkSpec] = Field(default_factory=dict, description="Overrides of links, by name.")
    figures: dict[str, dict[str, FigureChange]] = Field(
        default_factory=dict, description="Figures of storage, accelerators and links, by name of the catalogue entry."
    )
    parameters: str | None = Field(
        default=None,
        min_length=1,
        description="Fitted parameters below engine, transfer and figures, which win; above the stack: a name such as "
        "fitted/r1-r2, or the path of a file (.yaml).",
    )
    workload: Workload
    events: Annotated[tuple[Event, ...], AS_TUPLE] | None = Field(
        default=None, description="What is lost, restarted, added or drained during the run; null: nothing."
    )
    neighbours: dict[str, Neighbour] = Field(
        default_factory=dict, description="Traffic of others on the tiers' devices and links, by name."
    )
    slo: Slo | None = None
    economics: Economics | None = Field(
        default=None, description="Terms for money, energy and wear; null: a run says nothing of them."
    )
    run: Run = Field(default_factory=Run)

    def with_economics(self) -> "Scenario":
        """Return this scenario with default terms of money and energy, where it has none of its own."""
        return self if self.economics is not None else self.model_copy(update={"economics": Economics()})

    def changes(self) -> Changes:
        """Return what replaces figures of catalogue entries, as `models.catalogue` takes it."""
        return {
            name: {key: f.model_dump(exclude_none=True) for key, f in fs.items()} for name, fs in self.figures.items()
        }

    @model_validator(mode="after")
    def _agrees(self) -> "Scenario":
        block, chunk = self.engine.block_tokens, self.transfer.chunk_tokens
        if chunk % block and "chunk_tokens" in self.transfer.model_fields_set:
            raise refuse(
                ("transfer", "chunk_tokens"), f"is {chunk}; must be a multiple of engine.block_tokens ({block})"
            )
        if chunk % block:
            raise refuse(("engine", "block_tokens"), f"is {block}; must divide transfer.chunk_tokens ({chunk})")
        self._check_tiers()
        self._check_phases()
        self._check_answers()
        check_neighbours(self.neighbours, self.tiers, [phase.name for phase in self.workload.phases or ()])
        return self

    def _check_tiers(self) -> None:
        names = list(self.tiers)
        if not names or names[0] != "hbm":
            raise refuse(
                ("tiers",), f"the first tier must be 'hbm' (write `hbm: {{}}`); got {', '.join(names) or 'none'}"
            )
        for position, (name, tier) in enumerate(self.tiers.items()):
            if not _NAME.fullmatch(name):
                raise refuse(("tiers", name), "a tier's name is letters, digits, - and _, and begins with a letter")
            if position == 0:
                check_hbm(tier)
                continue
            if tier.device is None:
                raise refuse(("tiers", name), "device is missing; only hbm has none")
            if tier.watermarks is not None and not tier.evicts:
                raise refuse(("tiers", name, "watermarks"), "is for a tier that evicts; evicts is false")
            if tier.encoding is not None and tier.encoding.format == self.engine.kv_dtype:
                problem = f"is {tier.encoding.format}, as the engine's KV is (engine.kv_dtype)"
                raise refuse(("tiers", name, "encoding", "format"), problem)
            if tier.stores == "prompt+output" and self.cluster.decode is not None:
                problem = "is prompt+output; replicas that decode have no tiers below HBM (cluster.decode)"
                raise refuse(("tiers", name, "stores"), problem)
            if tier.page_cache_of is not None:
                self._check_page_cache(name, tier.page_cache_of, names[position + 1 :])

    def _check_answers(self) -> None:
        loads = self.workload.phases or (self.workload,)
        for name, tier in self.tiers.items():
            if tier.stores == "prompt+output" and not any(load.sessions is not None for load in loads):
                problem = "prompt+output is for workload.sessions: no other load knows what its answers fill"
                raise refuse(("tiers", name, "stores"), problem)

    def _check_page_cache(self, name: str, target: str, later: list[str]) -> None:
        key = ("tiers", name, "page_cache_of")
        if target not in later:
            raise refuse(key, f"is '{target}'; must name a tier below {name}: {', '.join(later) or 'there is none'}")
        for name_of_key in ("admission", "encoding", "watermarks", "max_store_backlog", "load_failure_probability"):
            if getattr(self.tiers[name], name_of_key) not in {None, 0.0}:
                raise refuse(("tiers", name, name_of_key), "is not for a page cache: the kernel keeps what it reads")
        if self.tiers[name].inclusion != "inclusive":
            raise refuse(("tiers", name, "inclusion"), "is not for a page cache: the kernel keeps what it reads")
        if self.tiers[target].gds:
            raise refuse(key, f"is '{target}', which has gds: GPUDirect reads bypass the page cache")

    def _check_phases(self) -> None:
        phases = self.workload.phases or ()
        for index, phase in enumerate(phases):
            for name in phase.clear:
                if name not in self.tiers:
                    problem = f"'{name}' is no tier; tiers: {', '.join(self.tiers)}"
                    raise refuse(("workload", "phases", index, "clear"), problem)
        measured, names = self.run.measure, [phase.name for phase in phases]
        if measured is not None and measured not in names:
            listed = ", ".join(names) or "the workload has none"
            raise refuse(("run", "measure"), f"is '{measured}'; must name a phase: {listed}")
