"""Policies that think chunk by chunk: runs in, keys inside."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator


class ChunkPolicy(ABC):
    """An eviction policy over single chunks; a class below it says what one chunk does and never sees a run.

    The chunks of a run count one after another, in its order. Only the methods with an underscore are to be written;
    ``_evict`` and ``_miss`` may be left out.
    """

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        for key in run:
            self._insert(key)

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        for key in run:
            self._touch(key)

    def remove(self, run: range) -> None:
        """Forget dropped chunks; KeyError if one is not resident."""
        for key in run:
            self._remove(key)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room; KeyError if one is not resident."""
        for key in run:
            self._evict(key)

    def miss(self, run: range) -> None:
        """Note that room is about to be made for chunks that are not resident."""
        for key in run:
            self._miss(key)

    def victims(self) -> Iterator[range]:
        """Yield every resident chunk once, best victim first."""
        return (range(key, key + 1) for key in self._victims())

    @abstractmethod
    def _insert(self, key: int) -> None:
        """Make an absent chunk resident; that counts as a use."""

    @abstractmethod
    def _touch(self, key: int) -> None:
        """Note another use of a resident chunk."""

    @abstractmethod
    def _remove(self, key: int) -> None:
        """Forget a resident chunk that was dropped; KeyError where it is not resident."""

    @abstractmethod
    def _victims(self) -> Iterable[int]:
        """Return the resident chunks in the order in which they would go; must not change anything."""

    def _evict(self, key: int) -> None:
        """Forget a resident chunk that went to make room."""
        self._remove(key)

    def _miss(self, key: int) -> None:  # noqa: B027 - most policies do not care
        """Note that a chunk that is not resident was asked for."""
