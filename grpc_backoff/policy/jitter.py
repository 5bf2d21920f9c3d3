"""Jitter: spreads waits at random, so that clients that failed together do not come back together.

A jitter turns a strategy's value and a cap into a `Window`: the interval from which the wait is drawn uniformly, and
the limit on the result. All waits of this library are drawn from windows.

It matters whether jitter is applied before or after the cap. If it comes first, it has no effect once the value is far
above the cap, and the clients are synchronized again. Each jitter here follows the document that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.proportional import THEN_CAP, Jitter, Proportional, Window, Written


@dataclass(frozen=True, slots=True)
class NoJitter(Written):
    """No jitter: the wait is the capped value itself."""

    name: ClassVar[str] = "none"
    form: ClassVar[str] = "none"

    def window(self, value: float, cap: float) -> Window:
        """Return a window of no width at the capped value; `value` and `cap` are in seconds."""
        return Window(min(value, cap), 0.0, cap)


@dataclass(frozen=True, slots=True)
class Scaled(Written):
    """Multiplies the value by a random number from `low` to `high`, then caps it."""

    name: ClassVar[str] = "scaled"
    form: ClassVar[str] = "scaled(LOW, HIGH)"
    low: float
    high: float

    def __post_init__(self) -> None:
        """Check that the factors are not negative and in order; OptionError if they are not."""
        checks.hold(self, {"low": checks.factor, "high": checks.factor})
        if self.high < self.low or not self.high:
            raise OptionError("Scaled.high", self.high, f"a number above 0 and at least Scaled.low ({self.low})")

    def window(self, value: float, cap: float) -> Window:
        """Return the scaled window, in seconds; the cap may truncate it or reduce it to a point."""
        low = value * self.low
        return Window(low, value * (self.high - self.low), cap) if low < cap else Window(cap, 0.0, cap)


@dataclass(frozen=True, slots=True)
@checks.checked({"fraction": checks.factor})
class Additive(Written):
    """Adds up to `fraction` of the value, then caps the result; the fraction is not negative."""

    name: ClassVar[str] = "additive"
    form: ClassVar[str] = "additive(PART)"
    fraction: float

    def window(self, value: float, cap: float) -> Window:
        """Return a window that starts at the value, in seconds; the cap may truncate it or reduce it to a point."""
        return Window(value, value * self.fraction, cap) if value < cap else Window(cap, 0.0, cap)


@dataclass(frozen=True, slots=True)
class Full(Written):
    """A random wait from 0 to the capped value."""

    name: ClassVar[str] = "full"
    form: ClassVar[str] = "full"

    def window(self, value: float, cap: float) -> Window:
        """Return a window from 0 to the capped value, in seconds."""
        return Window(0.0, min(value, cap), cap)


@dataclass(frozen=True, slots=True)
class Equal(Written):
    """Half of the capped value, plus a random part of the other half."""

    name: ClassVar[str] = "equal"
    form: ClassVar[str] = "equal"

    def window(self, value: float, cap: float) -> Window:
        """Return a window from half of the capped value to the whole capped value, in seconds."""
        half = min(value, cap) / 2
        return Window(half, half, cap)


JITTERS: tuple[type[NoJitter | Proportional | Scaled | Additive | Full | Equal], ...] = (
    NoJitter,
    Proportional,
    Scaled,
    Additive,
    Full,
    Equal,
)
"""All kinds of jitter. Policies written as text refer to them by `name`."""

_KINDS = {kind.name: kind for kind in JITTERS}
_ALLOWED = f"a number between 0 (inclusive) and 1 (exclusive), or one of: {', '.join(kind.form for kind in JITTERS)}"
_CALL = r"(?P<name>[a-z]+)\s*(?:\((?P<arguments>[^()]*)\))?"


def parse_jitter(key: str, value: object, _unit: Unit = Unit.SECONDS) -> Jitter:
    """Parse a jitter; a number means proportional jitter (CB-5).

    Raises:
        OptionError: the value is not a jitter; the error has `key` and the forms that are allowed.
    """
    if not isinstance(value, str):
        return Proportional(checks.number(_ALLOWED, checks.below_1)(key, value))
    matched = re.fullmatch(_CALL, value.strip())
    kind: Callable[..., Jitter] | None = _KINDS.get(matched["name"]) if matched else None
    if matched is None or kind is None:
        raise OptionError(key, value, _ALLOWED)
    inside = (matched["arguments"] or "").strip()
    arguments = [_argument(part.strip()) for part in inside.split(",")] if inside else []
    try:
        return kind(*arguments)
    except (TypeError, OptionError) as error:  # the wrong number of arguments, or a wrong argument
        where = f", where {_as_in_form(error)}" if isinstance(error, OptionError) else ""
        raise OptionError(key, value, f"{_KINDS[matched['name']].form}{where}") from None


def _as_in_form(error: OptionError) -> str:
    """Return what an argument of the form must be, with the form's own name for it, such as LOW."""
    field = error.key.rpartition(".")[2]
    return f"{_IN_FORMS.get(field, field)} is {error.allowed.replace('Scaled.low', _IN_FORMS['low'])}"


_IN_FORMS = {"fraction": "PART", "low": "LOW", "high": "HIGH"}


def _argument(text: str) -> object:
    if text == THEN_CAP:
        return True
    try:
        return float(text)
    except ValueError:
        return text  # rejected when the value is checked
