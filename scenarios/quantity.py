"""Field types of a scenario: quantities written as '0.5 TB', '200 Gbit/s' or '10 us', held in SI units."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from models.errors import LocatedError
from models.units import parse_quantity


class Part(BaseModel):
    """Base of every part of a scenario: unknown keys refused, no conversion between types, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _leave_out_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A null that nobody wrote says nothing; one that was written (`trace: null`) must survive a round trip.
        return {key: value for key, value in handler(self).items() if value is not None or key in self.model_fields_set}


def refuse(path: Sequence[str | int], problem: str) -> PydanticCustomError:
    """Return the error of a check over several keys, for a validator to raise; *path* begins at its part."""
    return PydanticCustomError("cross_check", "{problem}", {"path": list(path), "problem": problem})


@dataclass(frozen=True, slots=True)
class Dimension:
    """Beside the type of a field: of which dimension of `models.units` its numbers are."""

    name: str


def _quantity(dimension: str, *, whole: bool = False) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if whole and type(value) is int:
            return value  # a float holds whole numbers only up to 2**53
        try:
            number = parse_quantity(value, dimension)
        except LocatedError as error:
            raise ValueError(error.problem) from None
        return round(number) if whole else number

    return parse


def _json_schema(*examples: str, positive: bool = False) -> WithJsonSchema:
    bound = {"exclusiveMinimum": 0} if positive else {"minimum": 0}
    return WithJsonSchema({"anyOf": [{"type": "number", **bound}, {"type": "string"}], "examples": list(examples)})


def _as_tuple(value: Any) -> Any:
    # Strict validation refuses a YAML list where an immutable tuple is held.
    return tuple(value) if isinstance(value, list) else value


Bytes = Annotated[
    int,
    Field(ge=0),
    Dimension("bytes"),
    BeforeValidator(_quantity("bytes", whole=True)),
    _json_schema("0.5 TB", "64 GiB", "500000000000"),
]
Seconds = Annotated[
    float,
    Field(ge=0),
    Dimension("seconds"),
    BeforeValidator(_quantity("seconds")),
    _json_schema("10 us", "2 s", "0.002"),
]
BytesPerS = Annotated[
    float,
    Field(gt=0),
    Dimension("bytes_per_s"),
    BeforeValidator(_quantity("bytes_per_s")),
    _json_schema("200 Gbit/s", "6.8 GB/s", positive=True),
]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
AS_TUPLE = BeforeValidator(_as_tuple)
