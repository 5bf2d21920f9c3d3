"""Scripts for a flaky server, as values and as text. A script consists of steps with bounds.

`accept_close x3; refuse until 5; slow_settings(delay=0.5) x2; working` closes three connections, refuses dials until
five seconds after the start of the script, sends late SETTINGS on two connections, and works normally on all later
ones.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self, cast

from grpc_judge.flaky.behaviour import Behaviour
from grpc_judge.flaky.behaviours import Refuse
from grpc_judge.flaky.notation import ScriptError, read_entry, write_entry

__all__ = ["Script", "ScriptError", "Step"]

_STEP = re.compile(r"(?P<name>\w+)\s*(?:\((?P<values>[^()]*)\))?(?P<bounds>.*)", re.DOTALL)
_BOUND = re.compile(r"(?:(?P<word>until|for)\s+|(?P<x>x))(?P<number>\S+)")
_BOUNDS = {"x": "times", "until": "until", "for": "lasting"}


@dataclass(frozen=True, slots=True)
class Step:
    """A behaviour and its bounds. The step ends when the first bound is reached.

    Attributes:
        behaviour: how each connection is treated. `Refuse` accepts none, so only time can bound it.
        times: the number of connections after which the step ends.
        until: when the step ends, in seconds after the start of the script.
        lasting: when the step ends, in seconds after its own start.
    """

    behaviour: Behaviour | Refuse
    times: int | None = None
    until: float | None = None
    lasting: float | None = None

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ScriptError: a bound is not allowed.
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
    """Steps that follow each other. The last one never ends.

    Attributes:
        steps: the steps, at least one. Each except the last must have a bound; the last must not.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Check that every step can be reached and that the last one does not end.

        Raises:
            ScriptError: there are no steps, an earlier step does not have a bound, or the last one has a bound.
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
        """Parse a script, whose steps are separated by semicolons or newlines.

        A step is the name of a behaviour, followed by its non-default values in parentheses (by name or in order) and
        by its bounds: `x3` (connections), `until 5` (seconds after the start of the script) or `for 2` (seconds).

        Raises:
            ScriptError: the text is not a valid script. The message says where, and what was expected.
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
