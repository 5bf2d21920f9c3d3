"""Which numbers a policy may hold. Every source of them, from a dataclass to a file, is held to these same functions.

Each takes the name by which its user knows the value, and raises an `OptionError` that says that name, the value and
what is allowed (CH-10, BP-4). No default stands here, and nothing is read from anywhere.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable

from grpc_backoff.errors import OptionError

__all__ = ["Unit", "choice", "duration", "flag", "fraction", "growth", "idle_timeout", "stable_after"]

_MAX_INT32 = 2**31 - 1
_LEAST_IDLE_TIMEOUT = 1.0


class Unit(enum.Enum):
    """What a source counts time in. Checked values are always seconds."""

    SECONDS = enum.auto()
    MILLISECONDS = enum.auto()
    """As grpc's options: whole, and no more than 32 bits hold."""


def duration(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Return a length of time in seconds."""
    if unit is Unit.MILLISECONDS:
        allowed = f"a whole number of milliseconds from 1 to {_MAX_INT32} is"
        return _number(key, value, allowed, lambda number: 0 < number <= _MAX_INT32, int) / 1000
    return _number(key, value, "a finite number of seconds above 0 is", lambda number: 0 < number < math.inf)


def idle_timeout(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Return an idle timeout in seconds: infinite for never, and at least the second that C-core makes of less."""
    if unit is Unit.MILLISECONDS:
        allowed = f"a whole number of milliseconds from 0 to {_MAX_INT32} (never) is"
        number = _number(key, value, allowed, lambda number: 0 <= number <= _MAX_INT32, int)
        seconds = math.inf if number == _MAX_INT32 else number / 1000
    else:
        seconds = _number(key, value, "a number of seconds from 0 to inf (never) is", lambda number: number >= 0)
    return max(seconds, _LEAST_IDLE_TIMEOUT)


def stable_after(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Return the seconds that a connection has to live to count as one; 0 is off (CB-8)."""
    return _number(key, value, "a finite number of seconds of at least 0 is", lambda number: 0 <= number < math.inf)


def growth(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Return a multiplier."""
    return _number(key, value, "a finite number of at least 1 is", lambda number: 1 <= number < math.inf)


def fraction(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Return a jitter: the part of itself by which a value may move."""
    return _number(key, value, "a number from 0 to below 1 is", lambda number: 0 <= number < 1)


def flag(key: str, value: object, _unit: Unit = Unit.SECONDS) -> bool:
    """Return a yes or no; grpc's options have no booleans, so 1 and 0 do as well."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise OptionError(key, value, "True or False (or 1 or 0) is")


def choice(key: str, value: object, choices: Iterable[str]) -> str:
    """Return one of a few names."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    raise OptionError(key, value, f"{' or '.join(map(repr, choices))} is")


def _number(
    key: str,
    value: object,
    allowed: str,
    accept: Callable[[float], bool],
    kinds: type[int] | tuple[type[int], type[float]] = (int, float),
) -> float:
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise OptionError(key, value, allowed)
    try:
        number = float(value)
    except OverflowError:
        number = math.nan  # a whole number larger than any float; NaN passes no comparison
    if not accept(number):
        raise OptionError(key, value, allowed)
    return number
