"""The checks for values in a policy, from every source.

Values come from Python (`hold`), channel options, the file, policy strings and service configs, and an invalid value
causes the same error text wherever it comes from. Each check takes the name under which the user knows the value, and
raises an `OptionError` with that name, the value and what was expected (CH-10, BP-4). This module defines no defaults
and reads no input.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.base_errors import OptionError, near_miss

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STATUS_CODES = (
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""The names of gRPC's status codes for failed calls, in the order of their numbers from 1."""

_MAX_INT32 = 2**31 - 1
_LEAST_IDLE_TIMEOUT = 1.0
_WRITTEN = r"(?a)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)?"
_JSON = r"(\d{1,12})(\.\d{1,9})?s"  # the JSON form of google.protobuf.Duration
_SECONDS = {"s": 1, None: 1, "m": 60, "h": 3600, "d": 86_400}


class Unit(enum.Enum):
    """The notation in which a source gives times. Checked values are always in seconds."""

    SECONDS = enum.auto()
    """Seconds, as in Python and in this library's own channel options."""
    MILLISECONDS = enum.auto()
    """Milliseconds, as in grpc's options: a whole number that fits in 32 bits."""
    WRITTEN = enum.auto()
    """Times as written in a file or on the command line: a number of seconds, or "500ms", "1s", "2m", "1h", "1d"."""
    JSON = enum.auto()
    """Times as written in a service config: protobuf's Duration in JSON, such as "1.5s"."""


Check = Callable[[str, object, Unit], Any]
"""A function that takes a key, a value and the unit of times. It returns the checked value, with times in seconds, or
raises OptionError."""


def duration(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check a duration above 0 and return it in seconds."""
    if unit is Unit.MILLISECONDS:
        allowed = f"a whole number of milliseconds from 1 to {_MAX_INT32}"
        return _number(key, value, allowed, lambda number: 0 < number <= _MAX_INT32, int) / 1000
    return _time(key, value, unit, "a finite number of seconds above 0", lambda number: 0 < number < math.inf)


def limit(key: str, value: object, unit: Unit = Unit.SECONDS) -> float | None:
    """Check an upper limit on a duration and return it in seconds; None for no limit."""
    return None if value is None else duration(key, value, unit)


def pause(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check a duration of 0 or more and return it in seconds."""
    if unit is Unit.MILLISECONDS:
        allowed = f"a whole number of milliseconds from 0 to {_MAX_INT32}"
        return _number(key, value, allowed, lambda number: 0 <= number <= _MAX_INT32, int) / 1000
    return _time(key, value, unit, "a finite, non-negative number of seconds", lambda number: 0 <= number < math.inf)


def idle_timeout(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check an idle timeout and return it in seconds: infinity for never, otherwise at least 1 s, as in C-core."""
    if unit is Unit.MILLISECONDS:
        allowed = f"a whole number of milliseconds from 0 to {_MAX_INT32} (never)"
        number = _number(key, value, allowed, lambda number: 0 <= number <= _MAX_INT32, int)
        seconds = math.inf if number == _MAX_INT32 else number / 1000
    else:
        seconds = _time(key, value, unit, "a number of seconds from 0 to inf (never)", lambda number: number >= 0)
    return max(seconds, _LEAST_IDLE_TIMEOUT)


def steps(key: str, value: object, unit: Unit = Unit.SECONDS) -> tuple[float, ...]:
    """Check a list of waits and return it in seconds; in text, one string may hold them all: "1s 2s 4s"."""
    waits = value.split() if unit is Unit.WRITTEN and isinstance(value, str) else value
    if not isinstance(waits, list | tuple) or not waits:
        raise OptionError(key, value, "a list of at least one wait")
    return tuple(duration(f"{key}[{index}]", wait, unit) for index, wait in enumerate(waits))


def fraction(
    key: str,
    value: object,
    _unit: Unit = Unit.SECONDS,
    *,
    allowed: str = "a number between 0 (inclusive) and 1 (exclusive)",
) -> float:
    """Check a fraction in [0, 1) by which a wait may vary and return it."""
    return _number(key, value, allowed, lambda number: 0 <= number < 1)


def attempts(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int | None:
    """Check the total number of attempts, including the first, and return it; None for no limit (RT-1)."""
    if value is None or value == "unlimited":  # neither TOML nor a policy string can express None
        return None
    return _whole(key, value, least=1, beside=' (or "unlimited")')


def retries(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int:
    """Check the number of retries after the first attempt and return the total number of attempts (RT-1)."""
    return 1 + _whole(key, value, least=0)


def codes(key: str, value: object, unit: Unit = Unit.SECONDS) -> frozenset[str]:
    """Check status code names and return them in upper case; except in JSON, one string may hold several."""
    names = value.split() if isinstance(value, str) and unit is not Unit.JSON else value
    if not isinstance(names, list | tuple | frozenset | set) or not names:
        raise OptionError(key, value, "a list of at least one status code")
    return frozenset(_code(key, name) for name in names)


def number(allowed: str, accept: Callable[[float], bool]) -> Check:
    """Return a check for numbers that are accepted; `allowed` says which."""
    return lambda key, value, _unit: _number(key, value, allowed, accept)


def time(allowed: str, accept: Callable[[float], bool]) -> Check:
    """Return a check for times whose seconds are accepted; `allowed` says which."""
    return lambda key, value, unit: _time(key, value, unit, allowed, accept)


def whole(least: int, most: float = math.inf) -> Check:
    """Return a check for whole numbers in a range."""
    return lambda key, value, _unit: _whole(key, value, least, most=most)


growth = number("a finite number of at least 1", lambda number: 1 <= number < math.inf)
"""The check for a multiplier."""
factor = number("a number from 0 to 1000", lambda number: 0 <= number <= 1000)  # noqa: PLR2004 - as it says
"""The check for a factor that spreads a wait."""


def max_exponent(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int | None:
    """Check the exponent at which exponential growth stops and return it; None for no limit."""
    return None if value is None else _whole(key, value, least=0)


def flag(key: str, value: object, _unit: Unit = Unit.SECONDS) -> bool:
    """Check a boolean and return it; 1 and 0 are accepted because grpc's options have no booleans."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise OptionError(key, value, "True or False (or 1 or 0)")


def name(key: str, value: object, _unit: Unit = Unit.SECONDS) -> str:
    """Check the name of a policy and return it; whether there is such a policy is checked when it is looked up."""
    if isinstance(value, str):
        return value
    raise OptionError(key, value, "the name of a policy")


def choice(key: str, value: object, choices: Iterable[str]) -> str:
    """Check that a value is one of these names and return it."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    *others, last = map(repr, choices)
    raise OptionError(key, value, f"{', '.join(others)} or {last}")


def _code(key: str, name: object) -> str:
    if isinstance(name, str) and name.upper() in STATUS_CODES:
        return name.upper()
    meant = near_miss(name, {code.lower(): code for code in STATUS_CODES}) if isinstance(name, str) else None
    if meant is not None:
        raise OptionError(key, name, "a status code", meant)
    return choice(key, name, STATUS_CODES)


def _whole(key: str, value: object, least: int, beside: str = "", most: float = math.inf) -> int:
    allowed = f"a whole number of at least {least}{beside}"
    if most < math.inf:
        allowed = f"a whole number from {least} to {most:g}"
    if not isinstance(value, int):
        raise OptionError(key, value, allowed)
    _number(key, value, allowed, lambda number: least <= number <= most)
    return value


def _time(key: str, value: object, unit: Unit, allowed: str, accept: Callable[[float], bool]) -> float:
    if unit is Unit.JSON:
        read = read_duration(value)
        if read is None or not accept(read):
            raise OptionError(key, value, f"{allowed}, as a string such as '0.5s'")
        return read
    if unit is not Unit.WRITTEN:
        return _number(key, value, allowed, accept)
    allowed = f'{allowed}, or a string such as "500ms", "1s" or "2m"'
    if not isinstance(value, str):
        return _number(key, value, allowed, accept)
    written = re.fullmatch(_WRITTEN, value)
    if written is None:
        raise OptionError(key, value, allowed)
    number, unit_of = float(written["number"]), written["unit"]
    # Divide, as for a channel option in milliseconds: a float cannot represent 0.001 exactly, so multiplying by it
    # would give a different result.
    seconds = number / 1000 if unit_of == "ms" else number * _SECONDS[unit_of]
    if not accept(seconds):
        raise OptionError(key, value, allowed)
    return seconds


def read_duration(value: object) -> float | None:
    """Parse a protobuf Duration in JSON, such as "1.5s", and return its seconds; None if it is not valid."""
    matched = re.fullmatch(_JSON, value) if isinstance(value, str) else None
    return None if matched is None else float(matched[1] + (matched[2] or ""))


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
        number = math.nan  # a whole number too large for a float; NaN fails every comparison
    if not accept(number):
        raise OptionError(key, value, allowed)
    return number


def hold(policy: DataclassInstance, checks: Mapping[str, Check]) -> None:
    """Check the fields of a frozen dataclass that is being constructed and store the results of the checks.

    Args:
        policy: the dataclass.
        checks: the checks, by field. Those for other fields are ignored, and fields without one are left alone.

    Raises:
        OptionError: a field has an invalid value; the key names the field.
    """
    for field in policy.__dataclass_fields__:
        if (check := checks.get(field)) is not None:
            checked = check(f"{type(policy).__name__}.{field}", getattr(policy, field), Unit.SECONDS)
            object.__setattr__(policy, field, checked)
