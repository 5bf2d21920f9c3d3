"""The checks for values in a policy: one table, `CHECKS`, for values from every source.

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
from types import MappingProxyType
from typing import Any

from grpc_backoff.base_errors import OptionError, near_miss

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
_MOST_CONNECTIONS = 1000
_LEAST_RESOLVE_EVERY = 1.0
_LEAST_IDLE_TIMEOUT = 1.0
_LEAST_QUIET = 0.1
_LONGEST_ANSWER = 3600.0
_LARGEST_FACTOR = 1000
_MOST_TOKENS = 1000
_LEAST_TOKEN = 0.001  # gRPC's cores count in thousandths
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


def resolve_every(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check how often a name is resolved and return it in seconds: at least 1 s, or 0 for never (PO-7)."""
    allowed = f"0 (never), or a finite number of seconds of at least {_LEAST_RESOLVE_EVERY:g}"
    return _time(key, value, unit, allowed, lambda number: number == 0 or _LEAST_RESOLVE_EVERY <= number < math.inf)


def quiet_after(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check how long a connection may be quiet and return it in seconds: at least 0.1 s; 0 means forever (LV-1)."""
    allowed = f"0 (off), or a finite number of seconds of at least {_LEAST_QUIET:g}"
    return _time(key, value, unit, allowed, lambda number: number == 0 or _LEAST_QUIET <= number < math.inf)


def answer_within(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check how long a peer may take to answer a liveness call and return it in seconds (LV-1)."""
    allowed = f"a number of seconds from {_LEAST_QUIET:g} to {_LONGEST_ANSWER:g}"
    return _time(key, value, unit, allowed, lambda number: _LEAST_QUIET <= number <= _LONGEST_ANSWER)


def max_connections(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int:
    """Check the largest number of connections for an endpoint and return it (PO-8)."""
    return _whole(key, value, least=1, most=_MOST_CONNECTIONS)


def streams(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int:
    """Check how many calls a connection carries before another one is opened and return it (PO-8)."""
    return _whole(key, value, least=1)


def steps(key: str, value: object, unit: Unit = Unit.SECONDS) -> tuple[float, ...]:
    """Check a list of waits and return it in seconds; in text, one string may hold them all: "1s 2s 4s"."""
    waits = value.split() if unit is Unit.WRITTEN and isinstance(value, str) else value
    if not isinstance(waits, list | tuple) or not waits:
        raise OptionError(key, value, "a list of at least one wait")
    return tuple(duration(f"{key}[{index}]", wait, unit) for index, wait in enumerate(waits))


def growth(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Check a multiplier of at least 1 and return it."""
    return _number(key, value, "a finite number of at least 1", lambda number: 1 <= number < math.inf)


def fraction(
    key: str,
    value: object,
    _unit: Unit = Unit.SECONDS,
    *,
    allowed: str = "a number between 0 (inclusive) and 1 (exclusive)",
) -> float:
    """Check a fraction in [0, 1) by which a wait may vary and return it."""
    return _number(key, value, allowed, lambda number: 0 <= number < 1)


def factor(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Check a factor that spreads a wait and return it."""
    allowed = f"a number from 0 to {_LARGEST_FACTOR}"
    return _number(key, value, allowed, lambda number: 0 <= number <= _LARGEST_FACTOR)


def max_tokens(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Check the size of a full retry budget in tokens and return it (gRFC A6)."""
    allowed = f"a number above 0 and at most {_MOST_TOKENS}"
    return _number(key, value, allowed, lambda number: 0 < number <= _MOST_TOKENS)


def token_ratio(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
    """Check the number of tokens that a success adds to a retry budget and return it (gRFC A6)."""
    allowed = f"a number from {_LEAST_TOKEN} to {_MOST_TOKENS}"
    return _number(key, value, allowed, lambda number: _LEAST_TOKEN <= number <= _MOST_TOKENS)


def max_exponent(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int | None:
    """Check the exponent at which exponential growth stops and return it; None for no limit."""
    return None if value is None else _whole(key, value, least=0)


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


def flag(key: str, value: object, _unit: Unit = Unit.SECONDS) -> bool:
    """Check a boolean and return it; 1 and 0 are accepted because grpc's options have no booleans."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise OptionError(key, value, "True or False (or 1 or 0)")


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


Check = Callable[[str, object, Unit], Any]
"""A function that takes a key, a value and the unit of times. It returns the checked value, with times in seconds, or
raises OptionError."""

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        # Backoff.
        "delay": duration,
        "no_delay": pause,  # only for `Fixed`
        "max_delay": duration,
        "multiplier": growth,
        "max_exponent": max_exponent,
        "steps": steps,
        "jitter": fraction,
        "then_cap": flag,
        "spread": factor,
        # Connections.
        "min_connect_timeout": duration,
        "jitter_first": flag,
        "stable_after": pause,  # 0 turns it off (CB-8)
        "idle_timeout": idle_timeout,
        # Pools.
        "max_connections": max_connections,
        "streams_per_connection": streams,
        "resolve_every": resolve_every,
        "min_resolve_interval": pause,
        "round_robin": flag,
        "quiet_after": quiet_after,
        "answer_within": answer_within,
        "watch_network": flag,
        # Retries.
        "retry": retries,
        "max_attempts": attempts,
        "codes": codes,
        "timeout": limit,
        "deadline": limit,
        "server_delay_jitter": pause,
        "max_server_delay": limit,
        "never_ran_only": flag,
        # Retry budget.
        "max_tokens": max_tokens,
        "token_ratio": token_ratio,
    }
)
"""The check for each part of a policy, by the part's name. A setting that counts differently from its part, such as
`retry`, has its own check."""


def hold(policy: object, *parts: str, checks: Mapping[str, Check] = CHECKS, **fields: str) -> None:
    """Check the fields of a frozen value that is being constructed and store the results of the checks.

    Args:
        policy: the value.
        parts: the fields whose names are also those of their checks.
        checks: the table of the checks.
        fields: for every other field, the name of its check.

    Raises:
        OptionError: a field has an invalid value; the key names the field.
    """
    for field, part in {**dict(zip(parts, parts, strict=True)), **fields}.items():
        key = f"{type(policy).__name__}.{field}"
        object.__setattr__(policy, field, checks[part](key, getattr(policy, field), Unit.SECONDS))
