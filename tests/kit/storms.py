"""A restore storm whose time is known by arithmetic: contexts on an array, one link in the way, nothing else to do."""

from models.llm import load_llm

RESTORES = 8
PROMPT_TOKENS = 20_480  # whole chunks, so that all of it is loaded
KV_BYTES = PROMPT_TOKENS * load_llm("llama-3.1-8b").kv_bytes_per_token("bf16")
ALL_BYTES = RESTORES * KV_BYTES

STORM = f"""\
name: storm
llm: llama-3.1-8b
cluster: {{accelerator: h100-sxm, nic: null}}
tiers:
  hbm: {{capacity: 60 GB}}
  fabric: {{device: fx100, ports: 6, drives: 24, capacity: 1 TB}}
links:
  fabric: {{bandwidth: 5 GB/s, delivered_fraction: 1.0, latency: 0 s}}
  fabric.drives: {{bandwidth: 1 TB/s, latency: 0 s}}
workload:
  phases:
    - name: fill
      closed_loop: {{concurrency: 4, requests: {RESTORES}, prompt_tokens: {PROMPT_TOKENS}, output_tokens: 1}}
    - name: storm
      restart: true
      wave: {{requests: {RESTORES}, prompt_tokens: {PROMPT_TOKENS + 16}, output_tokens: 1}}
run: {{measure: storm}}
"""
