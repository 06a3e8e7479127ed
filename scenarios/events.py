"""What a scenario may say of events: parts that are lost and come back, replicas that restart, come and go."""

from typing import Final, Literal

from pydantic import Field, model_validator

from scenarios.quantity import BytesPerS, Part, Seconds, refuse

_ALLOWED: Final = {
    "drive": {"tier", "number", "instance", "lasts", "rebuild_bandwidth"},
    "port": {"tier", "number", "instance", "lasts"},
    "target": {"tier", "number", "instance", "lasts"},
    "restart": {"replica", "node", "lasts"},
    "drain": {"replica"},
    "add": {"replica", "lasts"},
}
_NEEDED: Final = {
    "drive": ("tier",),
    "port": ("tier",),
    "target": ("tier",),
    "restart": ("lasts",),
    "drain": ("replica",),
    "add": ("replica", "lasts"),
}


class Event(Part):
    """One thing that happens at a time of the run, such as ``{at: 60 s, kind: drive, tier: fabric, lasts: 5 min}``."""

    at: Seconds = Field(description="When, counted from the beginning of the run [s]; nothing happens after its end.")
    kind: Literal["drive", "port", "target", "restart", "drain", "add"] = Field(
        description="drive, port, target (one of a tier's `count` boxes): lost, and by its layout the chunks on "
        "it (a target's are out of reach until it is back). restart: a replica or a node loses what its memory holds. "
        "drain: a replica takes no more requests. add: a replica of cluster.replicas that was not there before starts."
    )
    tier: str | None = Field(default=None, description="Whose drive, port or target is lost.")
    number: int = Field(default=1, ge=1, description="How many of them at once.")
    instance: int = Field(
        default=0, ge=0, description="Of which node or replica, where each has a tier of that name to itself."
    )
    replica: int | None = Field(default=None, ge=0, description="Which replica, counted from 0.")
    node: int | None = Field(default=None, ge=0, description="restart: which node, with all its replicas.")
    lasts: Seconds | None = Field(
        default=None,
        description="Until what was lost is replaced or back, or a restarted or added replica serves; null: for good.",
    )
    rebuild_bandwidth: BytesPerS | None = Field(
        default=None,
        gt=0,
        description="drive: limit of writing what a replaced drive has to hold; null: the drives' own. A tier whose "
        "layout has no parity has nothing to rebuild from.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "Event":
        allowed = _ALLOWED[self.kind]
        for key in ("tier", "number", "instance", "replica", "node", "lasts", "rebuild_bandwidth"):
            # A scenario as resolved holds all keys, at their defaults.
            if key not in allowed and getattr(self, key) != type(self).model_fields[key].default:
                takes = ", ".join(sorted(allowed))
                raise refuse((key,), f"is not for kind: {self.kind}, which takes at and {takes}")
        for key in _NEEDED[self.kind]:
            if getattr(self, key) is None:
                raise refuse((key,), f"is missing; kind: {self.kind} needs it")
        if self.kind == "restart" and (self.replica is None) == (self.node is None):
            raise refuse(("replica",), "or node: give exactly one of them")
        return self
