"""The prefix tree: which chunk continues which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sim.tiers.attached import KEY_BITS


class Parents(Mapping[int, int]):
    """Each chunk's predecessor in its chain, the same for every replica's view of a tier."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def note(self, chunks: Sequence[int]) -> None:
        """Note a prompt's chain."""
        self._parents.update(zip(chunks[1:], chunks, strict=False))

    def __getitem__(self, key: int) -> int:
        view = key >> KEY_BITS << KEY_BITS
        return self._parents[key - view] + view

    def __iter__(self) -> Iterator[int]:
        return iter(self._parents)

    def __len__(self) -> int:
        return len(self._parents)
