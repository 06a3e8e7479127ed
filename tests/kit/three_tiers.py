"""The head of a scenario: a small model on one GPU, over little HBM and memory, and an array that holds all."""

THREE_TIERS = """\
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
tiers:
  hbm: {capacity: 2 GB}
  dram: {device: ddr5, capacity: 4 GB}
  fabric: {device: fx100, capacity: 1 TB}
"""
