"""Which figures, traits and curves an entry of each catalogue kind may have, and the dimension of each figure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class KindSchema(NamedTuple):
    """What an entry of one kind may say.

    `required` and `optional` map figure names to dimensions of `models.units`; `traits` maps names to allowed words
    (empty: any); `curves` lists the names of tables. `economic` names the figures that no time depends on: prices,
    power and wear. `superseded` names figures that are not used where an entry has the other one too.
    """

    plural: str
    required: Mapping[str, str]
    optional: Mapping[str, str]
    traits: Mapping[str, tuple[str, ...]]
    curves: tuple[str, ...] = ()
    economic: frozenset[str] = frozenset()
    superseded: Mapping[str, str] = MappingProxyType({})

    @property
    def dimensions(self) -> dict[str, str]:
        """Dimension by figure name."""
        return {**self.required, **self.optional}


def _all(dimension: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), dimension)


_YES_NO: Final = ("yes", "no")
_WEIGHTS: Final = ("bf16", "fp16", "fp8", "mxfp4", "nvfp4", "int4")

KINDS: Final[Mapping[str, KindSchema]] = MappingProxyType(
    {
        "llm": KindSchema(
            plural="llms",
            required=_all("number", "layers hidden heads head_dim dense_intermediate vocab"),
            optional=_all(
                "number",
                "kv_heads experts experts_per_token expert_intermediate shared_experts first_dense_layers moe_every "
                "q_lora_rank kv_lora_rank rope_dim nope_dim v_dim windowed_layers window_tokens linear_layers "
                "linear_key_heads linear_value_heads linear_key_dim linear_value_dim linear_conv_kernel "
                "stated_params stated_active_params",
            ),
            traits={
                "weight_dtype": _WEIGHTS,
                "expert_weight_dtype": _WEIGHTS,
                "tied_embeddings": _YES_NO,
                "gated_attention": _YES_NO,
                "linear_attention": ("gated-delta", "lightning"),
            },
        ),
        "accelerator": KindSchema(
            plural="accelerators",
            required={
                **_all("bytes", "hbm_capacity"),
                **_all("bytes_per_s", "hbm_bandwidth scale_up_bandwidth host_link_bandwidth"),
                **_all("flops_per_s", "bf16_peak"),
                **_all("number", "host_link_delivered_fraction bf16_efficiency hbm_efficiency collective_efficiency"),
                **_all("seconds", "step_fixed layer_fixed collective_latency"),
            },
            optional={
                **_all("flops_per_s", "fp8_peak fp4_peak"),
                **_all("bytes_per_s", "unpacking_bandwidth"),
                **_all(
                    "number",
                    "fp8_efficiency fp4_efficiency attention_efficiency expert_compute_factor expert_hbm_factor "
                    "kv_hbm_factor routing_skew activation_passes expert_activation_passes",
                ),
                **_all("seconds", "kernel_fixed moe_layer_fixed sequence_fixed prompt_layer_fixed"),
                **_all("watts", "tdp host_power"),
                **_all("usd", "price host_price"),
            },
            traits={},
            # host_*: the rest of a server, for each of its accelerators.
            economic=frozenset({"tdp", "price", "host_power", "host_price"}),
            superseded=MappingProxyType({"layer_fixed": "kernel_fixed"}),
        ),
        "storage": KindSchema(
            plural="storage",
            required={
                **_all("bytes_per_s", "read_bandwidth write_bandwidth"),
                **_all("seconds", "read_latency write_latency"),
            },
            optional={
                **_all("seconds", "rated_life"),
                **_all("bytes_per_s", "stream_bandwidth sustained_write_bandwidth port_bandwidth"),
                **_all("ops_per_s", "read_iops write_iops"),
                **_all("bytes", "capacity write_cache endurance"),
                **_all("number", "port_delivered_fraction ports max_ports drives max_drives"),
                **_all("number", "rated_dwpd write_amplification rated_write_amplification"),
                **_all("watts", "power idle_power"),
                **_all("watts_per_byte", "power_per_capacity"),
                **_all("usd", "price"),
                **_all("usd_per_byte", "price_per_capacity"),
                **_all("cny", "price_cny"),
            },
            # The figures of an array's bandwidth, IOPS, capacity and write cache are for ONE drive of it.
            traits={"device_class": ("memory", "drive", "array", "object"), "duplex": _YES_NO},
            # Prices and power of an array are for the box. rated_dwpd: drive writes a day for the rated_life, of a load
            # that makes the flash write rated_write_amplification times as much; write_amplification is that of KV.
            economic=frozenset(
                {
                    *("endurance", "rated_dwpd", "rated_life", "rated_write_amplification", "write_amplification"),
                    *("power", "idle_power", "power_per_capacity", "price", "price_per_capacity", "price_cny"),
                }
            ),
        ),
        "link": KindSchema(
            plural="links",
            required={
                **_all("bytes_per_s", "bandwidth"),
                **_all("number", "delivered_fraction"),
                **_all("seconds", "latency"),
            },
            # Of one card, or of one port of a switch.
            optional={**_all("watts", "power"), **_all("usd", "price")},
            traits={"duplex": _YES_NO},
            curves=("h2d", "d2h"),
            economic=frozenset({"power", "price"}),
        ),
    }
)
