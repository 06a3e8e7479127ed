"""What a scenario may say of a tier."""

from typing import Literal

from pydantic import Field, model_validator

from scenarios.choices import Choice
from scenarios.quantity import Bytes, BytesPerS, Part, refuse

Scope = Literal["worker", "replica", "node", "shared"]


class Encoding(Part):
    """How a tier holds KV, where that is not as the engine does.

    Encoded bytes fill the tier and cross every link between it and the GPUs, or the memory that its loads are staged
    in, which has its own encoding. Quality is not modelled.
    """

    format: Literal["fp8", "int4", "compressed"] = Field(
        description="fp8: 1 byte an element. int4: 4 bits, and scale and zero point (4 bytes) for each 32 elements. "
        "compressed: anything else, such as CacheGen; its ratio has to be given."
    )
    ratio: float | None = Field(
        default=None,
        gt=0,
        description="Encoded bytes a byte of the engine's KV; null: from the format. CacheGen's authors report 3.5 to "
        "4.3 times less than 8-bit KV (arXiv 2310.07240): 0.12 to 0.14 of bf16.",
    )
    encode_bandwidth: BytesPerS = Field(
        description="KV, before encoding, that one GPU's worker encodes a second; no general figure is published."
    )
    decode_bandwidth: BytesPerS = Field(
        description="KV, after decoding, that one GPU's worker decodes a second; no general figure is published."
    )

    @model_validator(mode="after")
    def _has_a_ratio(self) -> "Encoding":
        if self.format == "compressed" and self.ratio is None:
            raise refuse(("ratio",), "is missing: how small 'compressed' KV is depends on the method")
        return self


class Watermarks(Part):
    """Room made ahead: once more than ``high`` of a tier is taken, chunks go until no more than ``low`` is."""

    high: float = Field(gt=0, le=1, description="Share of the capacity above which eviction begins, such as 0.8.")
    low: float = Field(gt=0, le=1, description="Share down to which it goes on, such as 0.64.")

    @model_validator(mode="after")
    def _in_order(self) -> "Watermarks":
        if self.low > self.high:
            raise refuse(("low",), f"is {self.low:g}; must be at most high ({self.high:g})")
        return self


class Layout(Part):
    """How chunks lie on the drives of a tier: ``data`` pieces, and ``parity`` more made of them, each on its own drive.

    Any ``data`` of the pieces make the chunk again. A chunk is written whole, once, and never changed: a full stripe,
    so that each piece crosses the drives once and nothing is read for it. An array whose stripes are longer than chunks
    has small writes, which this does not model: two reads and two writes each, of data and of parity (Patterson, Gibson
    and Katz, "A case for redundant arrays of inexpensive disks", SIGMOD 1988, the fourth level). A capacity that
    follows from the device is smaller by what copies and parity take; one that is given is of KV.
    """

    data: int = Field(
        default=1, ge=1, description="Pieces of a chunk: 1, or as many as there are drives for a stripe (RAID 0)."
    )
    parity: int = Field(
        default=0, ge=0, description="Drives that may be lost: copies beyond the first, or parity, such as 2 of 8 + 2."
    )

    @property
    def pieces(self) -> int:
        """Drives that a chunk lies on."""
        return self.data + self.parity

    @property
    def overhead(self) -> float:
        """Bytes on drives for each byte of KV."""
        return self.pieces / self.data


class TierSpec(Part):
    """One tier. The first is hbm, and takes capacity, eviction, stores and structure only."""

    device: str | None = Field(
        default=None, description="Storage catalogue name or the path of an entry (.yaml); null for hbm only."
    )
    count: int = Field(default=1, ge=1, description="Devices striped together, in each place that the scope says.")
    ports: int | None = Field(default=None, ge=1, description="Network ports in use; null: the device's default.")
    drives: int | None = Field(default=None, ge=1, description="Drives in the box; null: the device's default.")
    layout: Layout | None = Field(
        default=None,
        description="{data: 8, parity: 2}: erasure coding; {parity: 1}: two copies; {data: 4}: a stripe over 4 drives; "
        "null: each chunk on one drive.",
    )
    capacity: Bytes | None = Field(
        default=None, gt=0, description="Bytes for KV, of each worker where the scope is worker."
    )
    scope: Scope | None = Field(
        default=None, description="Who shares one instance of the tier; null: follows the device."
    )
    eviction: Choice = Field(
        default="lru", description="Eviction policy, or package.module:Class; {name: {parameter: value}} sets more."
    )
    evicts: bool = Field(
        default=True, description="false: nothing is evicted to make room; what does not fit is not stored."
    )
    watermarks: Watermarks | None = Field(
        default=None,
        description="{high: 0.8, low: 0.64}: when what arrives takes more than the high share, chunks are evicted down "
        "to the low one at once; null: only what is needed, when it is. LMCache's server and Mooncake do so by a clock "
        "of 1 s and of 10 ms, which is not modelled.",
    )
    structure: Literal["hashmap", "leaf_constrained"] = Field(
        default="hashmap", description="leaf_constrained: a chunk goes only after all that continue it."
    )
    placement: Choice = Field(
        default="write-through",
        description="When the KV of prompts is written here: write-through (at once), write-through-selective (at the "
        "use number {uses: 2}), write-back (when the tier above evicts it), none; or package.module:Class.",
    )
    stores: Literal["prompt", "prompt+output"] = Field(
        default="prompt",
        description="prompt+output: full chunks of answers are kept here too (hbm: findable; below: written through at "
        "the request's end, into a tier fed from memory if memory has them). For workload.sessions only: traces name "
        "an answer's blocks nowhere but in the next turn's prompt, so a turn's answer is taken to stand there in full, "
        "right behind its prompt. Where thinking is left out of the next prompt, this promises too much.",
    )
    admission: Choice | None = Field(
        default=None,
        description="Filter before every store, write-back and promotion into this tier: frequency, tinylfu, "
        "min-prefix, break-even, or package.module:Class; {name: {parameter: value}} sets more; null: none.",
    )
    promotion: Literal["always", "never", "second-touch"] | None = Field(
        default=None,
        description="Whether KV read from a slower tier is kept here; second-touch: from its second such read on; "
        "null: memory always (never where it is exclusive), storage never.",
    )
    inclusion: Literal["inclusive", "exclusive"] = Field(
        default="inclusive",
        description="exclusive: what the next faster tier takes over from here is removed here, and comes back when "
        "that one evicts it; takes a placement that writes at eviction.",
    )
    encoding: Encoding | None = Field(default=None, description="How KV is held here; null: as the engine holds it.")
    index: Literal["process", "filesystem"] = Field(
        default="filesystem", description="process: the index is lost at a restart and unseen by other replicas."
    )
    transport: str | None = Field(
        default=None,
        description="Link entry of the protocol (nvmeof-rdma, nvmeof-tcp): its delivered share and latency hold "
        "for the ports; null: the device's own share.",
    )
    gds: bool = Field(default=False, description="GPUDirect Storage: no copy through host memory.")
    page_cache_of: str | None = Field(
        default=None, description="This tier is the host's page cache of that later tier."
    )
    on_full: Literal["drop", "wait"] = Field(
        default="drop", description="What a store does when nothing can be evicted."
    )
    load_failure_probability: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the reads from here that fail, when their last byte would have arrived: one read a "
        "request, or more where other tiers lie between; a prefetch is a read too. What then happens says "
        "engine.kv_load_failure_policy. For example 0.001.",
    )
    max_store_backlog: Bytes | None = Field(
        default=None,
        description="Stores to this tier are skipped while more than so many bytes are being written to it; null: no "
        "limit.",
    )


def check_hbm(tier: TierSpec) -> None:
    """Refuse what hbm does not take."""
    allowed = {"capacity", "eviction", "stores", "structure"}
    for key, field in TierSpec.model_fields.items():
        if key not in allowed and getattr(tier, key) != field.default:
            raise refuse(("tiers", "hbm", key), f"hbm takes only {', '.join(sorted(allowed))}")
