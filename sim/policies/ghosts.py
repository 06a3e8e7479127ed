"""Names of chunks that went, remembered for a while."""

from collections import OrderedDict


class Ghosts:
    """The last chunks that went, at most ``limit``, oldest first out.

    One that is asked for again (:meth:`recall`) has left the list, and is remembered as recalled until it is inserted
    or as many others have been recalled.
    """

    __slots__ = ("keys", "limit", "recalled")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.keys: OrderedDict[int, None] = OrderedDict()
        self.recalled: OrderedDict[int, None] = OrderedDict()

    def add(self, key: int) -> None:
        """Remember a chunk that went now."""
        if self.limit < 1:
            return
        self.keys[key] = None
        if len(self.keys) > self.limit:
            self.keys.popitem(last=False)

    def recall(self, run: range) -> None:
        """Take those of the chunks that are asked for out of the list that are there."""
        keys = self.keys
        for key in run:
            if key in keys:
                del keys[key]
                self.recalled[key] = None
                if len(self.recalled) > self.limit:
                    self.recalled.popitem(last=False)

    def was_recalled(self, key: int) -> bool:
        """Whether a chunk that is inserted now is a ghost, recalled or not; it is none afterwards."""
        if key in self.recalled:
            del self.recalled[key]
            self.keys.pop(key, None)
            return True
        if key in self.keys:
            del self.keys[key]
            return True
        return False
