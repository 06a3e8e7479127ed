"""Named kinds of plug-in: one decorator adds a class, and every list, scenario and contract test sees it."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from models.errors import InputError, UnknownNameError, did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type[Any])


class Registry(Generic[T]):
    """The classes of one *kind* ("eviction policy", "router", ...) by name.

    Parameters
    ----------
    kind : str
        What one entry is called in messages.
    package : str or None
        Package whose modules are imported at the first look-up, so that a new file in it registers itself.
    requires : sequence of str
        Methods that a class must have; checked when it is registered and when it is loaded from elsewhere.
    supplied : sequence of str
        Arguments that the run gives to a class that has them, such as its random numbers; no scenario sets them.
    """

    def __init__(
        self, kind: str, *, package: str | None = None, requires: Sequence[str] = (), supplied: Sequence[str] = ()
    ) -> None:
        self.kind = kind
        self._classes: dict[str, type[T]] = {}
        self._package = package
        self._requires = tuple(requires)
        self.supplied = frozenset(supplied)

    def register(self, name: str) -> Callable[[C], C]:
        """Return a class decorator that adds the class as *name*.

        Raises ValueError if the name is taken, TypeError if the class lacks a required method.
        """

        def add(cls: C) -> C:
            if name in self._classes:
                holder = self._classes[name].__qualname__
                raise ValueError(f"{self.kind} '{name}' is registered twice: {holder} and {cls.__qualname__}")
            missing = self._missing_methods(cls)
            if missing:
                raise TypeError(f"{self.kind} '{name}' ({cls.__qualname__}) lacks {', '.join(missing)}()")
            self._classes[name] = cast("type[T]", cls)
            return cls

        return add

    def names(self) -> list[str]:
        """Return the registered names in alphabetical order."""
        self._discover()
        return sorted(self._classes)

    def describe(self, name: str) -> str:
        """Return the first line of the docstring of the class called *name*; raises what :meth:`get` raises."""
        return (self.get(name).__doc__ or "").strip().partition("\n")[0]

    def get(self, name: str) -> type[T]:
        """Return the class called *name*, or the one that ``package.module:Class`` points at.

        Raises UnknownNameError for a name that is not registered, InputError for a class that cannot be loaded.
        """
        if ":" in name:
            return self._load(name)
        self._discover()
        if name not in self._classes:
            raise UnknownNameError(self.kind, name, self.names())
        return self._classes[name]

    def create(self, name: str, **parameters: object) -> T:
        """Return a new instance of the class called *name*.

        Raises what :meth:`get` raises, and InputError for a parameter that the class does not have or that is missing.
        """
        cls = self.get(name)
        allowed = inspect.signature(cls).parameters
        listed = f"(allowed: {', '.join(allowed) or 'none'})"
        for key in parameters:
            if key not in allowed:
                hint = did_you_mean(key, allowed)
                raise InputError(f"{self.kind} '{name}' has no parameter '{key}'{hint} {listed}")
        for key, parameter in allowed.items():
            if key not in parameters and parameter.default is parameter.empty:
                raise InputError(f"{self.kind} '{name}' needs the parameter '{key}' {listed}")
        return cls(**parameters)

    def _discover(self) -> None:
        """Import the modules of the package once; they register themselves."""
        if self._package is None:
            return
        # Cleared first: a module that looks something up while it is imported must not start this again.
        package, self._package = self._package, None
        try:
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
                importlib.import_module(f"{package}.{module.name}")
        except BaseException:
            self._package = package  # half a list would hide the failure from the next look-up
            raise

    def _load(self, reference: str) -> type[T]:
        """Return the class at ``package.module:Class``."""
        module_name, _, class_name = reference.partition(":")
        if not all(part.isidentifier() for part in (*module_name.split("."), *class_name.split("."))):
            raise InputError(f"{self.kind} '{reference}' is not of the form package.module:Class")
        try:
            found: Any = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            # A user's module may fail in any way while it is imported; each way means that the name is of no use.
            reason = f"cannot import {module_name}: {type(error).__name__}: {error}"
            raise InputError(f"{self.kind} '{reference}': {reason}") from error
        for part in class_name.split("."):
            if not hasattr(found, part):
                raise InputError(f"{self.kind} '{reference}': {module_name} has no {class_name}")
            found = getattr(found, part)
        if not isinstance(found, type):
            raise InputError(f"{self.kind} '{reference}': {class_name} is not a class")
        missing = self._missing_methods(found)
        if missing:
            raise InputError(f"{self.kind} '{reference}': {class_name} lacks {', '.join(missing)}()")
        return cast("type[T]", found)

    def _missing_methods(self, cls: type[Any]) -> list[str]:
        return [name for name in self._requires if getattr(cls, name, None) is None]
