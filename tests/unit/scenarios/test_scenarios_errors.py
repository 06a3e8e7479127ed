"""Every way to write a scenario wrong gives one line: place, key, what is wrong, what is allowed."""

import pytest

from models.errors import InputError, ScenarioError
from scenarios.loader import load_scenario

SYNTHETIC = "  synthetic: {requests: 100}"
WAVE = "wave: {requests: 8, prompt_tokens: 100, output_tokens: 1}"

IN_FILE = [
    (
        "capacity: 0.5 TB",
        "capcity: 0.5 TB",
        ":7: tiers.dram.capcity: unknown key; did you mean 'capacity'? (allowed: device, ",
    ),
    ("llm: llama", "lm: llama", ":3: lm: unknown key; did you mean 'llm'? (allowed: name, "),
    ("replicas: 2", "replicas: two", ":4: cluster.replicas: is 'two'; must be a whole number"),
    ("replicas: 2", "replicas: 2.0", ":4: cluster.replicas: is 2.0; must be a whole number"),
    ("replicas: 2", "replicas: true", ":4: cluster.replicas: is true; must be a whole number"),
    ("replicas: 2", "replicas: 0", ":4: cluster.replicas: is 0; must be at least 1"),
    ("replicas: 2", "replicas: null", ":4: cluster.replicas: is null; must be a whole number"),
    (
        "replicas: 2",
        "replicas_per_node: 2",
        ":4: cluster.replicas_per_node: is 2; must be at most cluster.replicas (1)",
    ),
    ("replicas: 2", "expert_parallel: 1", ":4: cluster.expert_parallel: is 1; must be true or false"),
    ("{accelerator: h200-sxm, replicas: 2}", "h200-sxm", ":4: cluster: is 'h200-sxm'; must be a mapping of keys"),
    ("accelerator: h200-sxm, ", "", ":4: cluster.accelerator: is missing"),
    (
        "accelerator: h200-sxm",
        "accelerator: h20-sxm",
        ":4: cluster.accelerator: unknown accelerator 'h20-sxm'; did you mean",
    ),
    ("replicas: 2", "nic: connectx-77", ":4: cluster.nic: unknown link 'connectx-77'; did you mean"),
    (
        "replicas: 2",
        "router: round-robbin",
        ":4: cluster.router: unknown router 'round-robbin'; did you mean 'round-robin'?",
    ),
    ("llm: llama-3.1-8b", "llm: llama-3.1-9b", ":3: llm: unknown llm 'llama-3.1-9b'; did you mean 'llama-3.1-8b'?"),
    (
        "scope: node",
        "scope: nod",
        ":7: tiers.dram.scope: is 'nod'; did you mean 'node'? (allowed: worker, replica, node, shared)",
    ),
    (
        "scope: node",
        "scope: node, on_full: 3",
        ":7: tiers.dram.on_full: is 3 (allowed: drop, wait)",
    ),
    ("scope: node", "eviction: lruu", ":7: tiers.dram.eviction: unknown eviction policy 'lruu'; did you mean 'lru'?"),
    (
        "scope: node",
        "eviction: nowhere.at.all:X",
        ":7: tiers.dram.eviction: eviction policy 'nowhere.at.all:X': cannot import",
    ),
    (
        "scope: node",
        "placement: write-trough",
        ":7: tiers.dram.placement: unknown placement 'write-trough'; did you mean 'write-through'?",
    ),
    (
        "scope: node",
        "placement: {write-through-selective: {uses: 0}}",
        ":7: tiers.dram.placement.write-through-selective: uses is 0; must be at least 1",
    ),
    (
        "scope: node",
        "admission: min-prefix",
        ":7: tiers.dram.admission.min-prefix: needs the parameter 'min_tokens' (allowed: min_tokens)",
    ),
    (
        "scope: node",
        "admission: {frequency: {window: 3}}",
        ":7: tiers.dram.admission.frequency.window: unknown parameter; did you mean 'window_s'?",
    ),
    ("scope: node", "inclusion: exclusive", ":7: tiers.dram.inclusion: exclusive needs placement: write-back"),
    (
        "scope: node",
        "inclusion: exclusive, placement: write-back, promotion: always",
        ":7: tiers.dram.inclusion: exclusive needs promotion: never; tiers.dram.promotion is always",
    ),
    (
        "scope: node",
        "encoding: {format: compressed, encode_bandwidth: 1 GB/s, decode_bandwidth: 1 GB/s}",
        ":7: tiers.dram.encoding.ratio: is missing: how small 'compressed' KV is depends on the method",
    ),
    (
        "scope: node",
        "stores: prompt+output",
        ":7: tiers.dram.stores: prompt+output is for workload.sessions: no other load knows what its answers fill",
    ),
    ("scope: node", "encoding: {format: fp8}", ":7: tiers.dram.encoding.encode_bandwidth: is missing"),
    ("scope: node", "gds: true", ":7: tiers.dram.gds: is for storage; ddr5 is memory"),
    ("scope: node", "ports: 2", ":7: tiers.dram.ports: storage ddr5: has no ports to choose"),
    (
        "scope: node",
        "page_cache_of: hbm",
        ":7: tiers.dram.page_cache_of: is 'hbm'; must name a tier below dram: fabric",
    ),
    ("device: ddr5, ", "", ":7: tiers.dram: device is missing; only hbm has none"),
    ("device: ddr5", "device: ddr55", ":7: tiers.dram.device: unknown storage 'ddr55'; did you mean 'ddr5'?"),
    ("capacity: 0.5 TB, ", "", ":7: tiers.dram.capacity: is missing, and ddr5 has none of its own"),
    ("0.5 TB", "0.5 Tb", ":7: tiers.dram.capacity: '0.5 Tb' may mean bits or bytes; write"),
    ("0.5 TB", "0.5 s", ":7: tiers.dram.capacity: "),
    ("0.5 TB", "lots", ":7: tiers.dram.capacity: 'lots' is not a quantity"),
    ("0.5 TB", "-1", ":7: tiers.dram.capacity: "),
    ("0.5 TB", "0", ":7: tiers.dram.capacity: is 0; must be greater than 0"),
    ("0.5 TB", "yes", ":7: tiers.dram.capacity: 'yes' is not a quantity"),
    ("0.5 TB", "true", ":7: tiers.dram.capacity: True is not a quantity"),
    ("scope: shared", "scope: worker", ":11: tiers.fabric.scope: worker is for memory only; fx100 can be"),
    ("scope: shared", "ports: 7", ":11: tiers.fabric.ports: storage fx100: ports is 7; must be 1 to 6"),
    ("  hbm:\n", "", ":5: tiers: the first tier must be 'hbm'"),
    (
        "  hbm:\n",
        "  hbm: {device: ddr5}\n",
        ":6: tiers.hbm.device: hbm takes only capacity, eviction, stores, structure",
    ),
    ("  hbm:\n", "  hbm:\n  dra.m: {device: ddr5}\n", ":7: tiers.dra.m: a tier's name is letters"),
    ("workload:\n" + SYNTHETIC, "slo: {}", "small.yaml:1: workload: is missing"),
    (
        SYNTHETIC,
        "  limit: 3",
        ":12: workload: give exactly one of trace, synthetic, closed_loop, wave, poisson, phases; got none",
    ),
    (SYNTHETIC, f"{SYNTHETIC}\n  {WAVE}", ":12: workload: give exactly one of "),
    (SYNTHETIC, f"  {WAVE}\n  rate_scale: 2", ":14: workload.rate_scale: is used with trace and synthetic only"),
    (SYNTHETIC, f"{SYNTHETIC}\n  format: mooncake", ":14: workload.format: is used with trace only"),
    (SYNTHETIC, "  trace: x\n  format: mooncak", ":14: workload.format: unknown trace format 'mooncak'; did you mean"),
    (
        SYNTHETIC,
        "  closed_loop: {concurrency: 1, requests: 1, prompt_tokens: 10, own_tokens: 11, output_tokens: 1}",
        ":13: workload.closed_loop.own_tokens: is 11; must be at most prompt_tokens (10)",
    ),
    (SYNTHETIC, "  trace:", ":13: workload.trace: is null, and no synthetic workload stands beside it"),
    (SYNTHETIC, "  trace: ''", ":13: workload.trace: must not be empty"),
    (
        SYNTHETIC,
        "  synthetic: {generator: chatt, requests: 1}",
        ":13: workload.synthetic.generator: unknown synthetic workload",
    ),
    (SYNTHETIC, "  synthetic: {}", ":13: workload.synthetic: give exactly one of requests, duration and sessions"),
    (SYNTHETIC, "  synthetic: {requests: 1, duration: 1 s}", ":13: workload.synthetic: give exactly one of"),
    (SYNTHETIC, "  wave: {requests: 8, prompt_tokens: 1}", ":13: workload.wave.output_tokens: is missing"),
    (
        SYNTHETIC,
        f"  {WAVE}\nrun: {{measure: c8}}",
        ":14: run.measure: is 'c8'; must name a phase: the workload has none",
    ),
    (
        SYNTHETIC,
        f"  phases: [{{name: a, {WAVE}}}]\nrun: {{measure: b}}",
        ":14: run.measure: is 'b'; must name a phase: a",
    ),
    (
        SYNTHETIC,
        f"  phases:\n    - {{name: a, {WAVE}}}\n    - {{name: a, {WAVE}}}",
        ":15: workload.phases.1.name: 'a' is the name",
    ),
    (
        SYNTHETIC,
        f"  phases:\n    - {{name: a, clear: [nvme], {WAVE}}}",
        ":14: workload.phases.0.clear: 'nvme' is no tier; tiers: ",
    ),
    (SYNTHETIC, "  phases: {a: 1}", ":13: workload.phases: is a mapping; must be a list"),
    (SYNTHETIC, "  phases: []", ":13: workload.phases: must not be empty"),
    (
        SYNTHETIC,
        f"  phases:\n    - {{name: a, wav: 3, {WAVE}}}",
        ":14: workload.phases.0.wav: unknown key; did you mean 'wave'?",
    ),
    (
        "workload:",
        "engine: {chunk_tokens: 100}\nworkload:",
        ":12: engine.chunk_tokens: is 100; must be a multiple of block_tokens",
    ),
    (
        "workload:",
        "engine: {block_tokens: 48}\nworkload:",
        ":12: engine.block_tokens: is 48; must divide transfer.chunk_tokens (256)",
    ),
    (
        "workload:",
        "engine: {kv_dtype: fp4}\nworkload:",
        ":12: engine.kv_dtype: is 'fp4'; did you mean 'fp8'? (allowed: bf16, fp8)",
    ),
    ("workload:", "engine: {weight_dtype: fp9}\nworkload:", ":12: engine.weight_dtype: unknown weight dtype 'fp9'"),
    (
        "workload:",
        "engine: {gpu_memory_utilization: 90}\nworkload:",
        ":12: engine.gpu_memory_utilization: is 90; must be at most 1",
    ),
    (
        "workload:",
        "engine: {max_num_batched_tokens: 8, max_num_seqs: 9}\nworkload:",
        ":12: engine.max_num_batched_tokens: is 8; must be at least max_num_seqs (9)",
    ),
    (
        "workload:",
        "links: {fabric: {bandwidth: 200 Gb}}\nworkload:",
        ":12: links.fabric.bandwidth: '200 Gb' may mean bits or",
    ),
    (
        "workload:",
        "links: {fabric: {bandwidth: 0}}\nworkload:",
        ":12: links.fabric.bandwidth: is 0.0; must be greater than 0",
    ),
    ("workload:", "stack: nothing\nworkload:", ":12: stack: unknown stack 'nothing'"),
    ("workload:", "base: nothing\nworkload:", "unknown scenario 'nothing'"),
    ("workload:", "base: [a]\nworkload:", ":12: base: must be the name or the path of a scenario"),
    ("workload:", "name: again\nworkload:", ":12: key 'name' stands twice (first at "),
    ("workload:", "run: {seed: -1}\nworkload:", ":12: run.seed: is -1; must be at least 0"),
    ("workload:", "slo: {ttft: 0}\nworkload:", ":12: slo.ttft: is 0; must be greater than 0"),
]


@pytest.mark.parametrize(("old", "new", "message"), IN_FILE)
def test_a_wrong_file_gives_file_line_key_and_what_is_allowed(write, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_scenario(write((old, new)))
    text = str(error.value)
    assert message in text
    assert "\n" not in text


OVERRIDES = [
    ("tiers.dram.capcity=1 GB", "--set tiers.dram.capcity: unknown key; did you mean 'capacity'?"),
    (
        "tiers.drma.capacity=1 GB",
        "--set tiers.drma.capacity: there is no tier 'drma'; did you mean 'dram'? (tiers: hbm, dram, fabric)",
    ),
    ("tiers.drma=", "--set tiers.drma: there is no 'drma' in tiers to take away; it has hbm, dram, fabric"),
    ("tiers.dram.capacity=1 Gb", "--set tiers.dram.capacity: '1 Gb' may mean bits or bytes"),
    (
        "tiers.dram.capacity.x=1",
        "--set tiers.dram.capacity.x: tiers.dram.capacity is '0.5 TB' and has no keys below it",
    ),
    ("workload.phases.0.wave=1", "--set workload.phases.0.wave: there is no list workload.phases to take '0' of"),
    ("cluster=h200", "--set cluster: is 'h200'; must be a mapping of keys"),
    ("cluster.replicas", "--set cluster.replicas: must be KEY=VALUE"),
    ("=3", "--set =3: must be KEY=VALUE"),
    ("cluster..replicas=3", "--set cluster..replicas=3: must be KEY=VALUE"),
    ("cluster.replicas=[", "--set cluster.replicas: is not valid YAML"),
    ("cluster.replicas={a: 1, a: 2}", "--set cluster.replicas: key 'a' stands twice"),
    ("run.seeds=3", "--set run.seeds: unknown key; did you mean 'seed'? (allowed: seed, warmup, measure, percentiles)"),
    ("nonsense.key=3", "--set nonsense.key: nonsense: unknown key"),
    ("stack=nothing", "--set stack: unknown stack 'nothing'"),
]


@pytest.mark.parametrize(("override", "message"), OVERRIDES)
def test_a_wrong_override_is_named(small, override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(small, overrides=[override])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_an_index_outside_a_list(write) -> None:
    path = write((SYNTHETIC, f"  phases: [{{name: a, {WAVE}}}]"))
    for index in ("1", "first", "-1"):
        with pytest.raises(
            ScenarioError, match=rf"workload.phases is a list; '{index}' must be one of: a, an index below 1"
        ):
            load_scenario(path, overrides=[f"workload.phases.{index}.name=b"])


def test_of_several_problems_the_first_is_told_and_the_rest_counted(write) -> None:
    path = write(("replicas: 2", "replicas: 0"), ("scope: node", "scope: nod, colour: red"))
    with pytest.raises(ScenarioError, match=r"tiers.dram.colour: unknown key.* \(and 2 more\)$"):
        load_scenario(path)


def test_gds_and_page_cache_exclude_each_other(write) -> None:
    path = write(("scope: node", "scope: node, page_cache_of: fabric"))
    assert load_scenario(path).tiers["dram"].page_cache_of == "fabric"
    with pytest.raises(ScenarioError, match=r"tiers.dram.page_cache_of: is 'fabric', which has gds"):
        load_scenario(path, overrides=["tiers.fabric.gds=true"])


def test_a_page_cache_is_memory(write) -> None:
    nvme = "  nvme: {device: nvme-gen4, capacity: 1 TB, page_cache_of: fabric}\n  fabric:"
    with pytest.raises(ScenarioError, match=r"tiers.nvme.page_cache_of: a page cache is memory; nvme-gen4 is not"):
        load_scenario(write(("  fabric:", nvme)))


def test_fp8_of_fp8_is_no_encoding(small) -> None:
    rates = ["tiers.dram.encoding.encode_bandwidth=1GB/s", "tiers.dram.encoding.decode_bandwidth=1GB/s"]
    with pytest.raises(ScenarioError, match=r"tiers.dram.encoding.format: is fp8, as the engine's KV is"):
        load_scenario(small, overrides=["engine.kv_dtype=fp8", "tiers.dram.encoding.format=fp8", *rates])


def test_an_exclusive_tier_below_hbm_needs_what_hbm_keeps(small) -> None:
    exclusive = ["tiers.dram.placement=write-back", "tiers.dram.inclusion=exclusive"]
    load_scenario(small, overrides=exclusive)
    with pytest.raises(ScenarioError, match=r"tiers.dram.inclusion: exclusive needs engine.prefix_caching"):
        load_scenario(small, overrides=[*exclusive, "engine.prefix_caching=false"])


@pytest.mark.parametrize("keys", ["admission: frequency", "max_store_backlog: 1 GB", "inclusion: exclusive"])
def test_a_page_cache_takes_what_the_kernel_gives_it(write, keys: str) -> None:
    path = write(("  dram:", f"  cache: {{device: ddr5, capacity: 1 GB, page_cache_of: fabric, {keys}}}\n  dram:"))
    key = keys.partition(":")[0]
    with pytest.raises(ScenarioError, match=f"tiers.cache.{key}: is not for a page cache"):
        load_scenario(path)
