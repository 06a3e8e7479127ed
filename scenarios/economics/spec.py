"""What a scenario may say of money and energy; prices, power and endurance of parts are figures of the catalogue."""

from pydantic import Field

from scenarios.quantity import Part


class Economics(Part):
    """How long parts are paid for, and what their energy costs. Every default is of a source, as read in 2026."""

    years: float = Field(
        default=5.0,
        gt=0,
        description="Years that parts are written off over. Default: what Amazon takes for AI servers since 2025 (10-K "
        "of 2024); Microsoft, Alphabet and Meta take 5.5 to 6.",
    )
    utilisation: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Share of these years in which the cluster does what the run does; in the rest it is idle, and "
        "its price and idle power are paid by what it does. Default: what www.aiinframap.com/tools/chips/"
        "h100-vs-h200-vs-b200-tco takes for GPUs (mid 2026).",
    )
    electricity_usd_per_kwh: float = Field(
        default=0.08,
        ge=0,
        description="Price of electricity. Default: for industry and colocation, the same page; by state of the USA "
        "0.06 to 0.20 for industry (EIA, Electric Power Monthly, table 5.6.A, April 2025).",
    )
    pue: float = Field(
        default=1.54,
        ge=1,
        description="Energy of the building over that of its computers. Default: mean of Uptime Institute's Global "
        "Data Center Survey 2025; new large sites reach 1.1 to 1.2.",
    )
    gpu_idle_fraction: float = Field(
        default=0.115,
        ge=0,
        le=1,
        description="Power of an accelerator between steps over its TDP. Default: 80.3 of 700 W, an H200 with a model "
        "loaded (api.serialalice.pt/alice-benchmark, June 2026).",
    )
    gpu_busy_fraction: float = Field(
        default=0.85,
        ge=0,
        le=1,
        description="The same in a step. Default: 592.8 of 700 W, an H200 under vLLM at its busiest (the same page); "
        "0.86 of an H100 at batch 128 (ML.ENERGY v3.0). Small batches draw less, down to 0.43 at batch 1.",
    )
    usd_per_cny: float = Field(
        default=0.14, gt=0, description="For parts that are priced in CNY. Default: 7.1 CNY a USD, 2025; from memory."
    )
