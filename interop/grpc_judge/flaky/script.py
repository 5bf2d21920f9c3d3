"""Scripts for a flaky server: steps with bounds, as Python objects or as JSON.

`[Step(AcceptClose(), times=3), Step(Refuse(), until=5), Working()]` closes three connections, refuses dials until five
seconds after the start of the script, and works normally on all later connections. The same as JSON, for other
processes and languages::

    [{"behaviour": "accept_close", "times": 3}, {"behaviour": "refuse", "until": 5}, "working"]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, cast

from h2.errors import ErrorCodes

from grpc_judge.flaky.behaviour import Behaviour, expect
from grpc_judge.flaky.behaviours import BY_NAME, Refuse

_BOUNDS = ("times", "until", "lasting")


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
            TypeError: the behaviour is none.
            ValueError: a bound is not allowed.
        """
        if not isinstance(self.behaviour, Behaviour | Refuse):
            raise TypeError(f"behaviour={self.behaviour!r}: expected a behaviour, such as Working()")
        name = self.behaviour.name
        if self.times is not None and isinstance(self.behaviour, Refuse):
            raise ValueError(f"{name}: times={self.times}: expected until or lasting, since no connection is accepted")
        if self.times is not None and (type(self.times) is not int or self.times < 1):
            raise ValueError(f"{name}: times={self.times!r}: expected a whole number, 1 or more")
        for bound, seconds in (("until", self.until), ("lasting", self.lasting)):
            if seconds is not None:
                expect(f"{name}: {bound}", seconds, 0.0)

    @property
    def bounded(self) -> bool:
        """Whether the step has a bound."""
        return not self.times is self.until is self.lasting is None


Script: TypeAlias = Behaviour | Refuse | Sequence[Behaviour | Refuse | Step]
"""Steps that follow each other. Each except the last must have a bound; the last never ends. A behaviour in place of a
step has no bound, and in place of a script, it applies to every connection."""


def steps_of(script: Script) -> tuple[Step, ...]:
    """Return the steps of a script.

    Raises:
        ValueError: there are no steps, an earlier step does not have a bound, or the last one has a bound.
    """
    each = [script] if isinstance(script, Behaviour | Refuse | str) else script
    steps = tuple(step if isinstance(step, Step) else Step(step) for step in each)
    if not steps:
        raise ValueError("empty script: expected one step or more")
    for step in steps[:-1]:
        if not step.bounded:
            raise ValueError(f"{step.behaviour.name}: others come after it, so it needs one of {', '.join(_BOUNDS)}")
    if steps[-1].bounded:
        raise ValueError(f"{steps[-1].behaviour.name}: the last step goes on for ever, so it takes no bound")
    return steps


def read_script(text: str) -> tuple[Step, ...]:
    """Read a script from JSON: a list of steps, or a single one.

    A step is the name of a behaviour, or an object with its name as `behaviour`, with the behaviour's fields, and with
    the bounds `times`, `until` and `lasting`. All but the name may be left out. Error codes are names.

    Raises:
        ValueError: the text is not a valid script. The message says where, and what was expected.
    """
    given = json.loads(text)
    return steps_of([_step(step) for step in (given if isinstance(given, list) else [given])])


def write_script(script: Script) -> str:
    """Return a script as JSON that `read_script` accepts."""
    return json.dumps([_written(step) for step in steps_of(script)])


def _step(given: object) -> Step:
    values: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"behaviour": given}
    name = values.pop("behaviour", None)
    if not isinstance(name, str) or name not in BY_NAME:
        raise ValueError(f"behaviour={name!r}: expected one of {', '.join(BY_NAME)}")
    kind = BY_NAME[name]
    bounds = {key: values.pop(key) for key in _BOUNDS if key in values}
    known = {field.name: field.default for field in fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"{name}: {key}={value!r}: expected one of {', '.join([*known, *_BOUNDS])}")
        if isinstance(known[key], ErrorCodes) and isinstance(value, str):
            values[key] = ErrorCodes.__members__.get(value, value)
    return Step(cast("Behaviour | Refuse", kind(**values)), **bounds)


def _written(step: Step) -> Any:
    values = asdict(step)
    values |= {
        key: value.name if isinstance(value, ErrorCodes) else value for key, value in values["behaviour"].items()
    }
    values["behaviour"] = step.behaviour.name
    return {key: value for key, value in values.items() if value is not None}
