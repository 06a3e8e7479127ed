"""Synthetic workloads, one file each: requests drawn from fitted distributions instead of read from a file.

The registry finds every file of this folder. A generator is one class registered by `@GENERATORS.register(name)`.
"""

from sim.generators.base import GENERATORS, Generator

__all__ = ["GENERATORS", "Generator"]
