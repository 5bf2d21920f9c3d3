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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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

METADATA_KEY = r"(?a)[0-9a-z_.-]+"
"""Matches the keys of metadata that gRPC can send."""

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


if TYPE_CHECKING:
    CheckedT_co = TypeVar("CheckedT_co", covariant=True)
    KindT = TypeVar("KindT", bound=type[object])

    class Check(Protocol[CheckedT_co]):
        """The check for a value."""

        def __call__(self, key: str, value: object, unit: Unit = ..., /) -> CheckedT_co:
            """Return the checked value, with times in seconds; OptionError if it is invalid."""


def number(allowed: str, accept: Callable[[float], bool]) -> Check[float]:
    """Return a check for numbers that are accepted; `allowed` says which."""

    def check(key: str, value: object, _unit: Unit = Unit.SECONDS) -> float:
        number = _float(value)
        if number is None or not accept(number):
            raise OptionError(key, value, allowed)
        return number

    return check


def whole(least: int, most: int | None = None, *, kind: str = "a whole number", beside: str = "") -> Check[int]:
    """Return a check for whole numbers in a range; `kind` and `beside` begin and end the text that says so."""
    allowed = f"{kind} of at least {least}{beside}" if most is None else f"{kind} from {least} to {most}{beside}"

    def check(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int:
        if not isinstance(value, int) or _float(value) is None or value < least or (most is not None and value > most):
            raise OptionError(key, value, allowed)
        return value

    return check


def time(allowed: str, accept: Callable[[float], bool], least_ms: int | None = None, beside: str = "") -> Check[float]:
    """Return a check for times whose seconds are accepted; `allowed` says which.

    As an option of grpc's, the least time is `least_ms` milliseconds; `beside` ends the text that says so.
    """
    in_ms = whole(least_ms or 0, _MAX_INT32, kind="a whole number of milliseconds", beside=beside)

    def check(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
        if unit is Unit.MILLISECONDS and least_ms is not None:
            return in_ms(key, value) / 1000
        seconds, form = _float(value), ""
        if unit is Unit.JSON:
            seconds, form = read_duration(value), ", as a string such as '0.5s'"
        elif unit is Unit.WRITTEN:
            seconds = _read_written(value) if isinstance(value, str) else seconds
            form = ', or a string such as "500ms", "1s" or "2m"'
        if seconds is None or not accept(seconds):
            raise OptionError(key, value, allowed + form)
        return seconds

    return check


def below_1(number: float) -> bool:
    """Return whether a number is in [0, 1)."""
    return 0 <= number < 1


def or_none(check: Check[CheckedT_co]) -> Check[CheckedT_co | None]:
    """Return a check for None, which means no limit, and for what `check` accepts."""
    return lambda key, value, unit=Unit.SECONDS: None if value is None else check(key, value, unit)


duration = time("a finite number of seconds above 0", lambda seconds: 0 < seconds < math.inf, 1)
"""Check a duration above 0 and return it in seconds."""
pause = time("a finite, non-negative number of seconds", lambda seconds: 0 <= seconds < math.inf, 0)
"""Check a duration of 0 or more and return it in seconds."""
limit = or_none(duration)
"""Check an upper limit on a duration and return it in seconds; None for no limit."""
fraction = number("a number between 0 (inclusive) and 1 (exclusive)", below_1)
"""The check for a fraction by which a wait may vary."""
growth = number("a finite number of at least 1", lambda number: 1 <= number < math.inf)
"""The check for a multiplier."""
factor = number("a number from 0 to 1000", lambda number: 0 <= number <= 1000)  # noqa: PLR2004 - as it says
"""The check for a factor that spreads a wait."""
max_exponent = or_none(whole(0))
"""The check for the exponent at which exponential growth stops; None for no limit."""
_idle = time("a number of seconds from 0 to inf (never)", lambda seconds: seconds >= 0, 0, " (never)")


def idle_timeout(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check an idle timeout and return it in seconds: infinity for never, otherwise at least 1 s, as in C-core."""
    seconds = _idle(key, value, unit)
    never = unit is Unit.MILLISECONDS and value == _MAX_INT32
    return math.inf if never else max(seconds, _LEAST_IDLE_TIMEOUT)


def attempt_limit(key: str, value: object, unit: Unit = Unit.SECONDS) -> float:
    """Check the time limit of an attempt and return it in seconds; as grpc's option, 0 means 100 ms, as in C-core."""
    return 0.1 if unit is Unit.MILLISECONDS and type(value) is int and value == 0 else duration(key, value, unit)


def steps(key: str, value: object, unit: Unit = Unit.SECONDS) -> tuple[float, ...]:
    """Check a list of waits and return it in seconds; in text, one string may hold them all: "1s 2s 4s"."""
    waits = value.split() if unit is Unit.WRITTEN and isinstance(value, str) else value
    if not isinstance(waits, list | tuple) or not waits:
        raise OptionError(key, value, "a list of at least one wait")
    return tuple(duration(f"{key}[{index}]", wait, unit) for index, wait in enumerate(waits))


def attempts(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int | None:
    """Check the total number of attempts, including the first, and return it; None for no limit (RT-1)."""
    if value is None or value == "unlimited":  # neither TOML nor a policy string can express None
        return None
    return whole(1, beside=' (or "unlimited")')(key, value)


def retries(key: str, value: object, _unit: Unit = Unit.SECONDS) -> int:
    """Check the number of retries after the first attempt and return the total number of attempts (RT-1)."""
    return 1 + whole(0)(key, value)


def codes(key: str, value: object, unit: Unit = Unit.SECONDS) -> frozenset[str]:
    """Check status code names and return them in upper case; except in JSON, one string may hold several (BP-2)."""
    names = value.replace(",", " ").split() if isinstance(value, str) and unit is not Unit.JSON else value
    if not isinstance(names, list | tuple | frozenset | set) or not names:
        raise OptionError(key, value, "a list of at least one status code")
    return frozenset(_code(key, name) for name in names)


def flag(key: str, value: object, _unit: Unit = Unit.SECONDS) -> bool:
    """Check a boolean and return it; 1 and 0 are accepted because grpc's options have no booleans."""
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise OptionError(key, value, "a boolean (or 1 or 0)")


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


def _float(value: object) -> float | None:
    """Return a number as a float; None for any other value, and for a whole number that is too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _read_written(text: str) -> float | None:
    """Return the seconds of a time such as "500ms"; None if it is not valid."""
    written = re.fullmatch(_WRITTEN, text)
    if written is None:
        return None
    # Divide, as for a channel option in milliseconds: a float cannot represent 0.001 exactly, so multiplying by it
    # would give a different result.
    number, unit = float(written["number"]), written["unit"]
    return number / 1000 if unit == "ms" else number * _SECONDS[unit]


def read_duration(value: object) -> float | None:
    """Parse a protobuf Duration in JSON, such as "1.5s", and return its seconds; None if it is not valid."""
    matched = re.fullmatch(_JSON, value) if isinstance(value, str) else None
    return None if matched is None else float(matched[1] + (matched[2] or ""))


def checked(checks: Mapping[str, Check[Any]]) -> Callable[[KindT], KindT]:
    """Make a frozen dataclass check its fields when it is created; the arguments and errors are those of `hold`."""

    def with_checks(kind: KindT) -> KindT:
        kind.__post_init__ = lambda policy: hold(policy, checks)  # type: ignore[attr-defined]
        return kind

    return with_checks


def hold(policy: DataclassInstance, checks: Mapping[str, Check[Any]]) -> None:
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
