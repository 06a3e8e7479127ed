"""The methods that an eviction policy may have, so that every caller can ask any policy for them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from models.errors import InputError
from sim.policies.base import EVICTION, EvictionPolicy, PolicyContext

T = TypeVar("T")


class Hooks(NamedTuple):
    """The optional methods of one policy; None where there is nothing to call."""

    prepare: Callable[[PolicyContext], None]
    miss: Callable[[range], None] | None
    evict: Callable[[range], None]
    expired: Callable[[], Sequence[range]] | None


def hooks(policy: EvictionPolicy) -> Hooks:
    """Return the optional methods of a policy, with what stands in for those that it does not have."""
    found: Any = policy
    return Hooks(
        prepare=getattr(found, "prepare", _needs_nothing),
        miss=getattr(found, "miss", None),
        evict=getattr(found, "evict", found.remove),
        expired=getattr(found, "expired", None),
    )


def name_of(policy: object) -> str:
    """Return what a scenario calls the class of a policy: its name, or package.module:Class."""
    cls = type(policy)
    names = [name for name in EVICTION.names() if EVICTION.get(name) is cls]
    return names[0] if names else f"{cls.__module__}:{cls.__qualname__}"


def known(value: T | None, policy: object, what: str) -> T:
    """Return *value*; where it is None, InputError says that *policy* needs *what*."""
    if value is None:
        raise InputError(f"eviction policy '{name_of(policy)}' needs {what}, which is not known here")
    return value


def _needs_nothing(_: PolicyContext) -> None:
    pass
