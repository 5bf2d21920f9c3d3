"""Scripts for a flaky server, as values and as text: steps with bounds.

`accept_close x3; refuse until 5; slow_settings(delay=0.5) x2; working` closes three connections, then refuses until
five seconds after the start of the script, then works: with late SETTINGS on two connections, normally on all others.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self, cast

from interop.flaky.behaviour import Behaviour
from interop.flaky.behaviours import Refuse
from interop.flaky.notation import ScriptError, read_entry, write_entry

__all__ = ["Script", "ScriptError", "Step"]

_STEP = re.compile(r"(?P<name>\w+)\s*(?:\((?P<values>[^()]*)\))?(?P<bounds>.*)", re.DOTALL)
_BOUND = re.compile(r"(?:(?P<word>until|for)\s+|(?P<x>x))(?P<number>\S+)")
_BOUNDS = {"x": "times", "until": "until", "for": "lasting"}


@dataclass(frozen=True, slots=True)
class Step:
    """One behaviour and its bounds. The step ends when the first bound is reached.

    Attributes:
        behaviour: how each connection is treated. `Refuse` accepts none, so only time can bound it.
        times: ends after this many connections.
        until: ends this many seconds after the start of the script.
        lasting: ends this many seconds after the start of the step.
    """

    behaviour: Behaviour | Refuse
    times: int | None = None
    until: float | None = None
    lasting: float | None = None

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ScriptError: a bound is wrong.
        """
        name = self.behaviour.name
        if self.times is not None and isinstance(self.behaviour, Refuse):
            raise ScriptError(f"{name}: times={self.times}: expected until or lasting, since no connection is accepted")
        if self.times is not None and self.times < 1:
            raise ScriptError(f"{name}: times={self.times}: expected a whole number, 1 or more")
        for bound, seconds in (("until", self.until), ("lasting", self.lasting)):
            if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
                raise ScriptError(f"{name}: {bound}={seconds}: expected a number of seconds, 0 or more")

    @property
    def bounded(self) -> bool:
        """Whether the step has a bound."""
        return not self.times is self.until is self.lasting is None

    def __str__(self) -> str:
        """Return the step as text."""
        bounds = {"x": self.times, "until ": self.until, "for ": self.lasting}
        words = [f"{word}{number}" for word, number in bounds.items() if number is not None]
        return " ".join([write_entry(self.behaviour), *words])


@dataclass(frozen=True, slots=True)
class Script:
    """Steps, one after the other; the last one goes on forever.

    Attributes:
        steps: at least one step. All but the last have a bound; the last has none.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Check that every step can be reached, and that the last one does not end.

        Raises:
            ScriptError: there are no steps, a step before the last has no bound, or the last step has one.
        """
        if not self.steps:
            raise ScriptError("empty script: expected one step or more")
        for step in self.steps[:-1]:
            if not step.bounded:
                raise ScriptError(f"{step}: others come after it, so it needs a bound: xN, until T or for T")
        if self.steps[-1].bounded:
            raise ScriptError(f"{self.steps[-1]}: the last step goes on for ever, so it takes no bound")

    @classmethod
    def always(cls, behaviour: Behaviour | Refuse) -> Self:
        """Return a script that treats every connection the same way."""
        return cls((Step(behaviour),))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a script: steps separated by semicolons or newlines.

        A step is the name of a behaviour, its non-default values in parentheses, by name or in order, and its bounds:
        `x3` (connections), `until 5` (seconds after the start of the script), `for 2` (seconds).

        Raises:
            ScriptError: the text is not a valid script; the message says where, and what was expected.
        """
        return cls(tuple(_step(part.strip()) for part in re.split(r"[;\n]", text) if part.strip()))

    def __str__(self) -> str:
        """Return the script as text that `parse` accepts."""
        return "; ".join(map(str, self.steps))


def _step(text: str) -> Step:
    found = _STEP.fullmatch(text)
    if found is None:
        raise ScriptError(f"step={text!r}: expected NAME or NAME(FIELD=VALUE, ...), and bounds after it")
    entry = cast("Behaviour | Refuse", read_entry(found["name"], found["values"] or ""))
    bounds: dict[str, float] = {}
    rest = found["bounds"].strip()
    while rest:
        bound = _BOUND.match(rest)
        if bound is None:
            raise ScriptError(f"{text!r}: bound={rest!r}: expected xN, until T or for T")
        _take(text, bounds, bound)
        rest = rest[bound.end() :].strip()
    return Step(entry, **bounds)  # type: ignore[arg-type]


def _take(text: str, bounds: dict[str, float], bound: re.Match[str]) -> None:
    word = _BOUNDS[bound["word"] or "x"]
    if word in bounds:
        raise ScriptError(f"{text!r}: expected {word} once")
    try:
        bounds[word] = int(bound["number"]) if word == "times" else float(bound["number"])
    except ValueError:
        kind = "a whole number, 1 or more" if word == "times" else "a number of seconds, 0 or more"
        raise ScriptError(f"{text!r}: {word}={bound['number']!r}: expected {kind}") from None
