"""How a policy is made: by name, with what it needs to know about the place where it works."""

from sim.policies.base import EVICTION, EvictionPolicy, PolicyContext
from sim.policies.hooks import hooks
from sim.policies.leaf import constrain_to_leaves


def make_policy(
    name: str, context: PolicyContext, *, leaf_constrained: bool = False, **parameters: object
) -> EvictionPolicy:
    """Return a new policy, prepared for where it will work.

    Raises what :meth:`sim.registry.Registry.create` raises, and InputError where something it needs is not known.
    """
    policy = EVICTION.create(name, **parameters)
    if leaf_constrained:
        policy = constrain_to_leaves(policy)
    hooks(policy).prepare(context)
    return policy


def is_unbounded(name: str) -> bool:
    """Whether the policy called *name* works in a tier that is never full; raises as ``EVICTION.get`` does."""
    return bool(getattr(EVICTION.get(name), "unbounded", False))
