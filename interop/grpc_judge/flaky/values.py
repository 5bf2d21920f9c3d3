"""The kinds of values that behaviours have: which values are allowed, and how scripts write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from h2.errors import ErrorCodes

__all__ = ["Kind", "kind_of"]

_HIGHEST = 2**31 - 1  # the maximum of a stream id and of a SETTINGS value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    Attributes:
        allowed: a description of the allowed values.
        fits: returns whether a value is of this kind.
        read: parses a value; raises ValueError or KeyError for any other text.
        write: formats a value; the inverse of `read`.
    """

    allowed: str
    fits: Callable[[Any], bool]
    read: Callable[[str], object]
    write: Callable[[Any], str]


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value <= _HIGHEST


def _seconds(value: object) -> bool:
    return type(value) in {int, float} and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]


_KINDS = {
    bool: Kind(
        allowed="true or false",
        fits=lambda value: type(value) is bool,
        read={"true": True, "false": False}.__getitem__,
        write=lambda value: str(value).lower(),
    ),
    int: Kind(allowed=f"a whole number from 0 to {_HIGHEST}", fits=_whole, read=int, write=str),
    float: Kind(allowed="a number of seconds, 0 or more", fits=_seconds, read=float, write=repr),
    ErrorCodes: Kind(
        allowed=f"one of {', '.join(ErrorCodes.__members__)}",
        fits=lambda value: type(value) is ErrorCodes,
        read=ErrorCodes.__getitem__,
        write=lambda value: value.name,
    ),
}


def kind_of(default: object) -> Kind:
    """Return the kind of value for a field with this default."""
    return _KINDS[type(default)]
