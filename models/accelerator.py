"""One accelerator: peak rates, the shares of them that are delivered, and fixed costs, for `models.roofline`."""

from collections.abc import Mapping
from dataclasses import dataclass

from models.catalogue import Changes, Entry, load_changed
from models.errors import CatalogueError

_ARITHMETIC = ("bf16", "fp8", "fp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One GPU. Rates are for one GPU and, on links, one direction; efficiencies are delivered / peak.

    `peak_flops_per_s` and `compute_efficiency` are by arithmetic dtype (bf16, fp8, fp4), dense.
    `collective_efficiency` is all-reduce bus bandwidth / `scale_up_bytes_per_s` and may exceed 1 where the switch
    reduces. `step_fixed_s` is spent once an engine step, `layer_fixed_s` once a layer (where `kernel_fixed_s` is known,
    that once a kernel instead: layers have 10 to 20, see `models.llm.Llm.kernels`), `collective_latency_s` once a
    collective. Grouped kernels of routed experts reach `expert_compute_factor` and `expert_hbm_factor` of the other
    kernels' efficiencies, and read no more than `unpacking_bytes_per_s` of 4-bit weights that they have to widen to
    16 bits (None: as much as HBM gives); attention over the KV cache reaches `kv_hbm_factor` of it; `routing_skew` is
    how unevenly experts are chosen (see `models.roofline.ExpertShare`). Attention over prompts reaches
    `attention_efficiency` of the bf16 peak; None: as much as products of matrices. `moe_layer_fixed_s` is spent once
    a mixture-of-experts layer (routing, permuting, grouped launches), `sequence_fixed_s` once a sequence of a step
    (sampling, scheduling). `activation_passes` counts how often a layer reads or writes a token's hidden vector in
    HBM, on every rank, `expert_activation_passes` how often a mixture-of-experts layer does so for each chosen expert
    (gathered, quantised, between the two products, summed). A step that computes prompts runs outside CUDA graphs and
    takes at least `prompt_layer_fixed_s` a layer, however little it computes. `host_power_w` and `host_price_usd` are
    the rest of a server, for each of its GPUs. Sources stand in the catalogue entry.
    """

    name: str
    hbm_bytes: int
    hbm_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    compute_efficiency: Mapping[str, float]
    hbm_efficiency: float
    scale_up_bytes_per_s: float
    collective_efficiency: float
    host_link_bytes_per_s: float
    host_link_delivered_fraction: float
    step_fixed_s: float
    layer_fixed_s: float
    collective_latency_s: float
    expert_compute_factor: float = 1.0
    expert_hbm_factor: float = 1.0
    routing_skew: float = 0.0
    attention_efficiency: float | None = None
    kv_hbm_factor: float = 1.0
    unpacking_bytes_per_s: float | None = None
    kernel_fixed_s: float | None = None
    moe_layer_fixed_s: float = 0.0
    sequence_fixed_s: float = 0.0
    activation_passes: float = 0.0
    expert_activation_passes: float = 0.0
    prompt_layer_fixed_s: float = 0.0
    tdp_w: float | None = None
    price_usd: float | None = None
    host_power_w: float | None = None
    host_price_usd: float | None = None
    status: str = "datasheet"
    caveats: tuple[str, ...] = ()
    economic_caveats: tuple[str, ...] = ()

    def arithmetic_dtype(self, dtype: str) -> str:
        """Return the arithmetic that runs *dtype* here: itself, or bf16 where the part has no units for it.

        Weight-only kernels (Marlin and its kin) expand narrow weights on the fly and multiply in 16 bits. Raises
        CatalogueError.
        """
        if dtype not in _ARITHMETIC:
            raise CatalogueError(
                f"accelerator {self.name}", f"no arithmetic '{dtype}'; it knows {', '.join(_ARITHMETIC)}"
            )
        return dtype if dtype in self.peak_flops_per_s else "bf16"

    def delivered_flops_per_s(self, dtype: str) -> float:
        """Return peak x efficiency of bf16, fp8 or fp4, or of what runs it here [FLOP/s]; raises CatalogueError."""
        chosen = self.arithmetic_dtype(dtype)
        return self.peak_flops_per_s[chosen] * self.compute_efficiency[chosen]

    @property
    def attention_flops_per_s(self) -> float:
        """What attention over prompts reaches [FLOP/s]; scores and weighted sums are computed in 16 bits."""
        if self.attention_efficiency is None:
            return self.delivered_flops_per_s("bf16")
        return self.peak_flops_per_s["bf16"] * self.attention_efficiency

    @property
    def delivered_hbm_bytes_per_s(self) -> float:
        """HBM bandwidth that a streaming kernel gets [B/s]."""
        return self.hbm_bytes_per_s * self.hbm_efficiency

    @property
    def delivered_host_link_bytes_per_s(self) -> float:
        """Host link bandwidth that large copies get, one direction [B/s]."""
        return self.host_link_bytes_per_s * self.host_link_delivered_fraction


def accelerator_from_entry(entry: Entry) -> Accelerator:
    """Return the accelerator an entry describes; raises CatalogueError for a zero rate or a peak without efficiency."""
    where = f"accelerator {entry.name}"
    peaks = {dtype: entry.si(f"{dtype}_peak") for dtype in _ARITHMETIC if f"{dtype}_peak" in entry.figures}
    for name in ("hbm_capacity", "hbm_bandwidth", "scale_up_bandwidth", "host_link_bandwidth", "hbm_efficiency"):
        if entry.si(name) <= 0:
            raise CatalogueError(where, f"{name} must be above 0")
    for dtype in peaks:
        if not entry.optional_si(f"{dtype}_efficiency"):
            raise CatalogueError(where, f"{dtype}_peak needs a {dtype}_efficiency above 0")
    return Accelerator(
        name=entry.name,
        hbm_bytes=round(entry.si("hbm_capacity")),
        hbm_bytes_per_s=entry.si("hbm_bandwidth"),
        peak_flops_per_s=peaks,
        compute_efficiency={dtype: entry.si(f"{dtype}_efficiency") for dtype in peaks},
        hbm_efficiency=entry.si("hbm_efficiency"),
        scale_up_bytes_per_s=entry.si("scale_up_bandwidth"),
        collective_efficiency=entry.si("collective_efficiency"),
        host_link_bytes_per_s=entry.si("host_link_bandwidth"),
        host_link_delivered_fraction=entry.si("host_link_delivered_fraction"),
        step_fixed_s=entry.si("step_fixed"),
        layer_fixed_s=entry.si("layer_fixed"),
        collective_latency_s=entry.si("collective_latency"),
        expert_compute_factor=_factor(entry, "expert_compute_factor"),
        expert_hbm_factor=_factor(entry, "expert_hbm_factor"),
        routing_skew=entry.optional_si("routing_skew") or 0.0,
        attention_efficiency=_positive(entry, "attention_efficiency"),
        kv_hbm_factor=_factor(entry, "kv_hbm_factor"),
        unpacking_bytes_per_s=_positive(entry, "unpacking_bandwidth"),
        kernel_fixed_s=_positive(entry, "kernel_fixed"),
        moe_layer_fixed_s=entry.optional_si("moe_layer_fixed") or 0.0,
        sequence_fixed_s=entry.optional_si("sequence_fixed") or 0.0,
        activation_passes=entry.optional_si("activation_passes") or 0.0,
        expert_activation_passes=entry.optional_si("expert_activation_passes") or 0.0,
        prompt_layer_fixed_s=entry.optional_si("prompt_layer_fixed") or 0.0,
        tdp_w=entry.optional_si("tdp"),
        price_usd=entry.optional_si("price"),
        host_power_w=entry.optional_si("host_power"),
        host_price_usd=entry.optional_si("host_price"),
        status=entry.status,
        caveats=entry.caveats,
        economic_caveats=entry.economic_caveats,
    )


def _factor(entry: Entry, name: str) -> float:
    value = _positive(entry, name)
    return 1.0 if value is None else value


def _positive(entry: Entry, name: str) -> float | None:
    value = entry.optional_si(name)
    if value is not None and value <= 0:
        raise CatalogueError(f"accelerator {entry.name}", f"{name} must be above 0")
    return value


def load_accelerator(name: str, changes: Changes | None = None) -> Accelerator:
    """Return an accelerator by catalogue name or from a .yaml file, with figures of *changes* in place of its own.

    Raises UnknownNameError, CatalogueError.
    """
    return accelerator_from_entry(load_changed("accelerator", name, changes))
