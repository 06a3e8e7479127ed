"""Tiers: what is resident where, how replicas reach it, and how chunks move between tiers."""
