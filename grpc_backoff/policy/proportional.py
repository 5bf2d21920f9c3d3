"""The jitter of a channel without options: proportional, and what each jitter is.

The others are in `jitter.py`, which says more.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import ClassVar, Protocol

from grpc_backoff.base.record import NamedTuple, dataclass
from grpc_backoff.policy import checks


class Window(NamedTuple):
    """A uniform draw from `low` to `low + width` seconds, cut off at `limit`."""

    low: float
    width: float
    limit: float

    def at(self, fraction: float) -> float:
        """Return the wait, in seconds, at this fraction of the window: 0 is the shortest wait, 1 the longest."""
        wait = self.low + self.width * fraction
        return wait if wait < self.limit else self.limit  # noqa: FURB136 - calling min() would double the cost

    @property
    def mean(self) -> float:
        """The mean of the waits, in seconds; those that the limit cuts off all count as the limit."""
        room = self.limit - self.low
        if room >= self.width:
            return self.low + self.width / 2
        return self.low + room * (1 - room / self.width / 2)


class Jitter(Protocol):
    """A way to spread waits; `name` is what files and policy strings call it."""

    name: ClassVar[str]

    def window(self, value: float, cap: float) -> Window:
        """Return the window for a wait, in seconds; `value` is finite and not yet capped."""
        ...


class Written:
    """Formats a jitter in the syntax that `parse_jitter` accepts, such as `scaled(0.5, 1.5)`."""

    __slots__ = ()
    name: ClassVar[str]

    def __str__(self) -> str:
        """Return the name, with the arguments if there are any."""
        values = [getattr(self, part.name) for part in fields(self)]  # type: ignore[arg-type] # each jitter is a dataclass
        words = [THEN_CAP if value is True else str(value).removesuffix(".0") for value in values if value is not False]
        return f"{self.name}({', '.join(words)})" if words else self.name


THEN_CAP = "then_cap"


@dataclass(frozen=True, slots=True)
@checks.checked({"fraction": checks.fraction, "then_cap": checks.flag})
class Proportional(Written):
    """Adds or subtracts up to `fraction` of the capped value; the fraction is in [0, 1).

    The result may exceed the cap, as in gRPC's connection backoff (CB-5), unless `then_cap` is set.
    """

    name: ClassVar[str] = "proportional"
    form: ClassVar[str] = "proportional(PART[, then_cap])"
    fraction: float
    then_cap: bool = False

    def window(self, value: float, cap: float) -> Window:
        """Return a window around the capped value, in seconds."""
        value = min(value, cap)
        spread = self.fraction * value
        return Window(value - spread, 2 * spread, cap if self.then_cap else math.inf)
