"""One scenario and one workload in many variants: what differs, by how much, and whether that is more than noise."""

from scenarios.comparison.comparing import Comparison, compare
from scenarios.comparison.variants import Variant, load_variants

__all__ = ["Comparison", "Variant", "compare", "load_variants"]
