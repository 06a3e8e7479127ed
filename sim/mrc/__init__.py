"""Miss-ratio curves: what caches of many sizes and policies would hit, from one read of a trace and without time."""
