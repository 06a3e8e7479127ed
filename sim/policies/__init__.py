"""Policies: protocols and registries in ``base``, one file a family."""
